"""What a cell takes along and what comes home, as the notebook sees it: packed before, taken after, failures raised.

It must never start anything, and needs what packs objects only when it is used.
"""

from __future__ import annotations

from typing import Any, Optional

from ...protocol import burst
from ...protocol.errors import ElasticError
from ...protocol.transfer.blobs import header_of
from .following import Ended
from .raised import shown_alone


class BurstFailed(ElasticError):
    """A burst ended before its cell was through, for a reason that is no exception of the cell's."""

    reason = "burst_failed"

    def _render_traceback_(self) -> list[str]:
        """For IPython: there is nothing to see on our side of it."""
        return [f"{type(self).__name__}: {self}"]


class Home:
    def __init__(self, shell: Any) -> None:
        self._shell = shell
        self._capsules: dict[str, Any] = {}  # by burst: it knows which object of the notebook is which

    def pack(self, header: str, cell: str, options: Any) -> Any:
        """The capsule; None where the cell is empty. Raises what is wrong with the cell, before anything starts."""
        __tracebackhide__ = True
        from ..capture import Options, pack

        if not cell.strip():
            return None
        number = self._shell.execution_count - 1  # it counts on before a cell runs
        wanted = Options(header=header, number=number, include=options.take, nothing=options.take_nothing)
        return pack(cell, self._shell.user_ns, wanted)

    def has_gpu_data(self, capsule: Any) -> bool:
        """Whether it takes along what lies on a GPU."""
        return bool(header_of(capsule.blobs).get("accelerated"))

    def keep(self, burst_id: str, capsule: Any) -> None:
        """Until its results are home: what was packed is in the burst's folder, and need not lie here too."""
        capsule.blobs.clear()
        self._capsules[burst_id] = capsule

    def take(self, ended: Ended, ranks: Optional[tuple[int, ...]]) -> tuple[list[str], list[str]]:
        """Bring home what the ranks have made: its names, and what there is to say besides. ``ranks``: None for all."""
        from ..capture import take, take_each

        names, sent = self._shell.user_ns, self._sent(ended)
        if ranks == (0,):
            report = take(ended.depot.fetch(burst.RESULTS, "0"), names, sent)
        else:
            report = take_each({rank: ended.depot.fetch(burst.RESULTS, str(rank)) for rank in ended.depot.ranks()}, names, sent)
        besides = [*(f"{name} stayed in the ranks: {why}" for name, why in report.skipped.items()), *report.notes]
        return [*report.assigned, *report.mutated], besides

    def failure(self, ended: Ended) -> BaseException:
        """What to raise."""
        from ..capture import failure

        failed = ended.failure
        if failed is None or ended.outcome != burst.ERROR:
            return BurstFailed(ended.message)
        if not failed["raised"]:
            return BurstFailed("\n".join(filter(None, [ended.message, failed["text"]])))
        error = failure(ended.depot.fetch(burst.FAILURES, str(failed["rank"])), self._shell.user_ns, self._sent(ended))
        return shown_alone(error)

    def listing(self, capsule: Any) -> str:
        """For people: what would be taken along."""
        if not capsule.listing:
            return "The cell takes nothing along."
        rows = [f"{item.name:20} {item.bytes:>14,} bytes  {item.type} ({item.kind})" for item in capsule.listing]
        return "\n".join(["The cell takes along:", *rows, f"{'with the cell itself':20} {capsule.bytes:>14,} bytes"])

    def largest(self, capsule: Any) -> str:
        item = max(capsule.listing, key=lambda item: item.bytes)
        return f"The largest is {item.name}, {item.bytes / 1e6:.0f} MB."

    def _sent(self, ended: Ended) -> Any:
        """What this kernel has sent, or, in a kernel that has started since, what lies in the burst's folder."""
        capsule = self._capsules.pop(ended.id, None)
        return capsule if capsule is not None else ended.depot.fetch(burst.CAPSULE)
