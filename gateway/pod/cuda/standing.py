"""What can be done with a kernel's state: the driver's word on the GPUs here, and what this kernel's state was seen not to do.

Pure but for what it remembers. It must never promise what the driver has not told: until it has, a kernel keeps its GPU.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Optional

from ...protocol.errors import DeviceError
from ...protocol.ladder import Facts, rung, version
from ...protocol.model import Rung

HANGS_WHEN_KILLED = (595,)  # drivers from here on have hung machines whose restored processes were killed (NVIDIA/cuda-checkpoint#53)

Word = tuple[Rung, str]  # and why not a better one


class Standing:
    """Of one kernel, which leases ``count`` GPUs at a time."""

    def __init__(self, count: int) -> None:
        self.facts = Facts(count=count)
        self.missing: Optional[str] = None  # why nothing can be parked; "": something can; None: the driver has not answered yet
        self._flags: dict[str, dict[str, bool]] = {}  # by GPU, in the order of their numbers
        self._last: Optional[tuple[tuple[Any, ...], Word]] = None  # what was said last, and what of

    def told(self, answer: Mapping[str, Any]) -> None:
        """The driver has answered."""
        self.missing = answer["missing"] if answer["ok"] else answer["message"]
        if not self.missing:
            self._flags = answer["gpus"]
            self.facts = replace(self.facts, driver=answer["driver"], machine=answer["machine"], checkpoints=answer["checkpoints"])

    def word(self, gpus: Sequence[str], visible: Optional[frozenset[str]]) -> Word:
        """Of the worst of its ``gpus``, or before it has any, of the best there is. ``visible``: those that it sees, None: all."""
        of = self.missing, self.facts, tuple(gpus), visible
        if self._last is None or self._last[0] != of:
            self._last = of, self._weigh(gpus, visible)
        return self._last[1]

    def others(self, gpus: Sequence[str]) -> list[str]:
        """The other GPUs that can be seen here; [] where ``gpus`` are partitions, or all there are."""
        whole = [uuid for uuid, flags in self._flags.items() if not flags["mig"]]
        return [uuid for uuid in whole if uuid not in gpus] if set(gpus) <= set(whole) else []

    def others_could_park(self, gpus: Sequence[str]) -> bool:
        """What keeps it is its own, not its GPUs' driver's."""
        return bool(self._flags) and self._of(replace(self.facts, count=1, keeps=""), gpus)[0] is not Rung.EXCLUSIVE

    @property
    def hangs_when_killed(self) -> bool:
        """A process that was restored has to be checkpointed before it is killed."""
        return version(self.facts.driver) >= HANGS_WHEN_KILLED

    # what its state was seen not to do

    def failed(self, do: str, error: DeviceError) -> None:
        """To park or to resume."""
        if error.reason == "not_supported" and do == "park":
            self.facts = replace(self.facts, keeps=str(error).rstrip("."))
        elif error.reason == "not_moved":
            self.facts = replace(self.facts, stays=str(error).rstrip("."))

    def bound(self) -> None:
        """A process of it sees this GPU for good."""
        stays = "one of its processes has begun with CUDA on this GPU and holds no state that could move"
        self.facts = replace(self.facts, stays=stays)

    def forget(self) -> None:
        """The kernel has ended; the next one is a clean sheet."""
        self.facts = replace(self.facts, keeps="", stays="")

    # inside

    def _weigh(self, gpus: Sequence[str], visible: Optional[frozenset[str]]) -> Word:
        if self.missing is None or self.missing:
            return Rung.EXCLUSIVE, self.missing or "NVIDIA's driver has not answered yet"
        return self._of(replace(self.facts, masked=visible is not None and not visible >= self._flags.keys()), gpus)

    def _of(self, facts: Facts, gpus: Sequence[str]) -> Word:
        words = [rung(replace(facts, **flags)) for flags in self._flags.values()]
        known = {**dict(zip(self._flags, words)), **{str(number): word for number, word in enumerate(words)}}
        ours = [known.get(gpu) or rung(replace(facts, mig=gpu.startswith("MIG-"))) for gpu in gpus]
        return max(ours, key=_rank) if ours else min(words, key=_rank)


def _rank(word: Word) -> int:
    return list(Rung).index(word[0])
