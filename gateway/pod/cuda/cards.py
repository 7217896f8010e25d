"""What lies on the GPUs, by NVIDIA's management library: room before a restore, emptiness after a checkpoint, and where a state went.

It must never take silence for emptiness: where the library doesn't tell whose memory it is, all of it counts.
"""

from __future__ import annotations

import time
from collections.abc import Collection, Mapping, Sequence
from typing import Callable

from ...protocol.errors import DeviceError
from ..messages import size
from .nvml import NOT_AVAILABLE, Nvml

MARGIN, SLACK = 1.05, 512 << 20  # a restore needs the state's size times one, plus the other
RESIDUE = 256 << 20  # bytes that may stay on a GPU without being anybody's state
EMPTY_SECONDS = 2.0  # until the driver's accounting shows what has left

Memory = dict[str, int]  # GPU UUID -> bytes


class Cards:
    def __init__(
        self, nvml: Nvml, pause: Callable[[float], None] = time.sleep, clock: Callable[[], float] = time.monotonic
    ) -> None:  # fmt: skip
        self._nvml, self._pause, self._clock = nvml, pause, clock

    def used(self, gpus: Collection[str]) -> Memory:
        return {uuid: self._nvml.memory(uuid)[1] for uuid in gpus}

    def room(self, uuid: str) -> int:
        """Bytes that are free."""
        total, used = self._nvml.memory(uuid)
        return total - used

    def capacity(self, uuid: str) -> int:
        return self._nvml.memory(uuid)[0]

    def told(self, pids: Collection[int], gpus: Collection[str]) -> Memory:
        """What the library says that these processes use; 0 where it doesn't know them by these ids, or doesn't say."""
        return {
            uuid: sum(size for pid, size in self._nvml.processes(uuid).items() if pid in pids and size != NOT_AVAILABLE) for uuid in gpus
        }

    def check_alone(self, gpus: Collection[str]) -> None:
        """Raises ``DeviceError`` where processes have come to share a GPU through MPS."""
        for uuid in gpus:
            if self._nvml.mps(uuid):
                raise DeviceError(
                    f"GPU {uuid} is shared through MPS, whose clients can't be checkpointed: the kernel keeps it.", reason="not_supported"
                )

    def lists(self, pids: Collection[int], gpus: Collection[str]) -> bool:
        """Whether the library speaks of these processes by the ids that we know; in a container it doesn't."""
        return bool(pids) and set(pids) <= {pid for uuid in gpus for pid in self._nvml.processes(uuid)}

    def empty(self, gpus: Collection[str], floor: Mapping[str, int], family: Callable[[], set[int]], listed: bool) -> Memory:
        """Wait until nothing of the kernel's is there; ``listed``: the library tells whose memory it is. Returns what is used then.

        Raises ``DeviceError`` where something stays.
        """
        end = self._clock() + EMPTY_SECONDS
        while True:
            used = self.used(gpus)
            left = {uuid: now - floor.get(uuid, 0) for uuid, now in used.items() if now > floor.get(uuid, 0) + RESIDUE}
            if left and listed:
                ours = family()
                left = {uuid: amount for uuid, amount in left.items() if ours & set(self._nvml.processes(uuid))}
            if not left:
                return used
            if self._clock() > end:
                what = ", ".join(f"{size(amount)} on {uuid}" for uuid, amount in left.items())
                raise DeviceError(
                    f"After parking, {what} were still in use, by a process that can't be parked: the kernel keeps its GPU. End what was"
                    " started outside of it.",
                    reason="still_in_use",
                )
            self._pause(0.02)

    def landed(self, pids: set[int], moves: Mapping[str, str], sizes: Mapping[str, int], floor: Mapping[str, int]) -> None:
        """Whether the state went where the map said. Raises ``DeviceError``: a driver may accept a map and ignore it."""
        for old, new in moves.items():
            if old == new or pids & set(self._nvml.processes(new)):
                continue
            came = self._nvml.memory(new)[1] - floor.get(new, 0)
            if pids & set(self._nvml.processes(old)) or came < sizes.get(old, 0) * 0.8 - (64 << 20):
                raise DeviceError(
                    f"The driver accepted to resume the kernel on GPU {new} and did not: it stays parked, and resumes on {old} alone.",
                    reason="not_moved",
                )

    def moves(self, home: Sequence[str], gpus: Sequence[str]) -> list[tuple[str, str]]:
        """(old, new) of every GPU here, as the driver wants it: each of ``home`` to its pair, the rest where they were or into the
        places that were left. [] where nothing moves: then the driver's plain way is the safer one."""
        pairs = dict(zip(home, gpus))
        if all(old == new for old, new in pairs.items()):
            return []
        vacant = [uuid for uuid in home if uuid not in gpus]
        for uuid in self._nvml.uuids():
            if uuid not in pairs:
                pairs[uuid] = vacant.pop() if uuid in gpus else uuid
        return list(pairs.items())

    def persistent(self) -> bool:
        """Whether the driver stays loaded without users."""
        return all(self._nvml.persistent(uuid) for uuid in self._nvml.uuids())


def needs(state: int) -> int:
    """Bytes that have to be free before a state of so many bytes may be restored."""
    return int(state * MARGIN) + SLACK
