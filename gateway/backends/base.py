"""What the rooms above ask of a place where kernels run.

Everything that differs between one machine and a cluster is behind these two classes. An implementation must never block the
event loop, and never decide who gets a GPU.
"""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterable, Mapping, Set
from dataclasses import dataclass, field
from typing import Any

from ..protocol.errors import ElasticError, LeaseError, cause
from ..protocol.model import GPU_IN_USE, Gpu, Spec
from . import notes
from .places import Places, user_name


class GpusTaken(LeaseError):
    """Others have ``gpus``, so that a grant can't be made true: the message says who, and is read after "held by"."""

    reason = GPU_IN_USE

    def __init__(self, message: str, gpus: tuple[str, ...]) -> None:
        super().__init__(message)
        self.gpus = gpus


@dataclass(frozen=True)
class LinkKeys:
    """What it takes to dial a link over the network: CURVE keys, as Z85 text."""

    server: str  # the supervisor's public key
    public: str  # ours
    secret: str = field(repr=False)


class Supervisor(ABC):
    """The supervisor of one kernel, as its backend found or started it."""

    kernel_id: str
    link_address: str  # ZMQ endpoint of the link
    link_curve: LinkKeys | None = None  # None: the endpoint is a socket of this machine, which file modes protect
    key: str  # HMAC key of the kernel's connection
    connection: dict[str, Any]  # transport, ip, five ports, signature_scheme, perhaps two curve keys; no HMAC key
    owner: str  # name of the owning gateway, "" where a process owns it
    user: str
    name: str  # kernelspec
    whose: Mapping[str, Any] | None = None  # what a supervisor that goes by another name still has to be told (IDENTITY)
    display: str
    metadata: dict[str, Any]  # what its owner gave with it (``Spec.metadata``)
    place: str  # what ``Backend.at`` finds it by, here and in another process of this backend
    node: str = "local"  # where its GPUs are
    resource: str = ""  # of what kind (``Gpu.resource``); "": any of its node
    # what is said of one that doesn't answer and of whose trouble nothing is known
    silence: str = "its supervisor lives and doesn't answer: is it stopped, or is the machine short of memory?"

    ending = False  # its owner had begun to end it, and was killed

    @property
    def whose_name(self) -> str:
        """The user who was named as it was started, "" where nobody was: ``user`` is then this Unix user, under whose name it is counted,
        and it belongs to no user of that name."""
        return self.user if self.metadata.get("named", self.user != user_name()) else ""  # an older gateway didn't note it

    @abstractmethod
    def alive(self) -> bool:
        """Whether it exists. Called from the event loop, often: it must answer from memory or in microseconds."""

    @abstractmethod
    async def end(self, grace: float) -> None:
        """End it and its kernel, whatever it takes: asked first, killed ``grace`` seconds after. Called by the provisioner when a kernel
        is shut down or could not start. No error where it has ended already."""

    async def clear(self) -> None:  # noqa: B027
        """It has died: end what its kernel has left running. Called by the broker before the kernel's GPU is somebody else's."""

    def trouble(self) -> str:
        """Why it may not answer although it exists, for people; "" where nothing is known. Called while it doesn't answer."""
        return ""

    def obituary(self) -> str:
        """Why it is gone, for people. Called once its line is broken and it isn't alive."""
        return "The kernel's supervisor has ended, and the kernel with it."

    @abstractmethod
    def last_words(self) -> str:
        """The end of what kernel and supervisor have written, "" where nothing. Called when a start has failed."""


@dataclass(frozen=True)
class Claim:
    """All GPUs of a place, and of those that others lease who has them (by UUID, for people)."""

    gpus: tuple[Gpu, ...] = ()
    foreign: Mapping[str, str] = field(default_factory=dict)
    returns: Collection[str] = ()  # those of the foreign that come back by and by: whoever needs one may wait


@dataclass(frozen=True)
class Foreign:
    """Somebody who is no kernel of ours and waits for ``count`` GPUs of one kind, on any of ``nodes``."""

    name: str
    count: int
    nodes: tuple[str, ...]
    resource: str = ""


@dataclass(frozen=True)
class Warm:
    """Kernels of one kind that are kept started: how many wait just now, how many starts have claimed one, and how many found none."""

    ready: int
    hits: int
    misses: int


