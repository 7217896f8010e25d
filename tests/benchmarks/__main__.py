"""``python -m tests.benchmarks [NAME ...] [--json]``: every figure of speed and size, as ratios within one run.

Each measurement alternates between the two things that it compares, so that a noisy machine hurts both alike.
"""

from __future__ import annotations

import argparse
import asyncio
import inspect
import itertools
import json
import random
import time
from collections.abc import Callable
from typing import Any

from . import stalls as stalls_extension
from .burst_pods import burst_pods
from .bursts import bursts
from .capture import capture
from .month import month
from .pages import pages
from .pods import pods
from .rig import Bare, Browser, Gated, Gateway, Lab, run_plain

GPU = "%%gpu\n"
STALLS = stalls_extension.__name__


def quantile(values: list[float], share: float) -> float:
    return sorted(values)[min(len(values) - 1, int(len(values) * share))]


async def round_trip() -> dict[str, float]:
    """Milliseconds from sending ``1`` to its reply and idle: bare kernel, gate alone, websocket with the lease held, the same by way of
    a user's JupyterLab server."""
    bare, gated, gateway = Bare(), Gated(), Gateway(ElasticGateway__simulated_gpus=2, Leases__idle_timeout=600.0)
    servers: list[Any] = [bare, gated, gateway]
    try:
        await gateway.up()
        lab = Lab(gateway)
        servers.append(lab)
        await lab.up()
        browsers = {"websocket": await gateway.kernel(), "lab": await lab.kernel()}
        times: dict[str, list[float]] = {"bare": [], "gate": [], "websocket": [], "lab": []}
        for _ in range(12):
            for name, one in (("bare", bare.client), ("gate", gated.client)):
                for _ in range(40):
                    started = time.perf_counter()
                    run_plain(one, GPU + "1" if name == "gate" else "1")
                    times[name].append(1000 * (time.perf_counter() - started))
            for name, browser in browsers.items():
                await browser.run(GPU + "1")  # each has its lease before it is measured
                for _ in range(40):
                    started = time.perf_counter()
                    await browser.run(GPU + "1")
                    times[name].append(1000 * (time.perf_counter() - started))
        for browser in browsers.values():
            await browser.delete()
    finally:
        for each in reversed(servers):
            each.close()
    p50 = {name: quantile(values, 0.5) for name, values in times.items()}
    p99 = {name: quantile(values, 0.99) for name, values in times.items()}
    return {
        "bare_p50_ms": p50["bare"], "bare_p99_ms": p99["bare"], "gate_p50_ms": p50["gate"], "websocket_p50_ms": p50["websocket"],
        "gate_over_bare_p50": p50["gate"] / p50["bare"], "gate_over_bare_p99": p99["gate"] / p99["bare"],
        "websocket_over_bare_p50": p50["websocket"] / p50["bare"], "websocket_over_bare_p99": p99["websocket"] / p99["bare"],
        "lab_p50_ms": p50["lab"], "lab_over_bare_p50": p50["lab"] / p50["bare"], "lab_over_bare_p99": p99["lab"] / p99["bare"],
    }  # fmt: skip


async def flood(lines: int = 50_000) -> dict[str, float]:
    """Lines a second of so many flushed prints, bare and through the gateway; all of them have to arrive."""
    code = f"for i in range({lines}): print(i, flush=True)"
    bare, gateway = Bare(), Gateway()
    try:
        await gateway.up()
        browser = await gateway.kernel(KERNEL_GPUS="0")
        await browser.run("1")
        started = time.perf_counter()
        run_plain(bare.client, code)
        bare_rate = lines / (time.perf_counter() - started)
        before = browser.lines
        started = time.perf_counter()
        await browser.run(code)
        rate = lines / (time.perf_counter() - started)
        missing = lines - (browser.lines - before)
        await browser.delete()
    finally:
        bare.close()
        gateway.close()
    return {"bare_per_second": bare_rate, "gateway_per_second": rate, "gateway_over_bare": rate / bare_rate, "lines_missing": missing}


