"""Who may dial the link over the network: ZMQ asks here, by its authentication protocol (ZAP, RFC 27), before it lets a dialer in.

It knows one public key. It must never take a dialer's word for anything else, nor keep one for whom nobody asks.
"""

from __future__ import annotations

import hmac
import logging

import zmq
from zmq.utils.z85 import decode

from .reactor import Reactor, drain

log = logging.getLogger(__name__)

ADDRESS = "inproc://zeromq.zap.01"  # fixed by the protocol, one for each context
DOMAIN = b"link"
_VERSION = b"1.0"


class Zap:
    """Lets in, on the link's domain, whoever has the secret of ``client`` (Z85), and on the plain ports who knows their public key.

    Must be made before any socket of ``context`` that asks it is bound. Raises ``ValueError`` where ``client`` is no key.
    """

    def __init__(self, context: zmq.Context, client: str) -> None:
        self._client = decode(client.encode())
        if len(self._client) != 32:
            raise ValueError("a CURVE key has 40 characters")
        self._refused = 0
        self._socket = context.socket(zmq.REP)
        self._socket.linger = 0
        self._socket.bind(ADDRESS)

    def watch(self, reactor: Reactor) -> None:
        reactor.add(self._socket, lambda: drain(self._socket, self._asked))

    def close(self) -> None:
        self._socket.close()

    def _asked(self, frames: list[bytes]) -> None:
        request = frames[1] if len(frames) > 1 else b""
        if self._allowed(frames):
            code, text = b"200", b"OK"
        else:
            code, text = b"400", b"unknown key"
            self._refused += 1
            if self._refused & (self._refused - 1) == 0:  # the 1st, 2nd, 4th, 8th, ... so that a flood of them can't fill the log
                log.warning("refused a dialer of the link whose key is not the gateway's (%d so far)", self._refused)
        self._socket.send_multipart([_VERSION, request, code, text, b"", b""])

    def _allowed(self, frames: list[bytes]) -> bool:
        if len(frames) != 7 or frames[0] != _VERSION or frames[5] != b"CURVE":
            return False
        domain, key = frames[2], frames[6]
        return domain != DOMAIN or hmac.compare_digest(key, self._client)
