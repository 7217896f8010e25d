"""The GPUs of a machine: found through a double of NVIDIA's library, or simulated."""

from __future__ import annotations

import os
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from gateway.backends import gpus as gpus_module
from gateway.backends.gpus import Inventory, Nvml, flavor
from gateway.backends.places import Places
from gateway.pod.possession import Possession
from gateway.protocol.locks import USE, GpuLocks
from gateway.protocol.model import Rung
from gateway.settings import ElasticGateway, LocalBackend, SimulatedGpu


@pytest.fixture(autouse=True)
def pc(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gpus_module.platform, "machine", lambda: "x86_64")


class FakeNvml:
    """As much of ``pynvml`` as is asked, with its own error for what a device doesn't know."""

    NVML_GPU_VIRTUALIZATION_MODE_VGPU = 2

    class NVMLError(Exception):
        pass

    def __init__(self, *devices: dict[str, Any], driver: str = "580.65.06") -> None:
        self.devices, self.driver = devices, driver

    def nvmlSystemGetDriverVersion(self) -> bytes:
        return self.driver.encode()

    def nvmlDeviceGetCount(self) -> int:
        return len(self.devices)

    def nvmlDeviceGetHandleByIndex(self, index: int) -> dict[str, Any]:
        if self.devices[index].get("lost"):
            raise self.NVMLError
        return self.devices[index]

    def nvmlDeviceGetHandleByUUID(self, uuid: str) -> dict[str, Any]:
        return next(device for device in self.devices if device["uuid"] == uuid)

    def _get(self, handle: dict[str, Any], name: str) -> Any:
        if name not in handle:
            raise self.NVMLError(name)
        return handle[name]

    def nvmlDeviceGetUUID(self, handle: dict[str, Any]) -> bytes:
        return handle["uuid"].encode()

    def nvmlDeviceGetName(self, handle: dict[str, Any]) -> str:
        return handle.get("name", "NVIDIA H200")

    def nvmlDeviceGetMemoryInfo(self, handle: dict[str, Any]) -> Any:
        return SimpleNamespace(total=handle.get("memory", 1 << 30))

    def nvmlDeviceGetMigMode(self, handle: dict[str, Any]) -> tuple[int, int]:
        return self._get(handle, "mig"), 0

    def nvmlDeviceGetMaxMigDeviceCount(self, handle: dict[str, Any]) -> int:
        return 7

    def nvmlDeviceGetMigDeviceHandleByIndex(self, handle: dict[str, Any], index: int) -> Any:
        try:
            return handle["partitions"][index]
        except IndexError:
            raise self.NVMLError from None

    def nvmlDeviceGetVirtualizationMode(self, handle: dict[str, Any]) -> int:
        return self._get(handle, "virtualization")

    def nvmlDeviceGetMPSComputeRunningProcesses(self, handle: dict[str, Any]) -> list[Any]:
        return self._get(handle, "mps")

    def nvmlDeviceGetComputeRunningProcesses(self, handle: dict[str, Any]) -> list[Any]:
        return [SimpleNamespace(pid=pid) for pid in self._get(handle, "pids")]

    def nvmlDeviceGetProcessUtilization(self, handle: dict[str, Any], since: int) -> list[Any]:
        return [
            SimpleNamespace(pid=pid, timeStamp=int(at * 1e6), smUtil=percent, encUtil=0, decUtil=0)
            for pid, at, percent in self._get(handle, "samples")
        ]


def inventory(
    tmp_path: Path, nvml: FakeNvml | None = None, simulated: int | None = None, gateway: ElasticGateway | None = None,
    ended: list[str] | None = None, **options: Any,
) -> Inventory:  # fmt: skip
    local = LocalBackend(lock_dir=str(tmp_path / "locks"))
    gateway = gateway or ElasticGateway(simulated_gpus=simulated)
    found = Inventory(gateway, local, SimulatedGpu(**options), Places(str(tmp_path / "e")), ended.append if ended is not None else print)
    if found.driver is not None:
        found.driver._nvml = nvml
    return found


def test_simulated_gpus_are_as_many_as_asked_for(tmp_path: Path) -> None:
    gpus = inventory(tmp_path, simulated=2, memory_bytes=5 << 30, rung="same-gpu").gpus()
    assert [gpu.uuid for gpu in gpus] == ["GPU-SIM-0", "GPU-SIM-1"]
    assert all(gpu.simulated and gpu.memory_bytes == 5 << 30 and gpu.rung is Rung.SAME_GPU for gpu in gpus)
    assert inventory(tmp_path, simulated=0).gpus() == []