async def payloads() -> dict[str, float]:
    """Seconds for a 100 MB display and a 50 MB binary comm through the gateway."""
    gateway = Gateway()
    try:
        await gateway.up()
        browser = await gateway.kernel(KERNEL_GPUS="0")
        await browser.run("from IPython.display import display")
        started = time.perf_counter()
        await browser.run("display({'text/plain': 'y' * 100_000_000}, raw=True)")
        display = time.perf_counter() - started
        echo = "def opened(comm, m):\n    comm.on_msg(lambda m: comm.send({}, buffers=m['buffers']))\n"
        await browser.run(echo + "get_ipython().kernel.comm_manager.register_target('echo', opened)")
        await browser.send("comm_open", {"comm_id": "c", "target_name": "echo", "data": {}})
        started = time.perf_counter()
        sent = bytes(50_000_000)
        await browser.send("comm_msg", {"comm_id": "c", "data": {}}, (sent,))
        while True:
            header, parts = await browser.receive()
            if header["msg_type"] == "comm_msg":
                break
        assert bytes(parts[4]) == sent
        comm = time.perf_counter() - started
        await browser.delete()
    finally:
        gateway.close()
    return {"display_100mb_seconds": display, "comm_50mb_echo_seconds": comm}


async def lease(moves: int = 10) -> dict[str, float]:
    """What a lease adds to a cell: held already, and taken from an idle kernel whose park and resume cost is set."""
    park = 0.2
    gateway = Gateway(
        ElasticGateway__simulated_gpus=1, SimulatedGpu__park_seconds=park, SimulatedGpu__seconds_per_gb=0.0, Leases__idle_timeout=600.0,
        Leases__min_hold=0.0,
    )  # fmt: skip
    try:
        await gateway.up()
        ours, theirs = await gateway.kernel(), await gateway.kernel()
        for browser in (ours, theirs):
            await browser.run(GPU + "1")
        warm, plain, taken = [], [], []

        async def timed(browser: Browser, code: str) -> float:
            started = time.perf_counter()
            await browser.run(code)
            return 1000 * (time.perf_counter() - started)

        for _ in range(100):
            plain.append(await timed(theirs, "%%cpu\n1"))
            warm.append(await timed(theirs, GPU + "1"))
        for _ in range(moves):
            for browser in (ours, theirs):
                taken.append(await timed(browser, GPU + "1"))
                await asyncio.sleep(0.05)
        for browser in (ours, theirs):
            await browser.delete()
    finally:
        gateway.close()
    return {
        "warm_lease_adds_ms": quantile(warm, 0.5) - quantile(plain, 0.5), "set_cost_ms": 2000 * park,
        "taking_adds_p50_ms": quantile(taken, 0.5) - 2000 * park - quantile(plain, 0.5),
        "taking_adds_max_ms": max(taken) - 2000 * park - quantile(plain, 0.5),
    }  # fmt: skip


async def supervisor(starts: int = 5) -> dict[str, float]:
    """Resident memory of a supervisor, and what it adds to the start of a kernel."""
    bare_starts, gated_starts, resident = [], [], 0
    for _ in range(starts):
        for kind, found in ((Bare, bare_starts), (Gated, gated_starts)):
            one = kind()
            found.append(1000 * one.start_seconds)
            if isinstance(one, Gated):
                run_plain(one.client, "1")
                resident = max(resident, one.resident_bytes)
            one.close()
    bare, gated = quantile(bare_starts, 0.5), quantile(gated_starts, 0.5)
    return {"resident_mb": resident / 1e6, "bare_start_ms": bare, "start_adds_ms": gated - bare}


async def many(kernels: int = 100, seconds: float = 15.0) -> dict[str, float]:
    """A gateway with so many kernels, some of them busy: how long its event loop stalls, and how late an HTTP answer comes."""
    gateway = Gateway(ElasticGateway__simulated_gpus=4, ServerApp__jpserver_extensions={STALLS: True})
    try:
        await gateway.up()
        started = time.perf_counter()
        browsers: list[Browser] = []
        for at in range(0, kernels, 5):
            browsers += await asyncio.gather(*(gateway.kernel(KERNEL_GPUS="0") for _ in range(min(5, kernels - at))))
        await asyncio.gather(*(browser.run("1") for browser in browsers))
        start = time.perf_counter() - started
        await asyncio.sleep(5.0)
        late, end = [], time.perf_counter() + seconds
        await gateway.request("POST", "/stalls")

        async def work(browser: Browser) -> None:
            while time.perf_counter() < end:
                await browser.run("1")
                await asyncio.sleep(0.5)

        workers = [asyncio.create_task(work(browser)) for browser in browsers[:20]]
        while time.perf_counter() < end:
            asked = time.perf_counter()
            await gateway.request("GET", "/api")
            late.append(1000 * (time.perf_counter() - asked))
            await asyncio.sleep(0.01)
        await asyncio.gather(*workers)
        stalls = await gateway.request("GET", "/stalls")
        for ten in range(0, kernels, 10):
            await asyncio.gather(*(browser.delete() for browser in browsers[ten : ten + 10]))
    finally:
        gateway.close()
    return {
        "kernels": kernels, "start_seconds": start,
        "stall_p50_ms": quantile(stalls["late"], 0.5), "stall_p99_ms": quantile(stalls["late"], 0.99),
        "computed_p99_ms": quantile(stalls["computed"], 0.99), "computed_max_ms": max(stalls["computed"]),
        "answer_p50_ms": quantile(late, 0.5), "answer_p99_ms": quantile(late, 0.99),
    }  # fmt: skip


