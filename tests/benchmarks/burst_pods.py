"""A cell on the pods of a Job, beside a Job of the same image that kubectl makes, each until its first line is seen.

Needs the cluster of ``python -m tests.cluster up``.
"""

from __future__ import annotations

import asyncio
import json
import time
from statistics import median

from gateway.backends.kubernetes import names

from ..cluster.cluster import Cluster, CommandFailed
from ..cluster.images import KERNEL
from ..cluster.rig import PodGateway
from ..integration.machine import until
from ..integration.serving import Browser
from .pods import LOCKED_DOWN, Witness, _gateway, _printed, _some_moment

WORKERS = 2
CELL = f"%%distributed -w {WORKERS} -e none\nprint('first', flush=True)"


async def burst_pods(tries: int = 5) -> dict[str, float]:
    """Seconds to the first line of a cell on two pods, and of the same Job by kubectl."""
    ours, theirs = [], []
    async with _gateway() as (gateway, witness):
        with gateway.kernel("gpu") as kernel:
            browser = kernel.open()
            await asyncio.to_thread(browser.run, "1")
            for at in range(tries):
                await _some_moment()
                ours.append(await asyncio.to_thread(_first_line, browser))
                await asyncio.to_thread(until, lambda: not gateway.pods(names.ROLE_RANK))
                await _some_moment()
                theirs.append(await asyncio.to_thread(_by_kubectl, gateway, witness, f"bare-{at}"))
    return {"first_line_s": median(ours), "kubectl_s": median(theirs), "first_line_over_kubectl": median(ours) / median(theirs)}


def _first_line(browser: Browser) -> float:
    began = time.perf_counter()
    return _printed(browser, browser.begin(CELL)) - began


def _by_kubectl(gateway: PodGateway, witness: Witness, name: str) -> float:
    security = {"runAsNonRoot": True, "runAsUser": 1000, "seccompProfile": {"type": "RuntimeDefault"}}
    container = {"name": "main", "image": KERNEL, "imagePullPolicy": "Never", "securityContext": LOCKED_DOWN,
                 "command": ["python", "-c", "print('first', flush=True)"]}  # fmt: skip
    pod = {"containers": [container], "securityContext": security, "restartPolicy": "Never", "nodeSelector": witness.here}
    spec = {"completions": WORKERS, "parallelism": WORKERS, "completionMode": "Indexed", "template": {"spec": pod}}
    job = {"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": name, "namespace": witness.namespace}, "spec": spec}
    cluster: Cluster = gateway.cluster
    began = time.perf_counter()
    cluster.kubectl("create", "-f", "-", stdin=json.dumps(job))
    while True:
        try:
            said = cluster.kubectl("logs", "-f", f"job/{name}", "-n", witness.namespace, "--pod-running-timeout=60s")
        except CommandFailed:
            continue  # its pods are not there yet
        if "first" in str(said):
            break
    took = time.perf_counter() - began
    cluster.kubectl("delete", "job", name, "-n", witness.namespace, "--cascade=foreground")
    return took
