"""ZMQ contexts of the lines to supervisors: made and ended, neither of which may ever block the event loop."""

from __future__ import annotations

import asyncio
from typing import Any

import zmq

_contexts: set[zmq.Context[Any]] = set()  # kept from the garbage collector, which may end one before its sockets and wait for ever


def new_context() -> zmq.Context[Any]:
    """A ZMQ context for any number of lines; to be ended by ``end_context``."""
    context = zmq.Context()
    context.max_sockets = 1 << 16
    _contexts.add(context)
    return context


async def end_context(context: zmq.Context[Any]) -> None:
    """Returns when the last words of its lines, which must be closed, are out."""
    await asyncio.to_thread(context.destroy, 200)
    _contexts.discard(context)