async def two_users(minutes: float = 1.0) -> dict[str, float]:
    """Two users, one GPU, cells back to back for so many minutes: never two holders, and fair turns."""
    gateway = Gateway(ElasticGateway__simulated_gpus=1, SimulatedGpu__park_seconds=0.1, Leases__min_hold=2.0)
    try:
        await gateway.up()
        end = time.monotonic() + 60 * minutes
        spans: dict[str, list[tuple[float, float]]] = {"ana": [], "ben": []}
        waits: list[float] = []
        holders_at_once = looks = 0

        async def work(user: str) -> None:
            browser = await gateway.kernel(KERNEL_USERNAME=user)
            while time.monotonic() < end:
                took = random.choice((0.02, 0.1, 0.5, 1.5))
                sent = time.monotonic()
                code = f"import time; t = time.monotonic(); time.sleep({took}); print(t, time.monotonic())"
                began, ended = map(float, (await browser.text(GPU + code)).split())
                spans[user].append((began, ended))
                waits.append(began - sent)
                if random.random() < 0.05:
                    await asyncio.sleep(random.uniform(0, 4))
            await browser.delete()

        workers = [asyncio.create_task(work(user)) for user in spans]
        while not all(worker.done() for worker in workers):
            leases = (await gateway.request("GET", "/api/gpu"))["leases"]
            holders_at_once = max(holders_at_once, sum(bool(lease["gpus"]) for lease in leases))
            looks += 1
            await asyncio.sleep(0.05)
        await asyncio.gather(*workers)
    finally:
        gateway.close()
    both = sorted((span, user) for user, found in spans.items() for span in found)
    overlaps = sum(a[1] != b[1] and b[0][0] < a[0][1] for a, b in itertools.pairwise(both))
    used = {user: sum(ended - began for began, ended in found) for user, found in spans.items()}
    return {
        "cells": len(both), "overlapping_cells": overlaps, "looks": looks, "most_holders_at_once": holders_at_once,
        "share_of_ana": used["ana"] / sum(used.values()), "turns": sum(a[1] != b[1] for a, b in itertools.pairwise(both)),
        "wait_p50_s": quantile(waits, 0.5), "wait_p99_s": quantile(waits, 0.99), "wait_max_s": max(waits),
    }  # fmt: skip


BENCHMARKS: dict[str, Callable[..., Any]] = {
    f.__name__: f for f in (round_trip, flood, payloads, lease, supervisor, many, two_users, pages, capture, bursts, month)
}
ON_A_CLUSTER: dict[str, Callable[..., Any]] = {"pods": pods, "burst_pods": burst_pods}


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.benchmarks", description=__doc__)
    parser.add_argument(
        "names", nargs="*", choices=[*BENCHMARKS, *ON_A_CLUSTER, []], help="which ones; all that need no cluster, where none is named"
    )
    parser.add_argument("--minutes", type=float, default=1.0, help="how long two_users work")
    parser.add_argument("--json", action="store_true", help="one JSON object instead of a table")
    chosen = parser.parse_args()
    figures = {}
    for name in chosen.names or BENCHMARKS:
        measure = {**BENCHMARKS, **ON_A_CLUSTER}[name]
        figures[name] = asyncio.run(measure(**({"minutes": chosen.minutes} if name == "two_users" else {})))
        if not chosen.json:
            print(f"{name}: {inspect.getdoc(measure)}")
            for key, value in figures[name].items():
                print(f"  {key:28} {value:10.2f}")
    if chosen.json:
        print(json.dumps(figures, indent=1))


if __name__ == "__main__":
    main()
