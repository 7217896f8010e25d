"""What a request may ask of its kernel's start, within what the administrator and the kernelspec allow.

Pure: it is given the request's variables and the limits. It must never take a wish for more than that silently.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping

from ..protocol.errors import BadRequest
from ..settings import Launching


def gpu_count(env: Mapping[str, str], usual: int, most: int | None) -> int:
    """GPUs of a lease: the kernelspec's ``usual`` number, or KERNEL_GPUS, up to the kernelspec's ``most`` (None: any). Raises
    ``BadRequest``."""
    wish = env.get("KERNEL_GPUS", "").strip()
    if not wish:
        return usual
    if not re.fullmatch(r"[0-9]{1,4}", wish) or (most is not None and int(wish) > most):
        limit = "" if most is None else f" from 0 to {most}, the limit of this kernelspec (max_gpus)"
        raise BadRequest(f"KERNEL_GPUS is {wish[:40]!r}: it must be a whole number{limit}.")
    return int(wish)


def launch_limit(env: Mapping[str, str], local: Launching) -> tuple[float, str]:
    """``(seconds, where they come from)``: the administrator's, or the client's KERNEL_LAUNCH_TIMEOUT within the administrator's bounds.

    Raises ``BadRequest``.
    """
    wish = env.get("KERNEL_LAUNCH_TIMEOUT", "").strip()
    where = type(local).__name__
    default = local.launch_timeout, f"{where}.launch_timeout"
    if not wish:
        return default
    try:
        asked = float(wish)
    except ValueError:
        asked = math.nan
    if not asked > 0:
        raise BadRequest(f"KERNEL_LAUNCH_TIMEOUT is {wish[:40]!r}: it must be a number of seconds above 0.")
    if asked == local.unasked_launch_timeout:
        return default
    most = max(local.launch_timeout, local.max_launch_timeout or 0)
    if asked > most:
        setting = f"{where}.max_launch_timeout" if most == local.max_launch_timeout else default[1]
        return most, f"{setting}, as KERNEL_LAUNCH_TIMEOUT asks for more"
    return asked, "this request's KERNEL_LAUNCH_TIMEOUT"
