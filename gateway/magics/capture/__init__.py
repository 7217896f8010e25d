"""What a cell needs from the notebook, packed for ranks, and what they made of it, brought home. Runs in the user's kernel.

::

    capsule = capture.pack(source, shell.user_ns, capture.Options(header="%%distributed -w 2", number=7))
    capsule.blobs      # a list of buffers for every rank's ``gateway.pod.rank.load``; views of the user's own arrays, no copies
    capsule.listing    # for --dry-run: name, type, bytes, kind
    capsule.warnings   # sentences to show at once
    ...
    report = capture.take(blobs, shell.user_ns)        # what a rank's ``Cell.give_back`` returned; ``take_each`` for several ranks
    raise capture.failure(blobs, shell.user_ns)        # what a rank's ``Cell.run`` returned

Keep the capsule while its burst lives: it says which object is which when results come home. A kernel that has started again since
gives ``take`` and ``failure`` the blobs that were sent (``sent=``) instead. Pass writable buffers (``bytearray``) to ``take`` and
new arrays lie in them; read-only ones are copied.

It must never start anything, and never know how buffers travel. Everything that can be refused is refused by ``pack``.
"""

from __future__ import annotations

from .errors import CaptureError
from .pack import Capsule, Item, Options, pack
from .take import Report, failure, needs_gpu, take, take_each

__all__ = ["Capsule", "CaptureError", "Item", "Options", "Report", "failure", "needs_gpu", "pack", "take", "take_each"]
