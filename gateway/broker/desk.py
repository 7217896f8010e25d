"""The broker's counter for other processes of this user: one JSON object a line, each answered by one.

Requests (``do``): ``status``; ``register`` (place) a supervisor; ``list``; ``snapshot``; ``release`` (kernel_id); ``hold``
(kernel_id, seconds); ``policy`` (changes, or kernel_id); ``usage`` (by, since, until); ``drain`` (node, on); ``end``; ``handover``.
Answers: ``{"ok": true, ...}`` or ``{"ok": false, "message", "reason"}``. It must never let one caller's bad line harm another, and it
asks the broker for everything.
"""

from __future__ import annotations

import asyncio
import logging
import math
import os
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any

from ..protocol.errors import BadRequest, BrokerUnavailable, ElasticError, LeaseError
from ..protocol.wire import dumps, loads
from .rules import switch
from .seat import GATEWAY, MAX_LINE, RUNS, Seat
from .usage import usage_of

if TYPE_CHECKING:
    from .broker import Broker

log = logging.getLogger(__name__)


class Desk:
    """Serves ``broker`` on ``seat``. ``handed_over`` is set once another broker was given everything."""

    def __init__(self, broker: Broker, seat: Seat, kind: str, who: str) -> None:
        self._broker, self._seat, self._kind, self._who = broker, seat, kind, who
        self._server: asyncio.Server | None = None
        self._callers: set[asyncio.StreamWriter] = set()
        self.handed_over = asyncio.Event()
        self._answers: dict[str, Callable[[dict[str, Any]], Awaitable[dict[str, Any]]]] = {
            "status": self._status,
            "register": self._register,
            "list": self._list,
            "snapshot": self._snapshot,
            "release": self._release,
            "hold": self._hold,
            "policy": self._policy,
            "usage": self._usage,
            "drain": self._drain,
            "end": self._end,
            "handover": self._handover,
        }

    async def open(self) -> None:
        self._server = await asyncio.start_unix_server(self._serve, sock=self._seat.listener, limit=MAX_LINE)

    def close(self) -> None:
        """Nobody is served any more; those who are connected see it, and look for the next broker."""
        if self._server is not None:
            self._server.close()  # first, as the loop still watches the listener
        self._seat.leave()
        for caller in self._callers:
            caller.close()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._callers.add(writer)
        try:
            while line := await reader.readline():
                writer.write(dumps(await self._answer(line)) + b"\n")
                await writer.drain()
        except (OSError, ValueError):  # gone, or a line without an end
            pass
        except asyncio.CancelledError:
            pass  # the loop ends
        finally:
            self._callers.discard(writer)
            writer.close()

    async def _answer(self, line: bytes) -> dict[str, Any]:
        try:
            request = loads(line)
            answer = self._answers.get(str(request.get("do")))
            if answer is None:
                raise BadRequest(f"The broker knows no request {str(request.get('do'))[:40]!r}: is one side older than the other?")
            return {"ok": True, **await answer(request)}
        except ElasticError as exc:
            return {"ok": False, **exc.to_json()}
        except Exception as exc:
            log.exception("a request failed")
            return {"ok": False, **BrokerUnavailable(f"The broker failed: {exc}. Its log says more.").to_json()}

    # the requests

    async def _status(self, request: dict[str, Any]) -> dict[str, Any]:
        broker = self._broker
        said = {"kind": self._kind, "who": self._who, "pid": os.getpid(), "generation": broker.generation, "kernels": len(broker.links)}
        return {**said, "outdated": broker.outdated}

    async def _register(self, request: dict[str, Any]) -> dict[str, Any]:
        if self._broker.outdated and not self._broker.callers():  # whoever asks finds nobody, and starts the next one
            await self._broker.stop()
            raise BrokerUnavailable("The configuration has changed, and the next broker reads it.")
        supervisor = await self._broker.backend.at(_text(request, "place"))
        await self._broker.dial(supervisor)
        return {"generation": self._broker.generation}

    async def _list(self, request: dict[str, Any]) -> dict[str, Any]:
        supervisors = [link.supervisor for link in self._broker.links.values()]
        return {
            "kernels": [{"kernel_id": each.kernel_id, "owner": each.owner, "user": each.user, "name": each.name} for each in supervisors]
        }

    async def _snapshot(self, request: dict[str, Any]) -> dict[str, Any]:
        return {"snapshot": self._broker.snapshot()}

    async def _release(self, request: dict[str, Any]) -> dict[str, Any]:
        await self._broker.release(_text(request, "kernel_id"))
        return {}

    async def _hold(self, request: dict[str, Any]) -> dict[str, Any]:
        seconds = request.get("seconds")
        if isinstance(seconds, bool) or not isinstance(seconds, int | float) or not math.isfinite(seconds) or seconds < 0:
            raise BadRequest("seconds must be a number of 0 or more.")
        await self._broker.hold(_text(request, "kernel_id"), float(seconds))
        return {}

    async def _policy(self, request: dict[str, Any]) -> dict[str, Any]:
        changes = request.get("changes") or {}
        if not isinstance(changes, dict):
            raise BadRequest("changes must be an object of names and values.")
        if changes:
            await self._broker.rules.change_and_keep(changes)
        if request.get("kernel_id"):
            return {"policy": self._broker.explain(_text(request, "kernel_id"))}
        return {"policy": self._broker.rules.show()}

    async def _usage(self, request: dict[str, Any]) -> dict[str, Any]:
        usage = usage_of(self._broker)
        if usage is None:
            raise BrokerUnavailable("This broker keeps no usage.")
        since, until = request.get("since"), request.get("until")
        if not all(moment is None or (isinstance(moment, int | float) and math.isfinite(moment)) for moment in (since, until)):
            raise BadRequest("since and until must be seconds since 1970.")
        return {"usage": await usage.report(_text(request, "by"), since or 0.0, until, None)}

    async def _drain(self, request: dict[str, Any]) -> dict[str, Any]:
        self._broker.drain(_text(request, "node"), switch(request, "on"))
        return {}

    async def _end(self, request: dict[str, Any]) -> dict[str, Any]:
        """What a gateway is asked by REST."""
        if self._kind == GATEWAY:
            raise BrokerUnavailable(f"{self._who} (process {os.getpid()}) leases the GPUs here: shut that one down.", reason=RUNS)
        theirs = len(self._broker.callers())
        if theirs:
            have = "a kernel that needs" if theirs == 1 else f"{theirs} kernels that need"
            raise LeaseError(
                f"The processes served here have {have} this broker (process {os.getpid()}), and would start the next one at once: end them"
                " first. It ends by itself some time after.",
                reason="needed",
            )
        self._broker.asked_to_end.set()
        return {}

    async def _handover(self, request: dict[str, Any]) -> dict[str, Any]:
        if self._kind == GATEWAY:
            raise BrokerUnavailable(
                f"{self._who} (process {os.getpid()}) leases the GPUs of this runtime folder: stop it first, or give the other one a "
                "folder of its own (LocalBackend.runtime_dir).",
                reason=RUNS,
            )
        places = [link.supervisor.place for link in self._broker.links.values()]
        await self._broker.stop(serving=True)
        self.handed_over.set()
        return {"places": places}


def _text(request: dict[str, Any], name: str) -> str:
    value = request.get(name)
    if not isinstance(value, str) or not value:
        raise BadRequest(f"{name} must be a text.")
    return value
