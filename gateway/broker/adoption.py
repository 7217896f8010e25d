"""Finding the kernels that run already: dialled all at once, so that nobody is granted what a kernel not yet heard of holds.

A supervisor that lives and doesn't answer costs the others nothing: its line goes on dialling. It must never end one.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Container, Coroutine, Sequence
from typing import Any

import zmq

from ..backends.base import Backend
from ..protocol.errors import ElasticError, SupervisorLost
from ..protocol.model import KernelState
from .link import KernelLink

log = logging.getLogger(__name__)


class Adoption:
    """``answered(link)`` is told of a silent supervisor that answers at last; ``do(work)`` has something done meanwhile."""

    def __init__(
        self, backend: Backend, roles: Sequence[str], answered: Callable[[KernelLink], None],
        do: Callable[[Coroutine[Any, Any, None]], None],
    ) -> None:  # fmt: skip
        self._backend, self._roles, self._answered, self._do = backend, roles, answered, do
        self.silent: dict[str, KernelLink] = {}  # lines on which nobody has answered so far

    async def dial_all(self, known: Container[str], context: zmq.Context[Any] | None, generation: int) -> list[KernelLink]:
        """An open line to every supervisor that answers and isn't ``known`` (kernel ids), whoever owns it."""
        found = [each for each in await self._backend.find() if each.kernel_id not in known and each.kernel_id not in self.silent]
        links = [KernelLink(supervisor, context) for supervisor in found]
        answers = await asyncio.gather(*(link.open(self._roles, generation) for link in links), return_exceptions=True)
        opened = []
        for link, answer in zip(links, answers, strict=True):
            if isinstance(answer, SupervisorLost) and link.supervisor.alive():
                log.error("kernel %s is taken over once its supervisor answers: %s", link.kernel_id, answer)
                self._wait_for(link)
            elif isinstance(answer, ElasticError):
                log.error("kernel %s can't be adopted: %s", link.kernel_id, answer)
            elif isinstance(answer, BaseException):
                raise answer
            else:
                opened.append(link)
        return opened

    def forget(self, kernel_id: str) -> None:
        """It is about to be ended, or somebody else has its line. No error where it isn't silent."""
        link = self.silent.pop(kernel_id, None)
        if link is not None:
            link.close()

    def close(self) -> None:
        for kernel_id in list(self.silent):
            self.forget(kernel_id)

    def _wait_for(self, link: KernelLink) -> None:
        self.silent[link.kernel_id] = link
        ends: list[Callable[[], None]] = []

        def done() -> None:
            del self.silent[link.kernel_id]
            for end in ends:
                end()

        def answered(_: KernelLink, state: KernelState) -> None:
            done()
            self._answered(link)

        def lost(_: KernelLink, reason: str) -> None:
            done()
            log.info("kernel %s: %s", link.kernel_id, reason)
            self._do(link.supervisor.clear())

        ends += [link.on_state(answered), link.on_lost(lost)]
        link.keep_dialling()
