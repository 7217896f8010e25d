"""A slot says which GPUs it got and stays on them while somebody is there: the real process, on the double's machine."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from ..doubles.cuda import GIB, MIB, MISSING, Effect, Node, Op
from ..doubles.cuda.program import Program

CONTEXT = 64 * MIB
needs_double = pytest.mark.skipif(bool(MISSING), reason=MISSING)


class Slot:
    def __init__(self, env: dict[str, str], *arguments: str) -> None:
        clean = {name: value for name, value in os.environ.items() if not name.startswith("NVIDIA_")}
        self.process = subprocess.Popen(
            [sys.executable, "-m", "gateway.pod.slot", *arguments], env={**clean, **env}, stdout=subprocess.PIPE, text=True
        )

    def says(self) -> dict[str, Any]:
        assert self.process.stdout
        said: dict[str, Any] = json.loads(self.process.stdout.readline())
        return said

    def ask(self) -> None:
        self.process.send_signal(signal.SIGTERM)

    def ends(self) -> int:
        return self.process.wait(20)


@pytest.fixture
def slots() -> Iterator[list[Slot]]:
    slots: list[Slot] = []
    yield slots
    for slot in slots:
        if slot.process.poll() is None:
            slot.process.kill()
        slot.process.wait()
        assert slot.process.stdout
        slot.process.stdout.close()


@pytest.fixture
def node(tmp_path: Path) -> Iterator[Node]:
    node = Node(tmp_path, gpus=2, memory=2 * GIB, context=CONTEXT)
    yield node
    node.close()


@pytest.fixture
def program(node: Node) -> Iterator[Program]:
    program = Program(node)
    yield program
    program.end()


@needs_double
def test_a_slot_says_at_once_which_devices_it_got_and_leaves_empty_ones_when_asked(node: Node, slots: list[Slot]) -> None:
    slots.append(slot := Slot({**node.env, "NVIDIA_VISIBLE_DEVICES": "GPU-other"}))
    assert slot.says() == {"devices": node.uuids, "by": "driver"}
    slot.ask()
    assert slot.says() == {"empty": True}
    assert slot.ends() == 0


@needs_double
def test_a_slot_stays_until_the_kernel_has_left_its_gpu(node: Node, program: Program, slots: list[Slot]) -> None:
    slots.append(slot := Slot(node.env))
    slot.says()
    slot.ask()
    assert slot.says() == {"waiting_for": {node.uuids[0]: {"processes": [program.pid], "bytes": CONTEXT}}}
    slot.ask()  # asked again, it doesn't leave sooner
    assert slot.process.poll() is None
    program.end()
    assert slot.says() == {"empty": True}
    assert slot.ends() == 0


@needs_double
def test_a_slot_whose_patience_is_over_leaves_and_says_that_somebody_is_still_there(
    node: Node, program: Program, slots: list[Slot]
) -> None:
    slots.append(slot := Slot(node.env, "--patience", "0.5"))
    slot.says()
    slot.ask()
    assert "waiting_for" in slot.says()
    assert slot.says()["empty"] is False
    assert slot.ends() == 1


@needs_double
def test_memory_of_whom_the_driver_lists_no_process_counts_as_somebodys(node: Node, slots: list[Slot]) -> None:
    slots.append(slot := Slot(node.env))
    slot.says()
    node.set_gpu(1, foreign=GIB)
    slot.ask()
    assert slot.says() == {"waiting_for": {node.uuids[1]: {"processes": [], "bytes": GIB}}}
    node.set_gpu(1, foreign=0)
    assert slot.says() == {"empty": True}
    assert slot.ends() == 0


@needs_double
def test_a_driver_that_hangs_keeps_no_slot_longer_than_its_patience(node: Node, slots: list[Slot]) -> None:
    slots.append(slot := Slot(node.env, "--patience", "0.5"))
    slot.says()
    with node.fault(Op.MEMORY, effect=Effect.HANG, times=-1):
        slot.ask()
        assert slot.says()["empty"] is False
        assert slot.ends() == 1


@needs_double
def test_of_a_gpu_that_is_cut_into_slices_the_slices_are_named(node: Node, slots: list[Slot]) -> None:
    node.set_gpu(0, mig=1)
    slots.append(slot := Slot(node.env))
    assert slot.says() == {"devices": node.uuids, "by": "driver"}  # the double gives a slice its GPU's name


@pytest.mark.parametrize(
    ("named", "devices"),
    [("GPU-1,MIG-2", ["GPU-1", "MIG-2"]), ("all", []), ("void", []), ("none", []), ("", []), ("0,1", []), ("GPU-1, ", ["GPU-1"])],
)
def test_without_a_driver_the_environment_names_the_devices_and_nothing_is_waited_for(
    named: str, devices: list[str], slots: list[Slot], tmp_path: Path
) -> None:
    (tmp_path / "libnvidia-ml.so.1").write_text("no library")  # hides a real one
    slots.append(slot := Slot({"NVIDIA_VISIBLE_DEVICES": named, "LD_LIBRARY_PATH": str(tmp_path)}))
    said = slot.says()
    assert (said["devices"], said["by"]) == (devices, "environment") and "no NVIDIA driver answers" in said["why"]
    slot.ask()
    assert slot.says()["empty"] is None
    assert slot.ends() == 0
