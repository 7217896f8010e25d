"""The GPUs of this machine: what NVIDIA's driver finds, or simulated ones, and who has them.

It blocks for milliseconds, on a bad day for seconds, so it must be called from a thread. It must never touch CUDA: NVML alone.
"""

from __future__ import annotations

import os
import platform
import re
import threading
import time
from collections.abc import Callable, Collection, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

from ..protocol.ladder import Facts, rung
from ..protocol.locks import USE, GpuLocks, LockFileError, default_folder
from ..protocol.model import Gpu, Rung
from ..settings import ElasticGateway, LocalBackend, SimulatedGpu
from .base import Claim
from .places import Places
from .processes import descendants, user_of


class Inventory:
    """All GPUs of the machine, and the locks of those that are ours. ``end_left(mark)`` ends what a killed supervisor's kernel has left."""

    def __init__(
        self, gateway: ElasticGateway, local: LocalBackend, simulated: SimulatedGpu, places: Places, end_left: Callable[[str], None]
    ) -> None:  # fmt: skip
        self._end_left = end_left
        self._count = gateway.simulated_gpus
        self._simulated = simulated
        real = self._count is None
        self.lock_dir = Path(local.lock_dir) if local.lock_dir else default_folder() if real else places.locks
        shared = self.lock_dir != places.locks
        self._locks, self._uses = GpuLocks(self.lock_dir, shared), GpuLocks(self.lock_dir, shared, kind=USE)
        self.driver = Nvml(masked=gateway.visible_devices == "leased") if self._count is None else None
        self._guard = threading.Lock()

    def claim(self, who: str, ours: Collection[str] = ()) -> Claim:
        """Lock what is free; what is ours stays ours. ``ours``: GPUs on which kernels are that we lease to."""
        with self._guard:
            gpus, foreign, returns = self.gpus(), {}, set()
            for gpu in gpus:
                try:
                    holder = self._locks.acquire(gpu.uuid, who) or self._strangers(gpu.uuid)
                    kernel = "" if holder or gpu.uuid in ours else self._uses.holder(gpu.uuid) or self._left(gpu.uuid, who)
                except LockFileError as exc:  # somebody may have planted it: the other GPUs are none the worse
                    holder, kernel = f"nobody ({exc})", ""
                if kernel:  # the lock is for whoever can reach that kernel
                    self._locks.release(gpu.uuid)
                    returns.add(gpu.uuid)
                if holder or kernel:
                    foreign[gpu.uuid] = holder or kernel
            return Claim(tuple(gpus), foreign, returns)

    def unclaim(self) -> None:
        with self._guard:
            self._locks.release_all()

    def gpus(self) -> list[Gpu]:
        """All of them, whoever leases them."""
        if self.driver is not None:
            return self.driver.gpus()
        like = Gpu("", flavor="simulated", memory_bytes=self._simulated.memory_bytes, simulated=True, rung=Rung(self._simulated.rung))
        return [replace(like, uuid=f"GPU-SIM-{n}", reason="simulated") for n in range(self._count or 0)]

    def uses(self, kernel_pid: int, uuids: list[str], seconds: float) -> bool:
        """Whether a kernel has computed on one of its GPUs lately. Where we can't see who (the driver speaks of the host's process
        ids, and we are in a container) everybody counts: the lease is exclusive."""
        if self.driver is None:
            return False
        pids = set().union(*(self.driver.users_of(uuid, seconds) for uuid in uuids))
        if not pids or not on_host():
            return bool(pids)
        return not pids.isdisjoint(pid for pid, _ in descendants(kernel_pid))

    def _left(self, uuid: str, who: str) -> str:
        """Where a supervisor was killed while its kernel was on the GPU: end what is left there, while nobody can take it. Who is there
        all the same, for people."""
        mark = self._uses.left(uuid)
        taken = self._uses.acquire(uuid, who, mark) if mark else ""
        if not mark or taken:
            return taken
        self._end_left(mark)
        pids = sorted(self.driver.holders(uuid)) if self.driver is not None and on_host() else []
        self._uses.release(uuid, cleared=not pids)
        return f"process {pids[0]}, left by a kernel whose supervisor was killed" if pids else ""

    def _strangers(self, uuid: str) -> str:
        """Who else computes on a GPU whose lock was free: another Unix user's process, "" where none can be seen."""
        if self.driver is None or not on_host():
            return ""
        for pid in self.driver.holders(uuid):
            user = user_of(pid)
            if user not in (None, os.getuid()):
                self._locks.release(uuid)
                return f"process {pid} of the user with number {user}, outside any lease"
        return ""


def on_host() -> bool:
    """Whether process ids here are the host's, as the driver's are: only there is the kernel's own thread daemon to be seen."""
    try:
        return Path("/proc/2/comm").read_text().strip() == "kthreadd"
    except OSError:
        return False


