"""What the book knows of one kernel. Plain fields; the book alone writes them, and nothing here decides."""

from __future__ import annotations

import math
from dataclasses import dataclass

from ..protocol.model import Phase, Rung
from .events import Place

WITH_GPUS = (Phase.RESUMING, Phase.HOLDING, Phase.PARKING)


@dataclass(slots=True, eq=False)
class KernelRecord:
    """One kernel. Times are seconds on the broker's clock; ``-inf`` is a moment that has always passed."""

    kernel_id: str
    user: str
    count: int  # GPUs of one lease
    node: str
    name: str
    display: str
    seq: int  # order of asking, the last tie-break
    since: float  # in this phase
    phase: Phase = Phase.COLD
    gpus: tuple[str, ...] = ()  # held, or being resumed to, or being left
    granted: bool = True  # the GPUs were granted by this book (else a supervisor said so, and is believed)
    order: int = 0  # the newest one sent
    # the state underneath, while it is off the GPU
    parked: bool = False
    home: tuple[str, ...] = ()  # where it came from
    parked_bytes: int = 0
    # what the supervisor says
    wanted: bool = False
    wanted_since: float = -math.inf
    executing: bool = False
    idle_since: float | None = None  # None while busy
    rung: Rung = Rung.ANYWHERE  # what can be done with its state, where its GPUs can do as much
    rung_reason: str = ""  # and why not more
    # what bounds the lease
    got_at: float = -math.inf  # when the GPUs became usable
    hold_until: float = -math.inf  # the user's wish
    release_asked: bool = False
    refused_until: float = -math.inf  # parking was refused: no new attempt before
    refused: str = ""  # and why
    leaving: str = ""  # why its GPUs are about to be others'; "": they are not, or nobody has said why
    fixed: bool = False  # can't be parked: its state is exclusive, or a GPU of its is exclusive, lost or unknown
    contested: bool = False  # another kernel has the better claim to one of its GPUs
    silence: str = ""  # why its supervisor doesn't answer, while it doesn't: nothing can be asked of it
    denied: bool = False  # a Deny is on its way: the cells held now don't count
    # what its notebook was told last
    place: Place | None = None
    place_at: float = -math.inf
    # whose GPUs it may have
    resource: str = ""  # of this kind alone; "": of any
    outside: bool = False  # it is no kernel, and takes what is free by itself

    @property
    def busy(self) -> bool:
        """Cells run, or are just going through the gate that a grant opened."""
        return self.executing or self.wanted

    @property
    def label(self) -> str:
        """The kernel as people read it in another notebook's queue line."""
        what = self.display or self.name or self.kernel_id[:8]
        return f"{self.user} ({what})" if self.user else what
