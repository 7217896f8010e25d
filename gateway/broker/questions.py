"""What kernels ask of whoever leases here, through their supervisors: heard on each line, answered by a room above.

It must never let one question hold up another, nor leave one without an answer while the line stands.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import Any, Protocol

from ..backends.base import Supervisor
from ..leases.events import KernelSeen
from ..protocol.errors import BadRequest, ElasticError
from .link import KernelLink

log = logging.getLogger(__name__)

Answers = Callable[[Supervisor, dict[str, Any]], Awaitable[dict[str, Any]]]


class Beside(Protocol):
    """What works beside a broker for as long as that acts, and answers for it."""

    def held(self) -> list[KernelSeen]:
        """Guests that have GPUs from before. Called as the broker starts, before it leases anything."""

    async def start(self) -> None: ...

    async def stop(self) -> None: ...


class Questions:
    """``answers[do](supervisor, question)`` returns the fields of the answer, or raises an ``ElasticError``."""

    def __init__(self) -> None:
        self.answers: dict[str, Answers] = {}
        self._tasks: set[asyncio.Task[None]] = set()

    def hear(self, link: KernelLink, number: int, question: dict[str, Any]) -> None:
        """For ``KernelLink.on_ask``."""
        task = asyncio.get_running_loop().create_task(self._answer(link, number, question))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def stop(self) -> None:
        for task in self._tasks:
            task.cancel()

    async def _answer(self, link: KernelLink, number: int, question: dict[str, Any]) -> None:
        try:
            answers = self.answers.get(str(question.get("do")))
            if answers is None:
                raise BadRequest("Whoever leases GPUs here doesn't do that: it is older than this kernel's code, or set up without it.")
            answer = {"ok": True, **await answers(link.supervisor, question)}
        except ElasticError as exc:
            answer = {"ok": False, **exc.to_json()}
        except Exception as exc:
            log.exception("a kernel's question failed")
            answer = {"ok": False, "message": f"The gateway failed: {exc}. Its log says more.", "reason": "unhandled"}
        link.tell(number, answer)
