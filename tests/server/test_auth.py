"""A token that nobody has set is made once and kept, for this user's eyes alone."""

from __future__ import annotations

import pytest

from gateway.server.auth import kept_token


def test_a_token_is_kept_as_it_was_first_made(tmp_path):
    file = tmp_path / "gateway.token"
    assert kept_token(file, "first") == "first"
    assert kept_token(file, "second") == "first"
    assert file.stat().st_mode & 0o777 == 0o600
    assert [path.name for path in tmp_path.iterdir()] == ["gateway.token"]


@pytest.mark.parametrize(("text", "mode"), [("", 0o600), ("seen by others", 0o644)])
def test_a_token_that_was_cut_off_or_that_others_can_read_is_replaced(tmp_path, text, mode):
    file = tmp_path / "gateway.token"
    file.write_text(text)
    file.chmod(mode)
    assert kept_token(file, "new") == "new"
    assert kept_token(file, "newer") == "new"


def test_a_link_in_its_place_is_not_followed(tmp_path):
    (tmp_path / "elsewhere").write_text("planted")
    (tmp_path / "gateway.token").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(OSError):
        kept_token(tmp_path / "gateway.token", "new")
