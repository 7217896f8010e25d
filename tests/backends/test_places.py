"""Where the parts of one user's installation meet."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest

from gateway.backends import places as places_module
from gateway.backends.places import Places, private_folder
from gateway.protocol.errors import SettingError


def test_everything_lies_in_a_private_folder(tmp_path: Path) -> None:
    places = Places(str(tmp_path / "e"))
    assert stat.S_IMODE(places.root.stat().st_mode) == 0o700
    assert places.kernel("k").parent == places.kernels
    assert len(places.kernel("../../etc/passwd").name) == 16


def test_a_folder_that_others_could_read_is_closed(tmp_path: Path) -> None:
    (tmp_path / "e").mkdir(mode=0o755)
    assert stat.S_IMODE(Places(str(tmp_path / "e")).root.stat().st_mode) == 0o700


def test_a_link_in_the_place_of_the_folder_is_refused(tmp_path: Path) -> None:
    (tmp_path / "there").mkdir()
    (tmp_path / "e").symlink_to(tmp_path / "there")
    with pytest.raises(SettingError, match="isn't a folder of this user"):
        Places(str(tmp_path / "e"))


def test_a_folder_that_can_not_be_made_is_told(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(SettingError, match=r"LocalBackend\.runtime_dir"):
        Places(str(tmp_path / "file" / "e"))
    with pytest.raises(SettingError, match=r"isn't a folder.*LocalBackend\.runtime_dir"):
        private_folder(tmp_path / "file")
    with pytest.raises(SettingError, match=r"isn't a folder.*Bursts\.folder"):
        private_folder(tmp_path / "file", "Bursts.folder")


def test_a_path_too_long_for_sockets_is_told_or_avoided(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(SettingError, match="too long"):
        Places(str(tmp_path / ("x" * 90)))
    short: list[Path] = []
    monkeypatch.setattr(places_module, "jupyter_runtime_dir", lambda: "/x" * 60)
    monkeypatch.setattr(places_module, "private_folder", lambda path: short.append(path) or tmp_path)
    Places()
    assert short[0] == Path(f"/tmp/jupyter-elastic-{os.getuid()}")


def test_generations_grow_over_restarts(tmp_path: Path) -> None:
    root = str(tmp_path / "e")
    first = Places(root).next_generation()
    assert [Places(root).next_generation() for _ in range(2)] == [first + 1, first + 2]


@pytest.mark.parametrize("left", ["", "torn", "12x"])
def test_a_torn_generation_file_never_makes_a_gateway_older_than_the_one_before(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, left: str
) -> None:
    monkeypatch.setattr(places_module.time, "time", lambda: 1000.5)
    places = Places(str(tmp_path / "e"))
    assert [places.next_generation() for _ in range(3)] == [1000, 1001, 1002]
    (tmp_path / "e/generation").write_text(left)
    monkeypatch.setattr(places_module.time, "time", lambda: 1060.5)  # three starts took a minute
    assert places.next_generation() == 1060
