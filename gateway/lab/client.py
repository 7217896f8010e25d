"""A kernel client for programs that run notebooks through a gateway: nbclient, papermill, ``jupyter execute``.

jupyter_server's own sends no credentials on its websocket and stops listening for good at the first binary message. This one must never
put a token into an address, where logs would show it.
"""

from __future__ import annotations

from threading import Thread
from typing import Any

import websocket
from jupyter_client.client import KernelClient
from jupyter_core.utils import ensure_async
from jupyter_server.gateway.gateway_client import GatewayClient
from jupyter_server.gateway.managers import GatewayKernelClient
from jupyter_server.utils import url_escape, url_path_join

from ..protocol.errors import WireError
from ..protocol.websocket import decode_legacy
from ..protocol.wire import loads


class ElasticGatewayKernelClient(GatewayKernelClient):
    """One kernel on the gateway, over a websocket of the legacy protocol."""

    async def start_channels(
        self, shell: bool = True, iopub: bool = True, stdin: bool = True, hb: bool = True, control: bool = True
    ) -> None:
        """Connect with the credentials of ``GatewayClient``. Raises what the websocket raises, such as a refused handshake."""
        gateway = GatewayClient.instance()
        headers = gateway.load_connection_args().get("headers", {})
        self.channel_socket = websocket.create_connection(
            url_path_join(gateway.ws_url or "", gateway.kernels_endpoint, url_escape(self.kernel_id), "channels"),
            timeout=gateway.KERNEL_LAUNCH_TIMEOUT,
            enable_multithread=True,
            skip_utf8_validation=True,  # it takes half a second a megabyte, and the gateway sends nothing else
            header=[f"{name}: {value}" for name, value in headers.items()],
            sslopt={"ca_certs": gateway.ca_certs, "certfile": gateway.client_cert, "keyfile": gateway.client_key},
        )
        self.channel_socket.settimeout(None)  # a cell may be silent for as long as it likes
        await ensure_async(KernelClient.start_channels(self, shell=shell, iopub=iopub, stdin=stdin, hb=hb, control=control))
        self.response_router = Thread(target=self._route_responses, daemon=True)
        self.response_router.start()

    def stop_channels(self) -> None:
        """Also where the connection was never made."""
        if self.channel_socket is not None and self.response_router is not None:
            super().stop_channels()

    def _route_responses(self) -> None:
        """Until the socket is closed: each message to the queue of its channel."""
        queues: dict[str, Any] = self._channel_queues or {}
        try:
            while not self._channels_stopped and (frame := self.channel_socket.recv()):
                try:
                    channel, parts = decode_legacy(frame)
                except WireError as exc:
                    self.log.warning("Dropped a message of the gateway's that can't be read: %s", exc)
                    continue
                header, parent, metadata, content = map(loads, parts[:4])
                message = {
                    "channel": channel, "header": header, "parent_header": parent, "metadata": metadata, "content": content,
                    "msg_id": header.get("msg_id"), "msg_type": header.get("msg_type"), "buffers": [memoryview(part) for part in parts[4:]],
                }  # fmt: skip
                if channel in queues:
                    queues[channel].put_nowait(message)
        except (websocket.WebSocketException, OSError) as exc:
            if not self._channels_stopped:
                self.log.warning("The connection to the gateway has ended: %s", exc)
        finally:
            for queue in queues.values():
                queue.response_router_finished = True
