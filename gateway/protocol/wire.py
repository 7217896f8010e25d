"""Framing of the link, and of the Jupyter messages that travel on it.

A link message is ``[header, *parts]``: the header a JSON object with a type ``t``, the parts untouched bytes (for ``in`` and
``out``: header, parent_header, metadata, content and buffers of one Jupyter message, as the Jupyter protocol has them).
This module must never interpret the parts, and never raise anything but ``WireError`` on bad input.

From the gateway (a DEALER) to the supervisor (a ROUTER):

========== ==================================================================================================
hello      versions [oldest, newest], generation, roles (any of "owner", "broker", "sessions")
attach     session, after (number last seen, None: from now on), window (bytes of credit)
detach     session, forget (true: its place is given up)
ack        session, n (everything up to n has arrived)
in         session, channel, m (the client's own number, None: none), parts
order      do ("grant" gpus visible devices | "park" why | "queue" position of holders expected | "deny" reason message),
           epoch [generation, count]; devices: what CUDA knows the gpus as, where that isn't what the broker's book calls them
call       id, do ("signal" signum | "respawn" argv env cwd | "ends" within | "shutdown" grace | "hold" seconds | "release"), answered by
           ``answer``; ends: its owner is about to end it, and where that hasn't come within so many seconds it ends by itself
told       id, answer (of an ``ask``: ok and its fields, or message and reason)
ping       answered by ``pong``
bye        this dialer hangs up; its sessions count as absent
========== ==================================================================================================

From the supervisor:

========== ==================================================================================================
welcome    version, state
refused    message, reason (a hello, attach or order that can't be)
state      state (a whole KernelState, on each change)
attached   session, n (the last number before what follows), lost (messages that are gone), seen (the m last received)
out        session, n, channel, parts
taken      session, m (everything up to m has been received)
cut        session, reason (its credit ran out for too long: attach again later)
answer     id, ok, message, reason
ask        id, question (of a magic in the kernel, for whoever leases here; answered by ``told``, perhaps much later)
pong
========== ==================================================================================================
"""

from __future__ import annotations

import hashlib
import hmac
import json
from collections.abc import Sequence
from typing import Any, Union

from .errors import SignatureError, WireError

OLDEST_VERSION = 1
NEWEST_VERSION = 1

DELIMITER = b"<IDS|MSG>"
CHANNELS = frozenset({"shell", "control", "stdin", "iopub"})
MAX_HEADER_BYTES = 1 << 20  # a Jupyter header is a few hundred bytes; a link header a few kilobytes

Part = Union[bytes, bytearray, memoryview]


def dumps(value: Any) -> bytes:
    """Compact JSON, UTF-8; a lone surrogate becomes U+FFFD because no peer could read it."""
    return json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode("utf-8", "replace")


def loads(raw: Part) -> dict[str, Any]:
    """A JSON object, or ``WireError`` (also for one nested too deep)."""
    try:
        value = json.loads(bytes(raw))
    except (ValueError, RecursionError) as exc:
        raise WireError(f"not JSON: {exc}") from None
    if not isinstance(value, dict):
        raise WireError("not a JSON object")
    return value


def pack(type_: str, parts: Sequence[Part] = (), **fields: Any) -> list[Part]:
    """One link message as ZMQ frames."""
    return [dumps({"t": type_, **fields}), *parts]


def unpack(frames: Sequence[Part]) -> tuple[dict[str, Any], list[Part]]:
    """``(header, parts)`` of a link message. Raises ``WireError``."""
    if not frames or len(frames[0]) > MAX_HEADER_BYTES:
        raise WireError("a link message needs a header of at most 1 MiB")
    header = loads(frames[0])
    if not isinstance(header.get("t"), str):
        raise WireError("a link header needs a type t")
    return header, list(frames[1:])


class Signer:
    """Signs and checks Jupyter messages with the kernel's key (HMAC-SHA256). An empty key signs nothing."""

    def __init__(self, key: bytes) -> None:
        self._mac = hmac.new(key, digestmod=hashlib.sha256) if key else None

    def sign(self, parts: Sequence[Part]) -> bytes:
        """Hex digest over header, parent_header, metadata and content."""
        if self._mac is None:
            return b""
        mac = self._mac.copy()
        for part in parts[:4]:
            mac.update(part)
        return mac.hexdigest().encode()

    def wrap(self, parts: Sequence[Part], idents: Sequence[Part] = ()) -> list[Part]:
        """A whole multipart message as the Jupyter protocol sends it."""
        return [*idents, DELIMITER, self.sign(parts), *parts]

    def unwrap(self, frames: Sequence[Part]) -> tuple[list[Part], list[Part]]:
        """``(idents, parts)``. Raises ``WireError`` for a torn message, ``SignatureError`` for a forged one."""
        at = next((at for at, frame in enumerate(frames) if frame == DELIMITER), None)
        if at is None:
            raise WireError("no <IDS|MSG> delimiter")
        parts = list(frames[at + 2 :])
        if len(parts) < 4:
            raise WireError("a message needs a signature and four parts")
        if self._mac is not None and not hmac.compare_digest(self.sign(parts), bytes(frames[at + 1])):
            raise SignatureError("the message's signature doesn't match this kernel's key")
        return list(frames[:at]), parts