def test_without_a_driver_there_are_no_gpus_and_it_says_why(monkeypatch: pytest.MonkeyPatch) -> None:
    import pynvml

    def none() -> None:
        raise RuntimeError("library not found")

    monkeypatch.setattr(pynvml, "nvmlInit", none)
    driver = Nvml()
    assert driver.gpus() == []
    assert "library not found" in driver.missing


def test_a_gpu_is_known_by_uuid_flavor_memory_and_what_its_driver_can_do(tmp_path: Path) -> None:
    nvml = FakeNvml({"uuid": "GPU-1", "name": "NVIDIA A100-SXM4-80GB", "memory": 80 << 30})
    [gpu] = inventory(tmp_path, nvml).gpus()
    assert (gpu.uuid, gpu.flavor, gpu.memory_bytes, gpu.simulated, gpu.rung) == ("GPU-1", "a100-sxm4-80gb", 80 << 30, False, Rung.ANYWHERE)


def test_the_rung_follows_the_driver_and_says_why_not_a_better_one(tmp_path: Path) -> None:
    def best(driver: str) -> tuple[Rung, str]:
        [gpu] = inventory(tmp_path, FakeNvml({"uuid": "GPU-1"}, driver=driver)).gpus()
        return gpu.rung, gpu.reason

    assert best("580.65.06") == (Rung.ANYWHERE, "")
    assert best("575.57.08")[0] is Rung.SAME_GPU
    assert "580" in best("575.57.08")[1]
    assert best("570.1")[0] is Rung.EXCLUSIVE
    assert "575" in best("570.1")[1]


def test_a_state_can_move_only_between_gpus_that_its_kernel_sees(tmp_path: Path) -> None:
    def rungs(**gateway: Any) -> set[Rung]:
        found = inventory(tmp_path, FakeNvml({"uuid": "GPU-1"}, {"uuid": "GPU-2"}), gateway=ElasticGateway(**gateway))
        return {gpu.rung for gpu in found.gpus()}

    assert rungs() == {Rung.SAME_GPU}
    assert rungs(visible_devices="all") == {Rung.ANYWHERE}


def test_partitions_are_leased_one_by_one_and_never_parked(tmp_path: Path) -> None:
    nvml = FakeNvml({"uuid": "GPU-1", "mig": 1, "partitions": [{"uuid": "MIG-1"}, {"uuid": "MIG-2"}]}, {"uuid": "GPU-2", "mig": 0})
    gpus = inventory(tmp_path, nvml).gpus()
    assert [(gpu.uuid, gpu.rung) for gpu in gpus] == [
        ("MIG-1", Rung.EXCLUSIVE),
        ("MIG-2", Rung.EXCLUSIVE),
        ("GPU-2", Rung.SAME_GPU),
    ]
    assert "MIG" in gpus[0].reason


def test_virtual_and_shared_gpus_are_never_parked(tmp_path: Path) -> None:
    gpus = inventory(tmp_path, FakeNvml({"uuid": "GPU-1", "virtualization": 2}, {"uuid": "GPU-2", "mps": [1]})).gpus()
    assert [gpu.rung for gpu in gpus] == [Rung.EXCLUSIVE, Rung.EXCLUSIVE]
    assert "vGPU" in gpus[0].reason
    assert "MPS" in gpus[1].reason


def test_a_gpu_that_fell_off_the_bus_hides_no_other(tmp_path: Path) -> None:
    assert [gpu.uuid for gpu in inventory(tmp_path, FakeNvml({"uuid": "GPU-1", "lost": True}, {"uuid": "GPU-2"})).gpus()] == ["GPU-2"]


def test_names_become_flavors() -> None:
    assert flavor("NVIDIA H200") == "h200"
    assert flavor("Tesla V100-SXM2-32GB") == "v100-sxm2-32gb"
    assert flavor("NVIDIA GeForce RTX 4090") == "rtx-4090"
    assert flavor("NVIDIA A100-SXM4-40GB MIG 1g.5gb") == "a100-sxm4-40gb-mig-1g.5gb"
    assert flavor("") == "gpu"


