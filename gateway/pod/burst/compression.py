"""``--compress``: gradients go over the network with fewer bits, by the hooks that torch itself brings for that.

The cell's own ``DistributedDataParallel`` gets the hook once it is made. It must never change what is computed where nobody asked for it.
"""

from __future__ import annotations

import functools
from typing import Any, Callable

POWERSGD_START = 10  # steps before PowerSGD begins, so that it starts from gradients that have settled
ONE_BUCKET_MB = 1 << 20  # more than any model: gloo hangs on PowerSGD with several buckets


def install(words: str, note: Callable[[str], None]) -> None:
    """``words``: fp16, bf16, powersgd or powersgd:RANK. ``note`` tells people what is done differently. Called once torch.distributed is
    initialised."""
    from torch.nn.parallel import DistributedDataParallel

    made = DistributedDataParallel.__init__

    @functools.wraps(made)
    def init(self: Any, *args: Any, **kwargs: Any) -> None:
        state, hook = _hook(words, note, kwargs)
        made(self, *args, **kwargs)
        self.register_comm_hook(state, hook)
        self.register_comm_hook = _taken(words)

    DistributedDataParallel.__init__ = init


def _taken(words: str) -> Callable[..., None]:
    def register_comm_hook(*_: Any, **__: Any) -> None:
        raise RuntimeError(f"--compress {words} has given this model a communication hook, and there can be one: leave one of the two out.")

    return register_comm_hook


def _hook(words: str, note: Callable[[str], None], kwargs: dict[str, Any]) -> tuple[Any, Callable[..., Any]]:
    """``(state, hook)``; ``kwargs`` may be changed."""
    import torch.distributed as dist
    from torch.distributed.algorithms.ddp_comm_hooks import default_hooks, powerSGD_hook

    group = kwargs.get("process_group")
    gloo = dist.get_backend(group) == "gloo"
    name, _, rank = words.partition(":")
    if name == "bf16" and gloo:
        note("gloo can't reduce bfloat16: gradients are compressed to fp16 instead.")
        name = "fp16"
    if name == "fp16":
        return group, default_hooks.fp16_compress_hook
    if name == "bf16":
        return group, default_hooks.bf16_compress_hook
    if gloo:
        kwargs["bucket_cap_mb"] = ONE_BUCKET_MB
    state = powerSGD_hook.PowerSGDState(
        process_group=group, matrix_approximation_rank=int(rank or 1), start_powerSGD_iter=POWERSGD_START
    )  # fmt: skip
    return state, powerSGD_hook.powerSGD_hook
