"""Framing of kernel websockets: the two that every Jupyter client knows, and ours, which numbers messages.

Standard library only. It must never interpret message contents; bad input raises ``WireError`` and nothing else.

* ``None`` (legacy): one JSON text frame, or with buffers a binary one with a 32-bit offset table.
* ``V1``: ``v1.kernel.websocket.jupyter.org``, a 64-bit little-endian offset table before channel, header, parent, metadata,
  content and buffers.
* ``ELASTIC``: every frame is binary and begins with a kind byte. Both sides number what they send, from 1 and upward for each session;
  repeats are dropped by number, and what isn't acknowledged is sent again after a reconnect::

      MESSAGE  u64 number, then a V1 frame       both ways; number 0 is what the gateway says of itself: shown, never acknowledged
      ACK      u64 number                        everything up to it has arrived; both ways
      ATTACHED u64 n, u64 lost, u64 seen         gateway to client, first, and again when the line behind it begins anew: numbering
                                                 goes on after n; so many messages are gone for good; the client's own messages are
                                                 known up to seen, and it sends again what came after

  The client connects with ``?session_id=S`` and, on a return, ``&after=N``: the last number it saw.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Sequence
from typing import Any, Optional

from .errors import RequestError, WireError
from .wire import CHANNELS, Part, dumps, loads

V1 = "v1.kernel.websocket.jupyter.org"
ELASTIC = "elastic.v1.kernel.websocket.jupyter.org"

MESSAGE, ACK, ATTACHED = 1, 2, 3

CLOSE_KERNEL_GONE = 4404  # the kernel was shut down or culled; don't come back
CLOSE_SLOW_READER = 4408  # the client stopped reading; it catches up on return
CLOSE_RESTART = 1012  # the gateway stops; come back

HEADER_BYTES = 64 << 10  # of a request's header, at most
_READ_BYTES = 4 << 20  # of a larger one, which is read only to tell its sender that it is too large
_ANSWERED = ("msg_id", "msg_type", "session", "username", "date", "version")  # of a header, what an answer repeats

_NUMBER = struct.Struct("!BQ")
_ATTACHED = struct.Struct("!BQQQ")


def encode_v1(channel: str, parts: Sequence[Part]) -> bytes:
    """A V1 frame of ``[header, parent, metadata, content, *buffers]``."""
    name = channel.encode()
    offsets = [8 * (len(parts) + 3)]
    offsets.append(offsets[0] + len(name))
    for part in parts:
        offsets.append(offsets[-1] + len(part))
    return b"".join([struct.pack(f"<{len(offsets) + 1}Q", len(offsets), *offsets), name, *parts])


def decode_v1(frame: Part) -> tuple[str, list[memoryview]]:
    """``(channel, parts)``; parts are views into ``frame``."""
    view = memoryview(frame)
    try:
        (count,) = struct.unpack_from("<Q", view)
        if not 6 <= count <= 1 << 16:
            raise WireError(f"{count} offsets in a message")
        offsets = struct.unpack_from(f"<{count}Q", view, 8)
    except struct.error:
        raise WireError("offset table cut short") from None
    if offsets[0] != 8 * (count + 1) or offsets[-1] != len(view) or any(a > b for a, b in zip(offsets, offsets[1:])):
        raise WireError("offsets don't fit the message")
    channel = bytes(view[offsets[0] : offsets[1]]).decode("utf-8", "replace")
    return _known(channel), [view[a:b] for a, b in zip(offsets[1:], offsets[2:])]


def encode_legacy(channel: str, parts: Sequence[Part]) -> "str | bytes":
    """A legacy frame: text without buffers, else binary."""
    body = b'{"channel":%b,"header":%b,"parent_header":%b,"metadata":%b,"content":%b' % (dumps_str(channel), *map(bytes, parts[:4]))
    header = loads(parts[0])
    body += b',"msg_id":%b,"msg_type":%b' % (dumps_str(header.get("msg_id", "")), dumps_str(header.get("msg_type", "")))
    if len(parts) == 4:
        return (body + b',"buffers":[]}').decode("utf-8", "replace")
    chunks = [body + b"}", *parts[4:]]
    offsets = [4 * (len(chunks) + 1)]
    for chunk in chunks[:-1]:
        offsets.append(offsets[-1] + len(chunk))
    return b"".join([struct.pack(f"!{len(chunks) + 1}I", len(chunks), *offsets), *chunks])


def decode_legacy(frame: "str | Part") -> tuple[str, list[Part]]:
    """``(channel, parts)`` of a legacy frame; a missing channel means shell, as older clients send none."""
    buffers: list[Part] = []
    if isinstance(frame, str):
        text: Part = frame.encode("utf-8", "replace")
    else:
        view = memoryview(frame)
        try:
            (count,) = struct.unpack_from("!I", view)
            if not 1 <= count <= 1 << 16:
                raise WireError(f"{count} parts in a message")
            offsets = [*struct.unpack_from(f"!{count}I", view, 4), len(view)]
        except struct.error:
            raise WireError("offset table cut short") from None
        if offsets[0] != 4 * (count + 1) or any(a > b for a, b in zip(offsets, offsets[1:])):
            raise WireError("offsets don't fit the message")
        text, *buffers = (view[a:b] for a, b in zip(offsets, offsets[1:]))
    message = loads(text)
    fields = [message.get("header"), message.get("parent_header") or {}, message.get("metadata") or {}, message.get("content")]
    channel = message.get("channel", "shell")
    channel = _known(channel if isinstance(channel, str) else "")
    if not all(isinstance(field, dict) for field in fields):
        raise _unreadable("header, parent_header, metadata and content must be objects", channel, fields[0])
    return channel, [*map(dumps, fields), *buffers]


def encode_message(number: int, channel: str, parts: Sequence[Part]) -> bytes:
    return _NUMBER.pack(MESSAGE, number) + encode_v1(channel, parts)


def encode_ack(number: int) -> bytes:
    return _NUMBER.pack(ACK, number)


def encode_attached(n: int, lost: int, seen: int) -> bytes:
    return _ATTACHED.pack(ATTACHED, n, lost, seen)


def decode_elastic(frame: Part) -> tuple[int, tuple[int, ...], Optional[memoryview]]:
    """``(kind, numbers, V1 frame or None)`` of a frame of ours."""
    view = memoryview(frame)
    try:
        kind = view[0] if len(view) else 0
        if kind == MESSAGE:
            return kind, _NUMBER.unpack_from(view)[1:], view[_NUMBER.size :]
        if kind == ACK:
            return kind, _NUMBER.unpack(view)[1:], None
        if kind == ATTACHED:
            return kind, _ATTACHED.unpack(view)[1:], None
    except struct.error:
        raise WireError("frame cut short") from None
    raise WireError(f"unknown kind of frame: {kind}")


def check_request(channel: str, parts: Sequence[Part]) -> dict[str, Any]:
    """The header of a message that a client sends; ``WireError`` where a kernel couldn't take it, ``RequestError`` where its sender
    can be answered all the same."""
    if channel == "iopub":
        raise WireError("clients don't send on iopub")
    if len(parts) < 4 or len(parts[0]) > _READ_BYTES:
        raise WireError(f"a message needs four parts and a header of at most {HEADER_BYTES >> 10} KiB")
    header = loads(parts[0])
    if len(parts[0]) > HEADER_BYTES:
        raise _unreadable(f"a message needs a header of at most {HEADER_BYTES >> 10} KiB", channel, header)
    for name in ("msg_id", "msg_type"):
        if not isinstance(header.get(name), str) or not header[name]:
            raise WireError(f"the header needs a {name} that is text")
    for part in parts[1:4]:
        if bytes(part[:1]) != b"{":
            raise _unreadable("parent_header, metadata and content must be objects", channel, header)
    return header


def dumps_str(text: str) -> bytes:
    return json.dumps(text).encode()


def _unreadable(why: str, channel: str, header: Any) -> WireError:
    """A ``RequestError`` where the header says, in short texts, who asks what."""
    fields = header if isinstance(header, dict) else {}
    short = {name: fields[name] for name in _ANSWERED if isinstance(fields.get(name), str) and 0 < len(fields[name]) <= 256}
    asks = channel in ("shell", "control") and "msg_id" in short and short.get("msg_type", "").endswith("_request")
    return RequestError(why, channel, short) if asks else WireError(why)


def _known(channel: str) -> str:
    if channel not in CHANNELS:
        raise WireError(f"unknown channel {channel[:20]!r}")
    return channel
