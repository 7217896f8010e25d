"""A supervisor's lease: the broker's names of GPUs in its own words, CUDA's names at the device."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from gateway.pod.commands import obey
from gateway.pod.device import Done, NoParking
from gateway.pod.gate import Gate, Request
from gateway.pod.lease import Lease
from gateway.pod.possession import Possession
from gateway.protocol.errors import WireError
from gateway.protocol.model import Phase, Rung


class Recorder(NoParking):
    """A device that does at once what it is asked, and remembers it."""

    def __init__(self) -> None:
        super().__init__("")
        self.asked: list[tuple[Any, ...]] = []
        self._parked = False

    @property
    def parked(self) -> bool:
        return self._parked

    def probe(self) -> tuple[Rung, str]:
        return Rung.ANYWHERE, ""

    def take(self, gpus: Sequence[str], visible: Sequence[str], done: Callable[[], None]) -> None:
        self.asked.append(("take", list(gpus), list(visible)))
        done()

    def park(self, pid: int, done: Done) -> None:
        self._parked = True
        done(None, 7)

    def resume(self, pid: int, gpus: Sequence[str], done: Done) -> None:
        self.asked.append(("resume", list(gpus)))
        self._parked = False
        done(None, 7)

    def gone(self, pid: int, on_gpu: bool, done: Callable[[], None]) -> None:
        self.asked.append(("gone", on_gpu))
        self.cleared = done


class Kernel:
    """As ``obey`` knows a supervisor: a lease with a real gate, and a cell that waits."""

    def __init__(self, lock_dir: str | None = None) -> None:
        self.device, self.visible, self._orders = Recorder(), [], 0  # type: ignore[var-annotated]
        self.gate = Gate(2, lambda request: (True, ""), lambda request: None)
        self.gate.kernel_ready()
        self.lease = Lease(
            self.gate, self.device, lambda: 1, lambda effects: None, self.visible.append, lambda then: then(True), lambda why: None,
            lambda: None, Possession(lock_dir, ""), lambda seconds, call: call(),
        )  # fmt: skip

    def changed(self) -> None: ...

    def cell(self, name: str) -> None:
        self.gate.request(Request([], [], name, "execute_request"))

    def order(self, do: str, **fields: Any) -> None:
        self._orders += 1
        obey(self, {"do": do, "epoch": [1, self._orders], **fields})  # type: ignore[arg-type]


def test_cuda_is_told_its_own_names_and_the_broker_hears_those_of_its_book() -> None:
    kernel = Kernel()
    kernel.cell("one")
    kernel.order("grant", gpus=["slot-a/0", "slot-a/1"], visible=["slot-a/0", "slot-a/1", "slot-b/0"], devices=["GPU-3", "GPU-1"])
    assert kernel.device.asked == [("take", ["GPU-3", "GPU-1"], ["GPU-3", "GPU-1"])]
    assert kernel.visible == [["GPU-3", "GPU-1"]]
    kernel.gate.replied("one")
    kernel.order("park")
    state = kernel.lease.state()
    assert (state.phase, state.gpus, state.home) == (Phase.PARKED, [], ["slot-a/0", "slot-a/1"])

    kernel.cell("two")
    kernel.order("grant", gpus=["slot-b/0", "slot-b/1"], devices=["GPU-0", "GPU-2"])
    assert kernel.device.asked[1:] == [("resume", ["GPU-0", "GPU-2"])]
    assert kernel.lease.state().gpus == kernel.lease.state().home == ["slot-b/0", "slot-b/1"]


def test_without_devices_the_brokers_names_are_cudas() -> None:
    kernel = Kernel()
    kernel.cell("one")
    kernel.order("grant", gpus=["GPU-0", "GPU-1"], visible=["GPU-0", "GPU-1", "GPU-2"])
    assert kernel.device.asked == [("take", ["GPU-0", "GPU-1"], ["GPU-0", "GPU-1", "GPU-2"])]


def test_a_grant_that_does_not_name_a_device_for_each_gpu_is_refused() -> None:
    kernel = Kernel()
    kernel.cell("one")
    with pytest.raises(WireError, match="2 GPUs names 1 devices"):
        kernel.order("grant", gpus=["a", "b"], devices=["GPU-0"])
    assert not kernel.device.asked


def test_a_gpu_is_let_go_once_nothing_of_the_kernel_that_ended_is_there(tmp_path: Path) -> None:
    kernel, other, told = Kernel(str(tmp_path / "locks")), Possession(str(tmp_path / "locks"), "other"), []
    kernel.cell("one")
    kernel.order("grant", gpus=["GPU-0"])
    kernel.gate.gone("died", asked=False)
    kernel.lease.kernel_gone(lambda: told.append(True))
    assert kernel.device.asked[-1] == ("gone", True) and other.take(["GPU-0"]) and not told
    kernel.device.cleared()
    assert other.take(["GPU-0"]) == "" and told


def test_a_gpu_that_the_next_process_was_granted_meanwhile_is_kept(tmp_path: Path) -> None:
    kernel, other = Kernel(str(tmp_path / "locks")), Possession(str(tmp_path / "locks"), "other")
    kernel.cell("one")
    kernel.order("grant", gpus=["GPU-0"])
    kernel.gate.gone("died", asked=False)
    kernel.lease.kernel_gone(lambda: None)
    kernel.gate.kernel_ready()
    kernel.cell("two")
    kernel.order("grant", gpus=["GPU-0"])
    kernel.device.cleared()
    assert other.take(["GPU-0"]), "it is on it again"
