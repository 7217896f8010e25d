"""What it costs the gateway that browser pages show its GPUs."""

from __future__ import annotations

import asyncio
import os
import time
from pathlib import Path

from tornado.httpclient import HTTPRequest
from tornado.simple_httpclient import SimpleAsyncHTTPClient

from .rig import Gateway

TICKS = os.sysconf("SC_CLK_TCK")


def processor_seconds(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / TICKS


async def pages(count: int = 40, seconds: float = 15.0, changes: float = 4.0) -> dict[str, float]:
    """Milliseconds of the gateway's processor time a second and page: nothing happens, and a lease changes four times a second."""
    gateway = Gateway(ElasticGateway__simulated_gpus=1)
    events = 0
    client = SimpleAsyncHTTPClient(force_instance=True, max_clients=count)

    def heard(piece: bytes) -> None:
        nonlocal events
        events += piece.count(b"event: ")

    async def used(kernel_id: str | None) -> float:
        """Processor seconds a second, with a changing lease or none."""
        began, before, end = time.monotonic(), processor_seconds(gateway.process.pid), time.monotonic() + seconds
        held = 600
        while time.monotonic() < end:
            if kernel_id is not None:
                held += 1
                await gateway.request("POST", f"/api/gpu/kernels/{kernel_id}/hold", {"seconds": held})
            await asyncio.sleep(1 / changes)
        return (processor_seconds(gateway.process.pid) - before) / (time.monotonic() - began)

    readers: list[asyncio.Future[object]] = []
    try:
        await gateway.up()
        browser = await gateway.kernel()
        await browser.run("1")
        alone = await used(None), await used(browser.kernel_id)
        for _ in range(count):
            request = HTTPRequest(f"{gateway.url}/api/gpu/events", headers=gateway.headers, request_timeout=0, streaming_callback=heard)
            readers.append(asyncio.ensure_future(client.fetch(request, raise_error=False)))
        await asyncio.sleep(2)
        quiet = await used(None)
        events = 0
        changing = await used(browser.kernel_id)
        told = events / count / seconds
        await browser.delete()
    finally:
        gateway.close()
        await asyncio.gather(*readers, return_exceptions=True)
        client.close()
    return {
        "pages": count,
        "quiet_ms": 1000 * (quiet - alone[0]) / count,
        "changing_ms": 1000 * (changing - alone[1]) / count,
        "events_a_second": told,
    }
