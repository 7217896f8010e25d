"""What ``--pip`` puts into a burst's folder: by pip itself, from a folder of wheels, with no network."""

from __future__ import annotations

import importlib.metadata
import os
import subprocess
import sys
from pathlib import Path

import pytest

from gateway.pod.burst import packages
from gateway.protocol import burst
from tests.wheels import wheel


def install(folder: Path, wheels: Path, **pip: list[str]) -> subprocess.CompletedProcess[str]:
    folder.mkdir(exist_ok=True)
    burst.write_json(folder / burst.REQUEST, {"python": sys.executable, "pip": pip})
    return subprocess.run(
        [sys.executable, "-m", "gateway.pod.burst.packages", str(folder)],
        env={**os.environ, "PIP_NO_INDEX": "1", "PIP_FIND_LINKS": str(wheels)}, capture_output=True, text=True,
    )  # fmt: skip


def installed(folder: Path) -> list[str]:
    return sorted(path.name for path in (folder / packages.TARGET).glob("*.dist-info"))


@pytest.fixture
def wheels(tmp_path: Path) -> Path:
    place = tmp_path / "wheels"
    wheel(place, "tiny", "1.5", needs=["tinier"])
    wheel(place, "tiny", "2.0", needs=["tinier", "tornado"])
    wheel(place, "tinier", "0.1")
    return place


def test_a_package_comes_with_what_it_needs_and_without_what_is_there_already(tmp_path: Path, wheels: Path) -> None:
    done = install(tmp_path / "burst", wheels, wanted=["tiny"])
    assert done.returncode == 0, done.stderr
    assert installed(tmp_path / "burst") == ["tinier-0.1.dist-info", "tiny-2.0.dist-info"]


def test_what_the_notebook_has_comes_in_its_very_version_and_alone(tmp_path: Path, wheels: Path) -> None:
    there = f"tornado=={importlib.metadata.version('tornado')}"
    done = install(tmp_path / "burst", wheels, same=["tiny==1.5", there])
    assert done.returncode == 0, done.stderr
    assert installed(tmp_path / "burst") == ["tiny-1.5.dist-info"]


def test_nothing_is_installed_where_nothing_is_missing(tmp_path: Path, wheels: Path) -> None:
    done = install(tmp_path / "burst", wheels, same=[f"tornado=={importlib.metadata.version('tornado')}"], wanted=["tornado"])
    assert (done.returncode, installed(tmp_path / "burst")) == (0, []), done.stderr


def test_what_nobody_has_is_told_in_pips_own_words(tmp_path: Path, wheels: Path) -> None:
    done = install(tmp_path / "burst", wheels, wanted=["nosuch"])
    assert done.returncode != 0 and "No matching distribution found for nosuch" in done.stderr
