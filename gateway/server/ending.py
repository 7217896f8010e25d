"""How a kernel process is ended while its supervisor stays: asked, then told, then killed.

It must never return while the process lives, nor end what nobody asked to end.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from ..protocol.errors import BadRequest, KernelDied, SupervisorLost
from .messages import message

if TYPE_CHECKING:
    from ..broker.link import KernelLink

SIGINT, SIGTERM, SIGKILL = 2, 15, 9
END_SECONDS = 20.0  # beside the grace, for all steps of a kernel's end
OURS = "gateway"  # the session under which the gateway itself speaks to a kernel


async def tell_end(link: KernelLink, grace: float) -> None:
    """Should this gateway be killed halfway, the next one, or else the supervisor, does the rest."""
    try:
        await link.call("ends", within=grace + END_SECONDS)
    except BadRequest:
        pass  # an older supervisor


async def end_process(link: KernelLink, works: bool, grace: float, restart: bool) -> None:
    """``works``: a cell runs or waits in it. Half of ``grace`` for each of the polite ways; 0: killed at once. Raises ``KernelDied``
    where it can't be killed."""
    if works:
        await link.call("signal", signum=SIGINT)  # a cell that runs would keep it from hearing the request
    if grace:
        link.send(OURS, "control", message("shutdown_request", {"restart": restart}))
        if await _ended(link, grace / 2):
            return
        await link.call("signal", signum=SIGTERM)
        if await _ended(link, grace / 2):
            return
    await link.call("signal", signum=SIGKILL)
    if not await _ended(link, 5.0):
        raise KernelDied("The kernel process can't be killed: it hangs in the machine's kernel. Restart the machine's driver.")


async def _ended(link: KernelLink, seconds: float) -> bool:
    try:
        async with asyncio.timeout(seconds):
            await link.until(lambda state: not state.alive)
    except TimeoutError:
        return False
    except SupervisorLost:
        pass
    return True
