"""What the rooms above ask of a place where kernels run.

Everything that differs between one machine and a cluster is behind these two classes. An implementation must never block the
event loop, and never decide who gets a GPU.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from ..protocol.model import Gpu, Spec
from .places import Places


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
    display: str
    metadata: dict[str, Any]  # what its owner gave with it (``Spec.metadata``)
    place: str  # what ``Backend.at`` finds it by, here and in another process of this backend

    @abstractmethod
    def alive(self) -> bool:
        """Whether it exists. Called from the event loop, often: it must answer from memory or in microseconds."""

    @abstractmethod
    async def end(self, grace: float) -> None:
        """End it and its kernel, whatever it takes: asked first, killed ``grace`` seconds after. Called by the provisioner when a kernel
        is shut down or could not start. No error where it has ended already."""

    @abstractmethod
    def last_words(self) -> str:
        """The end of what kernel and supervisor have written, "" where nothing. Called when a start has failed."""


@dataclass(frozen=True)
class Claim:
    """All GPUs of a place, and of those that others lease who has them (by UUID, for people)."""

    gpus: tuple[Gpu, ...] = ()
    foreign: Mapping[str, str] = field(default_factory=dict)


class Backend(ABC):
    """A place where supervisors run. ``places``: where processes of this machine meet, None where there are none to meet."""

    places: Places | None = None
    lock_dir: str | None = None  # where this machine's supervisors lock the GPUs that their kernels are on

    @abstractmethod
    async def start(self, spec: Spec) -> Supervisor:
        """Start a supervisor; returns when it listens (its kernel may still be starting). Called by the provisioner for each new kernel.

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
    async def claim(self, who: str, ours: Collection[str] = ()) -> Claim:
        """Take every GPU that is free to lease and look at those we have. Called by the broker at its start and then every few
        seconds: what others have given back is taken, what has gone is no longer in it. ``who`` is shown to those who find it taken;
        ``ours`` are GPUs on which kernels are that the broker leases to: on any other, a living kernel makes it somebody else's."""

    @abstractmethod
    def unclaim(self) -> None:
        """Give all GPUs back to other brokers. Called by the broker as it stops."""

    @abstractmethod
    async def uses(self, kernel_pid: int, gpus: Iterable[str], seconds: float) -> bool:
        """Whether the kernel or what it started has computed on one of ``gpus`` within the last ``seconds``, as the driver tells it;
        False where it can't tell. Called by the broker for kernels that hold a GPU while no cell runs."""