class Nvml:
    """NVIDIA's management library; where there is none, there are no GPUs and ``missing`` says why. ``masked``: kernels see none but
    the GPUs that they have leased."""

    def __init__(self, masked: bool = False) -> None:
        self.missing = ""
        self._masked = masked
        self._nvml: Any = None

    def gpus(self) -> list[Gpu]:
        nvml = self._open()
        if nvml is None:
            return []
        version = _text(nvml.nvmlSystemGetDriverVersion())
        found: list[Gpu] = []
        count = nvml.nvmlDeviceGetCount()
        for index in range(count):
            try:
                handle = nvml.nvmlDeviceGetHandleByIndex(index)
                parts = list(self._partitions(handle))
                best, reason = self._rung(handle, version, bool(parts), self._masked and count > 1)
                found += [self._gpu(each, best, reason) for each in parts or [handle]]
            except nvml.NVMLError:  # fallen off the bus: it is not there
                continue
        return found

    def users_of(self, uuid: str, seconds: float) -> set[int]:
        """Process ids (the host's) that kept the GPU's cores busy within the last ``seconds``; empty where the driver doesn't tell."""
        nvml = self._open()
        if nvml is None:
            return set()
        since = int((time.time() - seconds) * 1e6)
        try:
            samples = nvml.nvmlDeviceGetProcessUtilization(nvml.nvmlDeviceGetHandleByUUID(uuid), since)
        except nvml.NVMLError:  # no sample since then, or a partition, for which it isn't known
            return set()
        return {sample.pid for sample in samples if sample.timeStamp >= since and (sample.smUtil or sample.encUtil or sample.decUtil)}

    def holders(self, uuid: str) -> set[int]:
        """Process ids (the host's) that have CUDA state on the GPU."""
        nvml = self._open()
        if nvml is None:
            return set()
        try:
            return {process.pid for process in nvml.nvmlDeviceGetComputeRunningProcesses(nvml.nvmlDeviceGetHandleByUUID(uuid))}
        except nvml.NVMLError:
            return set()

    def _open(self) -> Any:
        if self._nvml is None:
            try:
                import pynvml

                pynvml.nvmlInit()
                self._nvml = pynvml
                self.missing = ""
            except ImportError:
                self.missing = "the package nvidia-ml-py is not installed"
            except Exception as exc:
                self.missing = f"no NVIDIA driver answers: {exc}"
        return self._nvml

    def _gpu(self, handle: Any, best: Rung, reason: str) -> Gpu:
        nvml = self._nvml
        return Gpu(
            uuid=_text(nvml.nvmlDeviceGetUUID(handle)),
            flavor=flavor(_text(nvml.nvmlDeviceGetName(handle))),
            memory_bytes=int(nvml.nvmlDeviceGetMemoryInfo(handle).total),
            rung=best,
            reason=reason,
        )

    def _partitions(self, handle: Any) -> Iterator[Any]:
        nvml = self._nvml
        mode = _or(lambda: nvml.nvmlDeviceGetMigMode(handle)[0], 0)
        if mode:
            for index in range(_or(lambda: nvml.nvmlDeviceGetMaxMigDeviceCount(handle), 0)):
                partition = _or(lambda i=index: nvml.nvmlDeviceGetMigDeviceHandleByIndex(handle, i), None)
                if partition is not None:
                    yield partition

    def _rung(self, handle: Any, version: str, partitioned: bool, masked: bool) -> tuple[Rung, str]:
        nvml = self._nvml
        return rung(
            Facts(
                driver=version,
                machine=platform.machine(),
                mig=partitioned,
                vgpu=_or(lambda: nvml.nvmlDeviceGetVirtualizationMode(handle), 0) == nvml.NVML_GPU_VIRTUALIZATION_MODE_VGPU,
                mps=bool(_or(lambda: nvml.nvmlDeviceGetMPSComputeRunningProcesses(handle), [])),
                masked=masked,
            )
        )


def flavor(name: str) -> str:
    """A short name for a kind of GPU: "NVIDIA A100-SXM4-80GB" is "a100-sxm4-80gb"."""
    words = re.sub(r"[^a-z0-9.]+", "-", name.lower()).strip("-").split("-")
    kept = [word for word in words if word not in ("nvidia", "tesla", "geforce", "graphics", "device")]
    return "-".join(kept) or "gpu"


def _text(value: Any) -> str:
    return value.decode() if isinstance(value, bytes) else str(value)


def _or(ask: Callable[[], Any], otherwise: Any) -> Any:
    """The driver's answer, or ``otherwise`` where it doesn't know this question for this device."""
    try:
        return ask()
    except Exception:
        return otherwise
