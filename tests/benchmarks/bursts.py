"""Cells on many workers of this machine: how soon they are through, what a gigabyte costs on its way, how soon a stop or a loss is over."""

from __future__ import annotations

import asyncio
import os
import signal
import tempfile
import time
from importlib.util import find_spec
from pathlib import Path
from statistics import median

import numpy

from ..integration.test_burst_engines import DIGITS, TRAINING
from ..integration.test_bursts_elastic import pid, step, stepping
from .capture import RANKS, Receiver, to_all
from .rig import PATIENCE, Browser, Gateway, loads

PLAIN = f"%%distributed -w {RANKS} -e none\n"
PEAK = "import resource; print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024)"


async def bursts(tries: int = 3, gigabytes: float = 1.0) -> dict[str, float]:
    """Seconds of ``%%distributed`` cells, and their arrays beside the same bytes through bare sockets. DDP only where torch is."""
    gateway = Gateway(ElasticGateway__simulated_gpus=0, Bursts__grow_after=1.0)
    try:
        await gateway.up()
        browser = await gateway.kernel(KERNEL_GPUS="0")
        plain = [await _timed(browser, f"{PLAIN}made = RANK") for _ in range(tries)]
        figures = {"plain_cell_s": median(plain)}
        if find_spec("torch") and find_spec("sklearn"):
            await browser.run(DIGITS)
            figures["ddp_cell_s"] = median([await _timed(browser, TRAINING) for _ in range(tries)])
        figures |= await _arrays(browser, median(plain), tries, gigabytes)
        figures["interrupt_s"] = median([await _interrupted(browser) for _ in range(tries)])
        figures |= await _changes(gateway, browser)
        await browser.delete()
    finally:
        gateway.close()
    return figures


async def _timed(browser: Browser, code: str) -> float:
    began = time.perf_counter()
    await browser.run(code)
    return time.perf_counter() - began


async def _arrays(browser: Browser, plain: float, tries: int, gigabytes: float) -> dict[str, float]:
    """What a burst takes longer with so many bytes than with none."""
    count = 4
    each = int(gigabytes * 1e9 / 8 / count)
    arrays = {f"a{n}": numpy.full(each, 1.0) for n in range(count)}
    await browser.run("import numpy\n" + "\n".join(f"{name} = numpy.full({each}, 1.0)" for name in arrays))
    cell = f"{PLAIN}total = " + " + ".join(f"{name}.sum()" for name in arrays)
    before = int(await browser.text(PEAK))
    ours, bare = [], []
    for _ in range(tries):
        ours.append(await _timed(browser, cell) - plain)
        receivers = [Receiver("bare") for _ in range(RANKS)]
        began = time.perf_counter()
        await asyncio.to_thread(to_all, receivers, list(arrays.values()))
        bare.append(time.perf_counter() - began)
        for receiver in receivers:
            receiver.close()
    more = int(await browser.text(PEAK)) - before
    return {
        "gigabytes": gigabytes, "arrays_s": min(ours), "bare_copy_s": min(bare), "bare_copy_over_arrays": min(bare) / min(ours),
        "more_memory_in_the_kernel_mb": more / 1e6,
    }  # fmt: skip


async def _interrupted(browser: Browser) -> float:
    """Seconds from the stop button to the cell's reply."""
    sent = await browser.begin(f"{PLAIN}import time\nprint('begun', flush=True)\ntime.sleep(600)")
    began = 0.0
    while True:
        header, parts = await browser.receive()
        if header["msg_type"] == "stream" and not began and "begun" in loads(parts[3])["text"]:
            began = time.perf_counter()
            await browser.gateway.request("POST", f"/api/kernels/{browser.kernel_id}/interrupt")
        if header["msg_type"] == "execute_reply" and loads(parts[1]).get("msg_id") == sent:
            return time.perf_counter() - began


async def _changes(gateway: Gateway, browser: Browser) -> dict[str, float]:
    """Seconds from a change to the first step after it: a worker killed, one more asked for."""
    with tempfile.TemporaryDirectory(prefix="steps-") as name:
        folder = Path(name)
        cell = stepping(folder, "-w 1:2 -e none --name changing --save-every 1s", steps=100_000)
        await browser.begin(cell)
        await _until(lambda: step(folder) > 10)
        await gateway.request("POST", "/api/bursts/changing/scale", {"workers": 1})
        await _until(lambda: _alone(folder))
        began = time.perf_counter()
        await gateway.request("POST", "/api/bursts/changing/scale", {"workers": 2})
        await _until(lambda: step(folder, 1) >= 0)
        grown = time.perf_counter() - began
        await _until(lambda: step(folder, 1) > 30)
        at = step(folder, 1)
        began = time.perf_counter()
        os.kill(pid(folder, 1), signal.SIGKILL)
        killed = pid(folder, 1)
        await _until(lambda: pid(folder, 1) != killed and step(folder, 1) > at)
        resumed = time.perf_counter() - began
        await gateway.request("DELETE", "/api/bursts/changing")
        while (await browser.receive())[0]["msg_type"] != "execute_reply":
            pass
    return {"one_more_worker_s": grown, "killed_worker_s": resumed}


def _alone(folder: Path) -> bool:
    """Rank 1 is no more, if it ever was; its note goes, so that the next one is seen to come."""
    before = step(folder, 1)
    time.sleep(1)
    if step(folder, 1) != before:
        return False
    (folder / "step1").unlink(missing_ok=True)
    return True


async def _until(true: object, seconds: float = PATIENCE) -> None:
    end = time.monotonic() + seconds
    while not true():  # type: ignore[operator]
        if time.monotonic() > end:
            raise TimeoutError("what was waited for did not happen")
        await asyncio.sleep(0.02)