def test_two_brokers_never_claim_one_gpu(tmp_path: Path) -> None:
    first, second = (inventory(tmp_path, FakeNvml({"uuid": "GPU-1"}, {"uuid": "GPU-2"})) for _ in range(2))
    assert first.claim("ada").foreign == {}
    claim = second.claim("bob")
    assert [gpu.uuid for gpu in claim.gpus] == ["GPU-1", "GPU-2"]
    assert set(claim.foreign) == {"GPU-1", "GPU-2"}
    assert claim.foreign["GPU-1"].startswith("ada")
    first.unclaim()
    assert second.claim("bob").foreign == {}


def test_a_gpu_on_which_a_kernel_is_that_the_broker_can_not_see_is_not_claimed(tmp_path: Path) -> None:
    mine, others = (inventory(tmp_path, FakeNvml({"uuid": "GPU-1"}, {"uuid": "GPU-2"})) for _ in range(2))
    kernel = Possession(str(mine.lock_dir), "kernel x of bob")
    kernel.take(["GPU-1"])
    assert set(mine.claim("ada").foreign) == {"GPU-1"}
    assert mine.claim("ada").foreign["GPU-1"].startswith("kernel x of bob (process ")
    assert others.claim("bob", {"GPU-1"}).foreign.keys() == {"GPU-2"}, "who can see that kernel leases its GPU"
    others.unclaim()
    kernel.leave()
    assert mine.claim("ada").foreign == {}


def test_what_a_kernel_left_whose_supervisor_was_killed_is_ended_before_its_gpu_is_claimed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(gpus_module, "on_host", lambda: True)
    monkeypatch.setattr(gpus_module, "user_of", lambda pid: os.getuid())
    ended: list[str] = []
    nvml = FakeNvml({"uuid": "GPU-1", "pids": [78]}, {"uuid": "GPU-2"})
    mine = inventory(tmp_path, nvml, ended=ended)
    for uuid, cleared in (("GPU-1", False), ("GPU-2", True)):
        locks = GpuLocks(mine.lock_dir, kind=USE)
        locks.acquire(uuid, "kernel x of bob", "/run/x/magic.sock")
        locks.release(uuid, cleared)  # or just ends, as whoever is killed does
    claim = mine.claim("ada")
    assert set(claim.foreign) == {"GPU-1"} == set(claim.returns) and "process 78" in claim.foreign["GPU-1"]
    assert ended == ["/run/x/magic.sock"]
    nvml.devices[0]["pids"] = []
    assert mine.claim("ada").foreign == {} and mine.claim("ada").foreign == {}
    assert len(ended) == 2, "once it is empty nobody looks again"


def test_a_gpu_on_which_a_stranger_computes_is_not_claimed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gpus_module, "on_host", lambda: True)
    monkeypatch.setattr(gpus_module, "user_of", lambda pid: {77: os.getuid() + 1, 78: os.getuid()}.get(pid))
    nvml = FakeNvml({"uuid": "GPU-1", "pids": [77]}, {"uuid": "GPU-2", "pids": [78, 79]})
    mine = inventory(tmp_path, nvml)
    assert set(mine.claim("ada").foreign) == {"GPU-1"}
    assert "process 77" in mine.claim("ada").foreign["GPU-1"]
    nvml.devices[0]["pids"] = []
    assert mine.claim("ada").foreign == {}


def test_use_is_the_kernels_own_and_recent(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gpus_module, "on_host", lambda: True)
    now, me = time.time(), os.getpid()
    device: dict[str, Any] = {"uuid": "GPU-1"}
    found = inventory(tmp_path, FakeNvml(device))
    for samples, used in (
        ([(me, now, 50)], True),
        ([(me, now, 0)], False),
        ([(me, now - 100, 50)], False),
        ([(1, now, 50)], False),
        ([], False),
    ):
        device["samples"] = samples
        assert found.uses(me, ["GPU-1"], 5.0) is used, samples
    monkeypatch.setattr(gpus_module, "on_host", lambda: False)
    device["samples"] = [(999999, now, 50)]
    assert found.uses(me, ["GPU-1"], 5.0), "in a container the driver's process ids are not ours"


def test_simulated_gpus_are_never_asked_about_use(tmp_path: Path) -> None:
    assert not inventory(tmp_path, simulated=1).uses(1, ["GPU-SIM-0"], 5.0)
