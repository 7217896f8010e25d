"""What the book says of the GPUs, for a place where they are accounted for outside of it. It must never change the book."""

from __future__ import annotations

from collections.abc import Collection

from ..leases.book import Book
from ..protocol.model import Phase, Rung


def leases(book: Book, foreign: Collection[str]) -> dict[str, tuple[str, ...]]:
    """The GPUs that each kernel has now; not of those who are no kernels of ours (``foreign``)."""
    return {name: record.gpus for name, record in book.kernels.items() if record.gpus and name not in foreign}


def homes(book: Book) -> dict[str, tuple[str, ...]]:
    """The GPUs to which a kernel's parked state must come back, as no others would do."""
    return {name: record.home for name, record in book.kernels.items() if record.home and book.devices.rung(record)[0] is not Rung.ANYWHERE}


def waiting(book: Book) -> set[str]:
    """Nodes on which kernels wait for a GPU."""
    return {record.node for record in book.kernels.values() if record.phase is Phase.WAITING}
