"""What people wish of one kernel's lease: that its GPU is taken or left, and to know why it is as it is.

It must never do more than ask the kernel's supervisor, which may refuse.
"""

from __future__ import annotations

from typing import Any

from ..leases.book import Book
from ..protocol.errors import ElasticError, ExecutingError, LeaseError
from ..protocol.model import Rung
from .lines import Lines
from .link import KernelLink
from .reading import CANT_PARK
from .rules import Rules


class Wishes:
    """Each raises ``LeaseError`` where the kernel isn't known."""

    def __init__(self, book: Book, lines: Lines, rules: Rules) -> None:
        self._book, self._lines, self._rules = book, lines, rules

    async def release(self, kernel_id: str) -> None:
        """Take the GPU from an idle kernel. Raises ``ExecutingError`` while it works, ``LeaseError`` where it holds none or keeps it."""
        link = self._line(kernel_id)
        record = self._book.kernels[kernel_id]
        if record.executing:
            raise ExecutingError("A cell is running on the GPU: interrupt it, or wait until it ends, and release the GPU then.")
        rung, why = self._book.devices.rung(record)
        if record.gpus and rung is Rung.EXCLUSIVE:
            raise LeaseError(
                f"This kernel keeps its GPU until it ends{f' ({why})' if why else ''}: restart it to free the GPU.", reason=CANT_PARK
            )
        await _call(link, "release")

    async def hold(self, kernel_id: str, seconds: float) -> None:
        """Leave the GPU with a kernel for so many seconds although it is idle; 0 ends that."""
        await _call(self._line(kernel_id), "hold", seconds=seconds)

    def explain(self, kernel_id: str) -> dict[str, Any]:
        """Which rules hold for a kernel, and why."""
        self._line(kernel_id)
        record = self._book.kernels[kernel_id]
        return self._rules.explain(record, self._book.devices.flavor(record))

    def _line(self, kernel_id: str) -> KernelLink:
        link = self._lines.links.get(kernel_id)
        if link is None or kernel_id not in self._book.kernels:
            raise LeaseError(f"There is no kernel {kernel_id} here, or it leases nothing here.", reason="no_such_kernel")
        return link


async def _call(link: KernelLink, do: str, **fields: Any) -> None:
    """What the supervisor refuses for a reason of its own is about the lease."""
    try:
        await link.call(do, **fields)
    except ElasticError as exc:
        if type(exc) is not ElasticError:
            raise
        raise LeaseError(str(exc), reason=exc.reason) from None
