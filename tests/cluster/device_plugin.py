"""A device plugin for the tests: a node's kubelet takes it for real, and gives its devices to pods; the devices themselves are names.

It speaks the kubelet's plugin interface (v1beta1) over the sockets that every real plugin uses. Messages are so few and small that they
are written by hand; numbers and fields are those of Kubernetes' ``deviceplugin/v1beta1/api.proto``.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import grpc

VARIABLE = "NVIDIA_VISIBLE_DEVICES"  # by which NVIDIA's plugin tells a container what it got
SECONDS = 10.0  # for the kubelet to answer


class DevicePlugin:
    """Offers ``resource`` to the kubelet whose sockets lie in ``folder``; ``given`` are the devices of each allocation, oldest first."""

    def __init__(self, folder: Path, resource: str) -> None:
        self.given: list[list[str]] = []
        self._resource, self._folder = resource, folder
        self._devices: list[str] = []
        self._news, self._ended = threading.Condition(), False
        self._socket = folder / f"{resource.replace('/', '-')}.sock"
        self._socket.unlink(missing_ok=True)
        self._server = grpc.server(ThreadPoolExecutor(8))
        answers = {
            "GetDevicePluginOptions": grpc.unary_unary_rpc_method_handler(lambda request, context: b""),
            "Allocate": grpc.unary_unary_rpc_method_handler(self._allocate),
            "ListAndWatch": grpc.unary_stream_rpc_method_handler(self._list_and_watch),
        }
        self._server.add_generic_rpc_handlers([grpc.method_handlers_generic_handler("v1beta1.DevicePlugin", answers)])
        self._server.add_insecure_port(f"unix:{self._socket}")
        self._server.start()

    def register(self) -> None:
        """Tell the kubelet, which then asks for the devices."""
        request = field(1, "v1beta1") + field(2, self._socket.name) + field(3, self._resource)
        with grpc.insecure_channel(f"unix:{self._folder / 'kubelet.sock'}") as channel:
            channel.unary_unary("/v1beta1.Registration/Register")(request, timeout=SECONDS, wait_for_ready=True)

    def offer(self, devices: Sequence[str]) -> None:
        """These are there and healthy, no others."""
        with self._news:
            self._devices = list(devices)
            self._news.notify_all()

    def close(self) -> None:
        with self._news:
            self._ended = True
            self._news.notify_all()
        self._server.stop(None).wait(SECONDS)
        self._socket.unlink(missing_ok=True)

    def _list_and_watch(self, request: bytes, context: Any) -> Iterator[bytes]:
        told: list[str] | None = None
        while context.is_active():
            with self._news:
                self._news.wait_for(lambda: self._ended or self._devices != told, 1.0)  # noqa: B023 - called at once
                if self._ended:
                    return
                if self._devices == told:
                    continue
                told = self._devices
            yield b"".join(field(1, field(1, device) + field(2, "Healthy")) for device in told)

    def _allocate(self, request: bytes, context: Any) -> bytes:
        """For each container the environment that names its devices."""
        answer = b""
        for _, container in fields(request):
            devices = [device.decode() for _, device in fields(container)]
            self.given.append(devices)
            answer += field(1, field(1, field(1, VARIABLE) + field(2, ",".join(devices))))
        return answer


def field(number: int, value: str | bytes) -> bytes:
    """A text, or a message, as protobuf has it."""
    data = value.encode() if isinstance(value, str) else value
    return bytes([number << 3 | 2]) + _varint(len(data)) + data


def _varint(number: int) -> bytes:
    out = bytearray()
    while number > 0x7F:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    return bytes([*out, number])


def fields(message: bytes) -> list[tuple[int, bytes]]:
    """Number and value of each field, of a message that has texts and messages alone."""
    found, at = [], 0
    while at < len(message):
        number, length, shift, at = message[at] >> 3, 0, 0, at + 1
        assert message[at - 1] & 7 == 2, "a field that is no text"
        while True:
            byte, at = message[at], at + 1
            length, shift = length | (byte & 0x7F) << shift, shift + 7
            if byte < 0x80:
                break
        found.append((number, message[at : at + length]))
        at += length
    return found
