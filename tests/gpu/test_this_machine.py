"""The ten checks on a real GPU, one test each; ``jupyter elastic-gateway doctor`` runs the same."""

from __future__ import annotations

import os
import sys
from functools import cache
from typing import Any

import pytest

from gateway.cli.doctor import examine
from gateway.pod.cuda.driver import present

PYTHON = "ELASTIC_TEST_PYTHON"  # an interpreter that has torch
CHECKS = (
    "state survives",
    "as an unprivileged user",
    "without persistence mode",
    "left on the GPU",
    "host memory taken",
    "parking",
    "resuming",
    "data loader's workers live on",
    "moves to another GPU",
    "cycles without harm",
    "killed after a resume",
    "after a profiler",
    "cache that is let go",
)
pytestmark = [
    pytest.mark.skipif(not present(os.environ), reason="no NVIDIA driver is installed here: run this on a machine with a GPU"),
    pytest.mark.timeout(1800),
]


@cache
def seen() -> dict[str, dict[str, Any]]:
    said = examine(os.environ.get(PYTHON, sys.executable), size=1 << 30, cycles=100)
    return {check["name"]: check for check in said["checks"]}


@pytest.mark.parametrize("name", CHECKS)
def test_this_machines_driver(name: str) -> None:
    check = seen().get(name) or next(reversed(seen().values()))  # the one in which all came to an end, or that there is no driver
    if check["ok"] is None:
        pytest.skip(f"{check['reason']} (torch is looked for in the interpreter that {PYTHON} names)")
    assert check["ok"], check["reason"]
