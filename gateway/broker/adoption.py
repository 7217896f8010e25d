"""Finding the kernels that run already: dialled all at once, so that nobody is granted what a kernel not yet heard of holds.

A supervisor that doesn't answer costs the others nothing and is tried again. It must never end one.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Container, Sequence
from typing import Any

import zmq

from ..backends.base import Backend
from ..protocol.errors import ElasticError
from .link import KernelLink

log = logging.getLogger(__name__)


async def dial_all(
    backend: Backend, known: Container[str], context: zmq.Context[Any] | None, roles: Sequence[str], generation: int
) -> list[KernelLink]:
    """An open line to every supervisor that lives and isn't ``known`` (kernel ids), whoever owns it."""
    links = [KernelLink(supervisor, context) for supervisor in await backend.find() if supervisor.kernel_id not in known]
    answers = await asyncio.gather(*(link.open(roles, generation) for link in links), return_exceptions=True)
    opened = []
    for link, answer in zip(links, answers, strict=True):
        if isinstance(answer, ElasticError):
            log.error("kernel %s can't be adopted now: %s", link.kernel_id, answer)
        elif isinstance(answer, BaseException):
            raise answer
        else:
            opened.append(link)
    return opened
