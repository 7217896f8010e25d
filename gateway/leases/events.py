"""What the lease book is told, and what it decides. Plain values; nothing here acts.

``now`` is passed beside each event (seconds on the broker's clock). Every order (Grant, Park, Deny) carries ``order``, a counter
that grows with each; answers name the order they answer, and an answer to any other than the newest of that kernel is ignored.
When an adopted kernel is done with an earlier broker's order, tell KernelSeen again (or answer to number 0).

From one new state of a supervisor the broker derives, in this row and as one ``Book.handle_all``: KernelSeen or Restarted; the
answer to the newest order; Executing, Wanted or Unwanted, and RungTold. The last four are levels: told again they change nothing,
so tell them with every state (a state may leap over a moment in which they were different). At adoption: GPUs first, then all kernels
in one ``handle_all``, so that nobody is granted what a kernel not yet told of holds.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from ..protocol.model import Gpu, Phase, Rung


@dataclass(frozen=True)
class GpuSeen:
    gpu: Gpu


@dataclass(frozen=True)
class GpuLost:
    """The device is gone or leased to a foreign broker; who holds it keeps it until it ends, and nobody gets it after.

    ``returns``: others have it for a while, so that whoever needs it may wait for it.
    """

    uuid: str
    returns: bool = False


@dataclass(frozen=True)
class KernelSeen:
    """A kernel is born, or adopted in whatever state its supervisor says it is in (the supervisor is believed).

    For a kernel that is known already it replaces what was known. ``order``: the newest order of this broker that the
    supervisor had taken by then (answered, or shown by RESUMING or PARKING), so that a Grant still on its way keeps its GPUs;
    None: no order is on its way (a new link).
    """

    kernel_id: str
    user: str
    count: int = 1  # GPUs of one lease; 0: never asks
    node: str = "local"
    name: str = ""  # kernelspec
    display: str = ""
    phase: Phase = Phase.COLD
    gpus: tuple[str, ...] = ()
    home: tuple[str, ...] = ()
    wanted: bool = False
    executing: bool = False
    phase_for: float = 0.0
    idle_for: float | None = None
    hold_for: float = 0.0
    parked_bytes: int = 0
    order: int | None = None
    rung: Rung = Rung.ANYWHERE  # as in RungTold
    rung_reason: str = ""
    silence: str = ""  # as in Silence
    resource: str = ""  # it leases GPUs of this kind alone (``Gpu.resource``); "": of any
    outside: bool = False  # no kernel, but somebody who takes what is free by itself: quotas and limits of waits aren't for it


@dataclass(frozen=True)
class KernelGone:
    kernel_id: str


@dataclass(frozen=True)
class Silence:
    """The kernel's supervisor lives and doesn't answer, ``why`` as people read it, or ("") it answers again. What it has stays its own,
    and nobody is told to wait for it or asked to make it give way."""

    kernel_id: str
    why: str


@dataclass(frozen=True)
class Wanted:
    """Cells are held at this kernel's gate."""

    kernel_id: str


@dataclass(frozen=True)
class Unwanted:
    """No cell is held: interrupted, or ended by a Deny, or gone through to the kernel."""

    kernel_id: str


@dataclass(frozen=True)
class Executing:
    """Something that may use the GPU began (True) or ended (False) in a HOLDING kernel."""

    kernel_id: str
    running: bool


@dataclass(frozen=True)
class RungTold:
    """What can be done with this kernel's state, as its process has made it: it counts where its GPUs can do more.

    ``ANYWHERE`` also where nothing is known. Told anew after Restarted.
    """

    kernel_id: str
    rung: Rung
    reason: str = ""  # why not more


@dataclass(frozen=True)
class Resumed:
    kernel_id: str
    order: int


@dataclass(frozen=True)
class ResumeFailed:
    """The grant could not be used. ``fatal``: the CUDA state is lost, the kernel is COLD again; else it stays as it was. Its cells have
    been ended, but with ``GPU_IN_USE``: tell GpuLost before, and it waits on in its old place."""

    kernel_id: str
    order: int
    reason: str = ""
    fatal: bool = False


@dataclass(frozen=True)
class Parked:
    kernel_id: str
    order: int
    bytes: int = 0


@dataclass(frozen=True)
class ParkRefused:
    """The supervisor keeps the GPU: a cell began meanwhile ("executing"), or the state doesn't fit into host memory, ..."""

    kernel_id: str
    order: int
    reason: str = ""


@dataclass(frozen=True)
class Denied:
    """A Deny was obeyed: the cells held until then are ended. Wanted, told after it, means other cells."""

    kernel_id: str
    order: int


@dataclass(frozen=True)
class Restarted:
    """The kernel process ended or was replaced: what it held on the GPU is gone, its lease is given back, it is COLD.

    ``order`` as in KernelSeen. Where the state says more than COLD (a Grant was obeyed since), tell KernelSeen instead.
    """

    kernel_id: str
    order: int | None = None


@dataclass(frozen=True)
class ReleaseAsked:
    kernel_id: str


@dataclass(frozen=True)
class HoldAsked:
    """Keep the GPU for so many seconds even if idle; 0 ends an earlier hold."""

    kernel_id: str
    seconds: float


@dataclass(frozen=True)
class NodeDrained:
    """An administrator wants to take this node down: its idle kernels give their GPUs back and nobody gets one there, until it is told
    with ``on`` False."""

    node: str
    on: bool


@dataclass(frozen=True)
class Elsewhere:
    """``holder`` (no kernel) has so many GPUs for ``user`` that no lease of this book is for: pods of a cluster, whose scheduler has given
    them. They count in the user's quotas, but for those of a kernelspec or flavor, and in the fair order.

    ``gpus``: what its pods have or ask for; ``running``: of these, what pods have that run, on ``nodes``: that is its GPU time."""

    holder: str
    user: str
    gpus: int
    running: int = 0
    nodes: tuple[str, ...] = ()


@dataclass(frozen=True)
class Tick:
    """Only time has passed."""


Event = (
    GpuSeen | GpuLost | KernelSeen | KernelGone | Silence | Wanted | Unwanted | Executing | RungTold | Resumed | ResumeFailed
    | Parked | ParkRefused | Denied | Restarted | ReleaseAsked | HoldAsked | NodeDrained | Elsewhere | Tick
)  # fmt: skip


@dataclass(frozen=True)
class Grant:
    """Let the kernel's cells go: its state is to be resumed onto exactly these GPUs. None: its node has no GPU to lease."""

    kernel_id: str
    order: int
    gpus: tuple[str, ...]


@dataclass(frozen=True)
class Park:
    """Take the kernel's state off its GPUs. ``why``: "idle", "reclaimed", "asked", "max_hold", "drained"."""

    kernel_id: str
    order: int
    why: str


@dataclass(frozen=True)
class Deny:
    """End the wait of this kernel's held cells with an error."""

    kernel_id: str
    order: int
    reason: str
    message: str


@dataclass(frozen=True)
class Place:
    """What a waiting kernel's notebook is shown; sent whenever it changes. Not an order: it may be lost."""

    kernel_id: str
    position: int  # 1: next on its node
    of: int  # waiting on its node
    holders: tuple[str, ...] = field(default=())  # who has what it waits for, as people read it
    expected: float | None = None  # seconds, None: can't be known
    quota: str = ""  # what its user holds too much of, for people; "": it waits for others


Command = Grant | Park | Deny | Place
