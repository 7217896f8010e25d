"""One GPU, one broker, whatever Unix user runs it."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest

from gateway.protocol.errors import SettingError
from gateway.protocol.locks import USE, GpuLocks

UUID = "GPU-5a6f2c1e-0000-1111-2222-333344445555"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "locks"


def test_a_second_broker_is_told_who_has_the_gpu(folder: Path) -> None:
    first, second = GpuLocks(folder), GpuLocks(folder)
    assert first.acquire(UUID, "gateway 'lab' of ada") == ""
    assert first.acquire(UUID, "gateway 'lab' of ada") == ""
    assert second.acquire(UUID, "bob").startswith(f"gateway 'lab' of ada (process {os.getpid()}, since 20")
    first.release_all()
    assert second.acquire(UUID, "bob") == ""


def test_whoever_was_killed_leaves_its_mark_and_whoever_let_go_does_not(folder: Path) -> None:
    first, second = GpuLocks(folder), GpuLocks(folder)
    assert second.left(UUID) == ""
    first.acquire(UUID, "ada", "her kernel")
    assert second.left(UUID) == "", "she lives"
    first.release(UUID, cleared=False)
    assert second.left(UUID) == "her kernel"
    second.acquire(UUID, "bob", "her kernel")
    second.release(UUID)
    assert first.left(UUID) == ""


@pytest.mark.parametrize("text", ["", "{", "[]", '{"mark": 7}', '{"who": "an older one"}'])
def test_a_lock_file_that_tells_no_mark_leaves_none(folder: Path, text: str) -> None:
    folder.mkdir(mode=0o700)
    (folder / f"{UUID}.lock").write_text(text)
    assert GpuLocks(folder).left(UUID) == ""


def test_every_user_can_lock_and_nobody_can_remove_anothers(folder: Path) -> None:
    mask = os.umask(0o077)
    try:
        GpuLocks(folder).acquire(UUID, "ada")
    finally:
        os.umask(mask)
    assert stat.S_IMODE(folder.stat().st_mode) == 0o1777
    assert stat.S_IMODE((folder / f"{UUID}.lock").stat().st_mode) == 0o666


def test_locks_of_simulated_gpus_are_private(folder: Path) -> None:
    GpuLocks(folder, shared=False).acquire("GPU-SIM-0", "ada")
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700


def test_a_link_that_somebody_planted_is_not_followed(folder: Path, tmp_path: Path) -> None:
    folder.mkdir(mode=0o700)
    victim = tmp_path / "victim"
    victim.write_text("precious")
    (folder / f"{UUID}.lock").symlink_to(victim)
    with pytest.raises(SettingError, match="remove it"):
        GpuLocks(folder).acquire(UUID, "ada")
    assert victim.read_text() == "precious"


def test_a_pipe_in_the_place_of_a_lock_blocks_nobody(folder: Path) -> None:
    folder.mkdir(mode=0o700)
    os.mkfifo(folder / f"{UUID}.lock")
    with pytest.raises(SettingError, match="isn't a file"):
        GpuLocks(folder).acquire(UUID, "ada")


def test_a_folder_that_anybody_could_change_is_refused(folder: Path) -> None:
    folder.mkdir()
    folder.chmod(0o777)
    with pytest.raises(SettingError, match="1777"):
        GpuLocks(folder).acquire(UUID, "ada")


def test_a_folder_that_is_a_link_is_refused(folder: Path, tmp_path: Path) -> None:
    (tmp_path / "other").mkdir(mode=0o700)
    folder.symlink_to(tmp_path / "other")
    with pytest.raises(SettingError, match="safe"):
        GpuLocks(folder).acquire(UUID, "ada")


def test_a_lock_whose_file_was_removed_is_taken_anew(folder: Path) -> None:
    first, second = GpuLocks(folder), GpuLocks(folder)
    first.acquire(UUID, "ada")
    (folder / f"{UUID}.lock").unlink()
    assert first.acquire(UUID, "ada") == ""
    assert second.acquire(UUID, "bob").startswith("ada")


def test_a_removed_lock_that_another_broker_has_taken_meanwhile_is_lost(folder: Path) -> None:
    first, second = GpuLocks(folder), GpuLocks(folder)
    first.acquire(UUID, "ada")
    (folder / f"{UUID}.lock").unlink()
    assert second.acquire(UUID, "bob") == ""
    assert first.acquire(UUID, "ada").startswith("bob")


def test_what_stands_in_the_file_is_never_trusted(folder: Path) -> None:
    first, second = GpuLocks(folder), GpuLocks(folder)
    first.acquire(UUID, "ada")
    path = folder / f"{UUID}.lock"
    for text in ("", "[]", "{", '{"who": "\\u001b[31mroot\\n", "pid": "x"}', "\xff" * 5000):
        path.write_text(text)
        assert second.acquire(UUID, "bob") == "another process"
    path.write_text('{"who": "\\u001b[2Jroot", "pid": 1, "since": "' + "x" * 1000 + '"}')
    holder = second.acquire(UUID, "bob")
    assert holder.isprintable()
    assert len(holder) <= 200


def test_a_name_that_leaves_the_folder_is_no_gpu(folder: Path) -> None:
    for name in ("../etc", "/etc/passwd", "", "a\0b", "x" * 200):
        with pytest.raises(SettingError, match="no GPU"):
            GpuLocks(folder).acquire(name, "ada")


def test_looking_at_a_lock_takes_nothing(folder: Path) -> None:
    looking, holding = GpuLocks(folder, kind=USE), GpuLocks(folder, kind=USE)
    assert looking.holder(UUID) == ""
    assert holding.acquire(UUID, "kernel a.ipynb of ada") == ""
    assert looking.holder(UUID).startswith("kernel a.ipynb of ada (process ")
    assert looking.held == []
    holding.release_all()
    assert looking.holder(UUID) == ""


def test_the_lock_of_a_broker_and_that_of_a_kernel_are_two(folder: Path) -> None:
    broker, kernel = GpuLocks(folder), GpuLocks(folder, kind=USE)
    assert broker.acquire(UUID, "a broker") == kernel.acquire(UUID, "a kernel") == ""
