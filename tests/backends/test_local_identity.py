"""What a kernel's folder says of its supervisor is believed only as far as it makes sense."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from gateway.backends.local import LocalSupervisor
from gateway.protocol.errors import SupervisorLost

GOOD = {"kernel_id": "k", "link": "ipc:///l", "key": "k", "connection": {}, "pid": 1, "started": 2}


@pytest.mark.parametrize(
    "text",
    [
        json.dumps({**GOOD, "metadata": 5}),
        json.dumps({**GOOD, "metadata": ["a"]}),
        json.dumps({**GOOD, "pid": 1e999}),
        json.dumps({**GOOD, "connection": [1]}),
        "[" * 100_000,
        "[]",
        "\udcff",
    ],
    ids=["metadata", "metadata list", "pid", "connection", "deep", "list", "no text"],
)
def test_a_supervisor_file_that_makes_no_sense_is_a_supervisor_lost_and_nothing_worse(tmp_path: Path, text: str) -> None:
    (tmp_path / "supervisor.json").write_bytes(text.encode("utf-8", "surrogateescape"))
    with pytest.raises(SupervisorLost):
        LocalSupervisor(tmp_path)


@pytest.mark.parametrize("pid", [-1, 0, 10**30])
def test_a_number_that_no_process_can_have_is_a_supervisor_that_has_ended(tmp_path: Path, pid: int) -> None:
    (tmp_path / "supervisor.json").write_text(json.dumps({**GOOD, "pid": pid}))
    assert not LocalSupervisor(tmp_path).alive()
