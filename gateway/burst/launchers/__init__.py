"""How the workers of a burst are started and ended: a launcher each for one machine and for a cluster."""

from __future__ import annotations

from typing import Any, Protocol

from ...backends.base import Supervisor
from ..record import Record


class Launcher(Protocol):
    """``elastic``: the number of workers may change. ``leases``: their GPUs are leased before they are launched."""

    elastic: bool
    leases: bool

    def prepare(self, record: Record, supervisor: Supervisor) -> None:
        """``supervisor``: of the kernel that asks. Called once, before anything of it is kept. Raises ``ElasticError``."""

    def usable(self, supervisor: Supervisor, gpus: int) -> int:
        """Of so many GPUs that there are, those that workers of that kernel can have."""

    def access(self, record: Record) -> dict[str, Any]:
        """How its kernel reaches its folder: nobody else may be told."""

    def launch(self, record: Record) -> None:
        """Returns at once; what becomes of it stands in the journal. Raises ``OSError``, ``ElasticError``."""

    def order(self, record: Record, why: str) -> None:
        """Tell what runs it of the workers that it is to have now. Raises ``OSError``, ``ElasticError``."""

    def alive(self, record: Record) -> bool:
        """Whether what runs it is there, or to be expected."""

    def asked_still(self, record: Record) -> bool:
        """Whether the kernel process that asked for it lives. Asked only where nothing else looks at that."""

    def cancel(self, record: Record) -> None:
        """End its workers. No error where they have ended."""

    def look(self, record: Record) -> None:
        """Whatever is due for one that runs. Called every second."""

    def ended(self, record: Record) -> None:
        """It is over: nothing of it is to be left but its folder."""

    def preview(self, record: Record, supervisor: Supervisor) -> list[dict[str, Any]]:
        """What it would be made of in a cluster; [] where there is none. Raises as ``prepare``."""

    def manifests(self, record: Record) -> list[dict[str, Any]]:
        """What it is made of in a cluster. Raises ``ElasticError`` where there is none."""

    async def open(self) -> None:
        """Raises ``ElasticError``."""

    async def close(self) -> None: ...
