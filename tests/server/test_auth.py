"""A token that nobody has set is made once and kept, for this user's eyes alone."""

from __future__ import annotations

import os

import pytest

from gateway.protocol.errors import SettingError
from gateway.server.auth import ElasticIdentityProvider, kept_token


def test_a_token_is_kept_as_it_was_first_made(tmp_path):
    file = tmp_path / "gateway.token"
    assert kept_token(file, "first") == "first"
    assert kept_token(file, "second") == "first"
    assert file.stat().st_mode & 0o777 == 0o600
    assert [path.name for path in tmp_path.iterdir()] == ["gateway.token"]


@pytest.mark.parametrize(
    ("text", "mode"), [(b"", 0o600), (b"seen-by-others", 0o644), (b"\xff\xfe\0", 0o600), (b"one\ntwo\n", 0o600), (b"x" * 9999, 0o600)]
)
def test_a_token_that_was_cut_off_or_makes_no_sense_or_that_others_can_read_is_replaced_and_told(tmp_path, text, mode):
    file = tmp_path / "gateway.token"
    file.write_bytes(text)
    file.chmod(mode)
    said = []
    assert kept_token(file, "new", said.append) == "new"
    assert kept_token(file, "newer", said.append) == "new"
    assert len(said) == 1 and str(file) in said[0] and "A new one" in said[0]


def test_a_pipe_in_its_place_is_replaced_and_never_waited_for(tmp_path):
    file = tmp_path / "gateway.token"
    os.mkfifo(file, 0o600)
    said = []
    assert kept_token(file, "new", said.append) == "new" == kept_token(file, "newer")
    assert len(said) == 1 and file.is_file()


def test_a_link_in_its_place_is_not_followed(tmp_path):
    (tmp_path / "elsewhere").write_text("planted")
    (tmp_path / "gateway.token").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(OSError):
        kept_token(tmp_path / "gateway.token", "new")


@pytest.mark.parametrize(("text", "said"), [("", "is empty"), ("\n", "is empty"), (None, "No such file")])
def test_a_token_file_that_holds_no_token_lets_nobody_in(tmp_path, monkeypatch, text, said):
    file = tmp_path / "token"
    if text is not None:
        file.write_text(text)
    monkeypatch.delenv("JUPYTER_TOKEN", raising=False)
    monkeypatch.setenv("JUPYTER_TOKEN_FILE", str(file))
    with pytest.raises(SettingError, match=said):
        _ = ElasticIdentityProvider().token


def test_the_line_end_of_a_token_file_is_not_of_the_token(tmp_path, monkeypatch):
    (tmp_path / "token").write_text("open sesame\n")
    monkeypatch.delenv("JUPYTER_TOKEN", raising=False)
    monkeypatch.setenv("JUPYTER_TOKEN_FILE", str(tmp_path / "token"))
    provider = ElasticIdentityProvider()
    assert provider.token == "open sesame"
    assert not provider.token_generated
