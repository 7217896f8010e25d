"""How the log is written: for people, or as JSON, a line for each entry, for whatever collects logs.

It must never add anything to an entry that isn't in it, but the ids by which one finds what belongs together.
"""

from __future__ import annotations

import json
import logging
import re
from collections.abc import Iterable
from datetime import UTC, datetime

TEXT, JSON = "text", "json"
FIELDS = "fields"  # attribute of an entry: a dictionary of what it is about, such as kernel_id and lease_id
_KERNEL = re.compile(r"\bkernel ([0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12})\b", re.IGNORECASE)
_OURS = ("time", "level", "logger", "message", "exception", "at")


class JsonLines(logging.Formatter):
    """``time`` (UTC), ``level``, ``logger``, ``message``, ``exception`` where there is one, and what the entry is about."""

    def format(self, record: logging.LogRecord) -> str:
        message = record.getMessage()
        about = {name: value for name, value in (getattr(record, FIELDS, None) or {}).items() if name not in _OURS}
        if "kernel_id" not in about and (found := _KERNEL.search(message)):
            about["kernel_id"] = found[1]
        time = datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
        entry = {"time": time, "level": record.levelname.lower(), "logger": record.name, "message": message.strip(), **about}
        if record.exc_info and record.exc_info[0] is not None:
            entry["exception"] = self.formatException(record.exc_info)
        return json.dumps(entry, default=str)


def write_as(how: str, loggers: Iterable[logging.Logger]) -> None:
    """``TEXT``: as their handlers do; ``JSON``: those of them that write to a stream write lines of it."""
    if how != JSON:
        return
    for logger in loggers:
        for handler in logger.handlers:
            if isinstance(handler, logging.StreamHandler):
                handler.setFormatter(JsonLines())
