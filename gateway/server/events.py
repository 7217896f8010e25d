"""The broker's news as events of ``jupyter_events``, and ``/api/events/subscribe``: each user hears of their own kernels, admins of all.

The schemas lie beside this, in ``event_schemas``. It must never let a client emit an event, nor keep any for a reader who doesn't read.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from jupyter_core.utils import ensure_async
from jupyter_events import EventLogger
from jupyter_server.auth.decorator import ws_authenticated
from jupyter_server.base.websocket import WebSocketMixin
from jupyter_server.services.events.handlers import SubscribeWebsocket
from tornado import web
from tornado.websocket import WebSocketClosedError, WebSocketHandler

from ..broker.news import POLICY, SUBJECTS, News
from .answers import JsonErrors, PingsByItself

SCHEMAS = {subject: f"https://schema.jupyter.org/jupyter_elastic_gateway/{subject}/v1" for subject in SUBJECTS}
BACKLOG = 1 << 20  # bytes that a reader may be behind before it is cut
TOO_SLOW = 1013  # close code: try again later


def emit_news(news: News, events: EventLogger) -> Callable[[], None]:
    """Have a server's event logger tell a broker's news: to its configured handlers (``EventLogger.handlers``), and to whoever listens.
    Returns what ends that."""
    for subject in SUBJECTS:
        if SCHEMAS[subject] not in events.schemas:
            events.register_event_schema(Path(__file__).parent / "event_schemas" / f"{subject}.yaml")

    def emit(subject: str, fields: dict[str, Any]) -> None:
        events.emit(schema_id=SCHEMAS[subject], data=fields)

    return news.join(emit)


class EventsSocket(JsonErrors, PingsByItself, WebSocketMixin, SubscribeWebsocket):  # type: ignore[misc]
    """jupyter_server's own, but for who hears what. ``?kernel=ID``: of that kernel alone."""

    kernel = ""
    behind = 0  # bytes on their way to the reader

    @ws_authenticated
    async def get(self, *args: Any, **kwargs: Any) -> None:
        if not await ensure_async(self.authorizer.is_authorized(self, self.current_user, "read", "events")):
            raise web.HTTPError(403)
        self.kernel = self.get_query_argument("kernel", "")
        await WebSocketHandler.get(self)

    async def event_listener(self, logger: EventLogger, schema_id: str, data: dict[str, Any]) -> None:
        if not self.meant(schema_id, data):
            return
        text = json.dumps({"schema_id": schema_id, **data})
        self.behind += len(text)
        if self.behind > BACKLOG:
            self.on_close()
            self.close(TOO_SLOW, "this reader is too slow")
            return
        try:
            await self.write_message(text)
        except WebSocketClosedError:
            self.on_close()
        finally:
            self.behind -= len(text)

    def meant(self, schema_id: str, data: dict[str, Any]) -> bool:
        """Whether this reader may know: of their own kernels, and what is about nobody's. Those of jupyter_server itself name no user."""
        if self.kernel and data.get("kernel_id") != self.kernel:
            return False
        owns = getattr(self.authorizer, "owns", None)
        if owns is None or schema_id == SCHEMAS[POLICY]:
            return True
        user = data["user"] if "user" in data else self.settings["kernel_manager"].user_of(data.get("kernel_id", ""))
        return bool(owns(self.current_user, user or None))  # nobody's own: an admin's


default_handlers = [(r"/api/events/subscribe", EventsSocket)]
