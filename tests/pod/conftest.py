"""Fixtures of the pod's tests."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from .cuda_rig import Rig


@pytest.fixture
def rig(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> Iterator[Rig]:
    """A CUDA device on the double's machine; parametrized indirectly with the machine's fields."""
    rig = Rig(tmp_path, monkeypatch, **getattr(request, "param", {}))
    yield rig
    rig.close()
