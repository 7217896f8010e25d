"""torch.distributed, ready in a cell that uses it: the process group is there, and one that the cell makes itself takes its place.

It must never import torch where neither the cell nor what it has taken along uses it.
"""

from __future__ import annotations

import os
import re
import sys
from typing import Any

from ..rank.running import find_device

_USES = re.compile(r"\btorch\b")


def uses_torch(text: str) -> bool:
    """Whether the cell itself may."""
    return bool(_USES.search(text))


def is_used(text: str) -> bool:
    """Whether the cell, or what it has taken along, uses torch."""
    return "torch" in sys.modules or uses_torch(text)


def backend(gpus: int, ranks: int) -> str:
    """For so many ranks that see the same ``gpus``: NCCL refuses two on one GPU."""
    return "nccl" if 0 < ranks <= gpus else "gloo"


def make(text: str) -> None:
    """``text``: the cell. Called in each rank, before the cell runs."""
    if not is_used(text):
        return
    import torch
    import torch.distributed as dist

    if not dist.is_available() or dist.is_initialized():
        return
    init = dist.init_process_group

    def anew(*args: Any, **kwargs: Any) -> None:
        """The cell's own wish counts; it is the same in all ranks."""
        dist.init_process_group = init
        dist.destroy_process_group()
        init(*args, **kwargs)

    gpus = torch.cuda.device_count() if torch.cuda.is_available() else 0
    name = backend(gpus, int(os.environ.get("LOCAL_WORLD_SIZE", "1")))
    if name == "nccl":  # which takes the current one where nothing is said, as `dist.barrier()` says nothing
        torch.cuda.set_device(find_device(int(os.environ.get("LOCAL_RANK", "0"))))
    init(name)
    dist.init_process_group = anew