class Backend(ABC):
    """A place where supervisors run. ``places``: where processes of this machine meet, None where there are none to meet.

    ``remote``: kernels have files, programs and an environment of their own. ``direct``: a GPU that the book has granted may be used at
    once, with no ``acquire`` first.
    """

    places: Places | None = None
    remote = False
    direct = True
    waiting_outside: tuple[Foreign, ...] = ()  # those who are no kernels of ours and wait for what is ours to lease, as they are now
    on_foreign: Callable[[tuple[Foreign, ...]], None] | None = None  # set by the broker; told of all of them at each change
    # set by the broker: of these nodes the one where a kernel with so many GPUs of one kind starts best, given who else is starting for
    # such (node, GPUs); None: any
    best_node: Callable[[int, Collection[str], Iterable[tuple[str, int]], str], str | None] | None = None
    drained: Set[str] = frozenset()  # nodes on which no kernel is started
    on_freed: Callable[[], None] | None = None  # set by the broker; called when a GPU that others had is to be had
    on_taken: Callable[[tuple[str, ...]], None] | None = None  # set by the broker; called with GPUs that others take back
    jobs: Any = None  # how the ranks of bursts run where kernels are no processes of this machine; None: not at all
    lock_dir: str | None = None  # where this machine's supervisors lock the GPUs that their kernels are on

    async def turn(self, spec: Spec, told: Callable[[str], None]) -> None:  # noqa: B027
        """Wait until it may be started, where there is only so much room to start in. Called by the provisioner in a gateway before
        ``start``; its launch timeout counts from here on. ``told`` as there, "": it waits no more. A gateway that is killed meanwhile
        finds it among its ``unfinished``. Raises ``LaunchError``."""

    def withdraw(self, kernel_id: str) -> None:  # noqa: B027
        """It won't be started after all. No error where it has been, or isn't known."""

    def end_begins(self, kernel_id: str) -> None:  # noqa: B027
        """Note that it is to be ended: should we be killed before it is, the next gateway finds its supervisor ``ending``. Called by a
        gateway before anything else of a kernel's end; it must take no longer than a file does. No error where that is impossible."""

    @abstractmethod
    async def start(self, spec: Spec, told: Callable[[str], None] = lambda text: None) -> Supervisor:
        """Start a supervisor; returns when it listens (its kernel may still be starting). Called by the provisioner for each new kernel.
        ``told`` is called with what keeps it waiting, for people.

        Raises ``LaunchError`` with the supervisor's last words, ``LaunchTimeout``. A cancelled start leaves nothing behind.
        """

    @abstractmethod
    async def find(self) -> list[Supervisor]:
        """All supervisors that live here, whoever owns them; what dead ones left is cleared away. Called by the broker at its start."""

    @abstractmethod
    async def at(self, place: str) -> Supervisor:
        """The living supervisor at ``place``. Called by the broker when another process registers one. Raises ``SupervisorLost``."""

    @abstractmethod
    async def generation(self) -> int:
        """A number larger than any given before. Called by the broker once at its start, before its first order."""

    @abstractmethod
    async def claim(self, who: str, ours: Collection[str] = (), known: Set[str] = frozenset()) -> Claim:
        """Take every GPU that is free to lease and look at those we have. Called by the broker at its start and then every few
        seconds: what others have given back is taken, what has gone is no longer in it. ``who`` is shown to those who find it taken;
        ``ours`` are GPUs on which kernels are that the broker leases to: on any other, a living kernel makes it somebody else's;
        ``known`` are all kernels that it can speak with."""

    async def acquire(self, supervisor: Supervisor, gpus: tuple[str, ...]) -> list[str]:
        """Make a grant true where the GPUs are accounted for; what CUDA knows them as. Called by the broker before it tells the kernel.
        Raises ``GpusTaken`` where others have some of them."""
        return list(gpus)

    def settle(  # noqa: B027
        self, leases: Mapping[str, tuple[str, ...]], known: Set[str], waiting: Set[str], homes: Mapping[str, tuple[str, ...]]
    ) -> None:  # fmt: skip
        """``leases``: the GPUs that each kernel has now; ``known`` as in ``claim``; ``waiting``: nodes on which kernels wait for one;
        ``homes``: GPUs to which the state of parked kernels must come back. Called by the broker after each decision; what nobody has
        or must have again is given back."""

    def drain(self, nodes: Set[str]) -> None:
        """From now on no kernel is started on exactly these nodes. Called by the broker for an administrator; where ``places`` are, it
        outlives the broker. Raises ``ElasticError`` where that can't be kept."""
        self.drained = frozenset(nodes)

    async def recall(self, name: str) -> str:
        """The text that was kept under this name, perhaps by an earlier broker; "" where there is none. Called by the broker at its start.
        Raises ``ElasticError``."""
        if self.places is None:
            return ""
        try:
            return await asyncio.to_thread(notes.read, self.places.notes / name)
        except (OSError, ValueError) as exc:
            raise ElasticError(f"{self.places.notes / name} can't be read: {exc}.", reason="not_kept") from None

    async def keep(self, name: str, text: str) -> None:
        """Keep a small text for the brokers to come. Called by the broker when it has changed. Raises ``ElasticError``."""
        if self.places is None:
            return
        try:
            await asyncio.to_thread(notes.write, self.places.notes / name, text)
        except OSError as exc:
            raise ElasticError(
                f"{self.places.notes / name} can't be written: {cause(exc, self.places.notes)}.", reason="not_kept"
            ) from None

    async def tidy(self) -> None:  # noqa: B027
        """Clear away what a broker that was killed has left half made. Called by the broker once at its start."""

    async def unfinished(self) -> list[Spec]:
        """Our own kernels whose start the gateway before us had begun: ``start`` with the same id goes on with it. Called once, after
        ``find``."""
        return []

    def keep_warm(self, specs: Iterable[Spec]) -> None:  # noqa: B027
        """Keep kernels started that ``start`` gives to whoever comes: ``specs`` are what each kernelspec is started with. Called once, by a
        gateway."""

    def warm(self) -> Mapping[str, Warm]:
        """The kernels that are kept so, by profile."""
        return {}

    async def end_warm(self) -> None:  # noqa: B027
        """Keep none any more. Called as a gateway ends with all its kernels."""

    async def close(self) -> None:  # noqa: B027
        """Hang up. Called by the broker as it stops."""

    @abstractmethod
    def unclaim(self) -> None:
        """Give all GPUs back to other brokers. Called by the broker as it stops."""

    async def uses(self, kernel_pid: int, gpus: Iterable[str], seconds: float) -> bool:
        """Whether the kernel or what it started has computed on one of ``gpus`` within the last ``seconds``, as the driver tells it;
        False where it can't tell. Called by the broker for kernels that hold a GPU while no cell runs, not where ``remote``: there it
        asks the kernel's supervisor."""
        return False
