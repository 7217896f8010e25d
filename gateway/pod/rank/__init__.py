"""A rank's side of one cell: lists of buffers in, the cell run, lists of buffers out. Runs in a worker.

::

    arena = Arena(sizes)                     # receive the blobs into arena.slots; then nothing is copied any more
    cell = load(arena.private, arena=arena)  # or load([b"...", ...]), which copies once
    failed = cell.run({"RANK": 0, "WORLD_SIZE": 2, "LOCAL_RANK": 0}, show=publish)
    if failed is None:
        blobs = cell.give_back()             # for the kernel's capture.take
    else:
        failed.blobs                         # for capture.failure; failed.text is the traceback for the log

``load`` raises ``VersionMismatch`` before it unpickles anything that can't work here. It must never know how buffers travel.
"""

from __future__ import annotations

from ...protocol.transfer.compare import Arena
from .cell import Cell, Failed, LoadError, VersionMismatch, load

__all__ = ["Arena", "Cell", "Failed", "LoadError", "VersionMismatch", "load"]
