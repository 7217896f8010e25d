"""What a cluster costs: kernels as pods against bare pods, leases as slots against bare pods that request a GPU, all in one run.

Needs the cluster of ``python -m tests.cluster up``, whose gateway image is built from the repository.
"""

from __future__ import annotations

import asyncio
import multiprocessing
import random
import secrets
import tempfile
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager
from pathlib import Path
from statistics import median
from typing import Any

from jupyter_client import BlockingKernelClient

from gateway.backends.kubernetes import names
from gateway.backends.kubernetes.api import PODS, KubeApi
from gateway.backends.kubernetes.reflector import Reflector

from ..cluster import rig
from ..cluster.cluster import Cluster, shared
from ..cluster.images import KERNEL, build_image
from ..integration.machine import REPOSITORY, Machine, until
from ..integration.serving import GPU, Browser

PORTS = {"shell": 5555, "iopub": 5556, "stdin": 5557, "control": 5558, "hb": 5559}
LOCKED_DOWN = {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}}
SIMULATED_PARK = 0.05  # seconds, as the rig has it
IDLE_SECONDS = 60.0


class Witness:
    """When pods of a namespace were bound, as a watch of our own tells it."""

    def __init__(self, api: KubeApi, namespace: str, here: dict[str, str]) -> None:
        self.api, self.namespace, self.here = api, namespace, here
        self._bound: dict[str, float] = {}  # by uid
        self.watch = Reflector(api, PODS, namespace, on_event=self._told)

    def _told(self, kind: str, pod: dict[str, Any], old: dict[str, Any] | None) -> None:
        if pod["spec"].get("nodeName"):
            self._bound.setdefault(pod["metadata"]["uid"], time.perf_counter())

    async def bound(self, role: str) -> float:
        """When the one living pod of a role was bound."""

        def found(cache: dict[tuple[str, str], dict[str, Any]]) -> list[dict[str, Any]]:
            return [pod for pod in cache.values() if _role(pod) == role and pod["spec"].get("nodeName")]

        [pod] = await self.watch.wait_for(found)
        return self._bound[pod["metadata"]["uid"]]

    async def create(self, name: str, container: dict[str, Any]) -> None:
        container = {"name": "main", "image": KERNEL, "imagePullPolicy": "Never", "securityContext": LOCKED_DOWN, **container}
        security = {"runAsNonRoot": True, "runAsUser": 1000, "seccompProfile": {"type": "RuntimeDefault"}}
        spec = {
            "containers": [container], "securityContext": security, "terminationGracePeriodSeconds": 1, "restartPolicy": "Never",
            "automountServiceAccountToken": False, "nodeSelector": self.here,
        }  # fmt: skip
        metadata = {"name": name, "labels": {names.ROLE: "bare"}}
        await self.api.create(PODS, self.namespace, {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec})

    async def gone(self, role: str) -> None:
        await self.watch.wait_for(lambda cache: not any(_role(pod) == role for pod in cache.values()))

    async def delete(self, name: str) -> None:
        await self.api.delete(PODS, self.namespace, name)
        await self.gone("bare")


async def pods(tries: int = 5) -> dict[str, float]:
    """Kernel pods, warm kernels, leases and hand-overs on a cluster of this machine, each against the cluster's own bare pods."""
    async with _gateway(warm=1) as (gateway, witness):
        bare, ours, warm = [], [], []
        for at in range(tries):
            await _some_moment()
            bare.append(await _bare_kernel(witness, f"bare-{at}"))
            await _some_moment()
            ours.append(await asyncio.to_thread(_started, gateway, "gpu"))
            await asyncio.to_thread(until, lambda: 'elastic_warm_kernels{profile="warm"} 1' in gateway.call("GET", "/metrics").text)
            await asyncio.sleep(2.0)  # until its kernel has come up, too
            warm.append(await asyncio.to_thread(_started, gateway, "warm"))
        bound, slot, running = [], [], []
        with gateway.kernel("gpu") as one, gateway.kernel("gpu") as two:
            browsers = [one.open(), two.open()]
            for browser in browsers:
                await asyncio.to_thread(browser.run, "1")
            for at in range(tries):
                began = time.perf_counter()
                await witness.create(f"gpu-{at}", {"command": ["sleep", "60"], "resources": {"limits": {gateway.resource: "1"}}})
                bound.append(await witness.bound("bare") - began)
                await witness.delete(f"gpu-{at}")
                began = time.perf_counter()
                cell = browsers[0].begin(GPU + "print('runs')")
                seen = asyncio.create_task(witness.bound(names.ROLE_SLOT))
                ran = await asyncio.to_thread(_printed, browsers[0], cell)
                slot.append(await seen - began)
                running.append(ran - await seen - (SIMULATED_PARK if at else 0))  # from the second on its state comes back
                await asyncio.to_thread(until, lambda: gateway.call("POST", f"/api/gpu/kernels/{one.id}/release").ok)
                await witness.gone(names.ROLE_SLOT)
            plain = [await asyncio.to_thread(_timed, browser, "%%cpu\n1") for browser in browsers * tries]
            taken = [await asyncio.to_thread(_timed, browser, GPU + "1") for browser in browsers * tries][2:]
        figures = {
            "bare_kernel_s": median(bare), "kernel_pod_ratio": median(ours) / median(bare), "warm_claim_s": median(warm),
            "bare_bind_ms": 1000 * median(bound), "slot_bind_ratio": median(slot) / median(bound),
            "bound_to_running_ms": 1000 * median(running),
            "hand_over_ms": 1000 * (median(taken) - median(plain) - 2 * SIMULATED_PARK),
        }  # fmt: skip
    return {**figures, "api_requests_per_idle_kernel_minute": await _idle(), "stall_of_200_pods_ms": await _stall()}


async def _idle(kernels: int = 3) -> float:
    """Requests of a gateway to the API server while its kernels do nothing."""
    with tempfile.NamedTemporaryFile(prefix="asked-") as file:
        async with _gateway(program=(str(Path(__file__).with_name("counted.py")), file.name)) as (gateway, _):
            for kernel in [gateway.kernel("gpu") for _ in range(kernels)]:
                await asyncio.to_thread(kernel.open().run, "1")
            before = _number(file.name)
            await asyncio.sleep(IDLE_SECONDS)
            return (_number(file.name) - before) / kernels * 60 / IDLE_SECONDS


def _number(file: str) -> int:
    return int(Path(file).read_text())


async def _stall(count: int = 200) -> float:
    """The longest that the loop was held up while so many pods came, changed and went: in its own work, as the machine's other work
    holds up everybody."""
    async with _witness() as (cluster, witness):
        longest = 0.0

        async def look() -> None:
            nonlocal longest
            while True:
                began = time.thread_time()
                await asyncio.sleep(0.001)
                longest = max(longest, time.thread_time() - began)

        looking = asyncio.create_task(look())
        busy = multiprocessing.get_context("spawn").Process(target=_many_pods, args=(str(cluster.kubeconfig), witness.namespace, count))
        busy.start()
        await witness.watch.wait_for(lambda cache: len(cache) == count)
        await witness.watch.wait_for(lambda cache: not cache)
        await asyncio.to_thread(busy.join)
        looking.cancel()
        return 1000 * longest


def _many_pods(kubeconfig: str, namespace: str, count: int) -> None:
    """In a process of its own: pods that no node ever sees, each created, changed three times and deleted."""

    async def one(api: KubeApi, number: int, turn: asyncio.Semaphore) -> None:
        name, spec = f"pod-{number}", {"schedulingGates": [{"name": "elastic/never"}], "containers": [{"name": "main", "image": KERNEL}]}
        async with turn:
            await api.create(PODS, namespace, {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": spec})
            for change in range(3):
                await api.patch(PODS, namespace, name, {"metadata": {"labels": {"change": str(change)}}})

    async def all_of_them() -> None:
        api, turn = await KubeApi.connect(kubeconfig=kubeconfig), asyncio.Semaphore(16)
        await asyncio.gather(*(one(api, number, turn) for number in range(count)))
        await asyncio.gather(*(api.delete(PODS, namespace, f"pod-{number}") for number in range(count)))
        await api.close()

    asyncio.run(all_of_them())


async def _some_moment() -> None:
    """A kubelet looks at its containers once a second, and the end of a pod before falls together with such a look: what begins right
    then waits longest for the next ones."""
    await asyncio.sleep(random.random())


async def _bare_kernel(witness: Witness, name: str) -> float:
    """Seconds from a bare pod's creation to the first answer of the kernel in it."""
    options = ["--ip=0.0.0.0", "--Session.key=", *(f"--{channel}={port}" for channel, port in PORTS.items())]
    began = time.perf_counter()
    await witness.create(name, {"command": ["python", "-m", "ipykernel_launcher", *options], "env": [{"name": "HOME", "value": "/tmp"}]})
    key = witness.namespace, name
    pod = await witness.watch.wait_for(lambda cache: (pod := cache.get(key)) and pod["status"].get("podIP") and pod, key=key)

    def answered() -> float:
        client = BlockingKernelClient()
        client.load_connection_info(
            {"transport": "tcp", "ip": pod["status"]["podIP"], "key": b"", "signature_scheme": "hmac-sha256",
             **{f"{channel}_port": port for channel, port in PORTS.items()}}
        )  # fmt: skip
        client.start_channels(stdin=False, hb=False)
        client.kernel_info(reply=True, timeout=60)
        took = time.perf_counter() - began
        client.stop_channels()
        return took

    took = await asyncio.to_thread(answered)
    await witness.delete(name)
    return took


def _started(gateway: rig.PodGateway, name: str) -> float:
    """Seconds from the request to the first answer of the kernel."""
    began = time.perf_counter()
    with gateway.kernel(name) as kernel:
        kernel.open().ask("kernel_info_request")
        return time.perf_counter() - began


def _printed(browser: Browser, cell: str) -> float:
    browser.wait(lambda message: message["parent"] == cell and message["type"] == "stream")
    ran = time.perf_counter()
    browser.finish(cell)
    return ran


def _timed(browser: Browser, code: str) -> float:
    began = time.perf_counter()
    assert browser.run(code).status == "ok"
    return time.perf_counter() - began


@asynccontextmanager
async def _gateway(program: tuple[str, ...] | None = None, warm: int = 0) -> AsyncIterator[tuple[rig.PodGateway, Witness]]:
    async with AsyncExitStack() as stack:
        cluster, witness = await stack.enter_async_context(_witness())
        cluster.import_image(build_image(REPOSITORY / "images/gateway/Dockerfile", rig.GATEWAY_IMAGE, context=REPOSITORY))
        stack.enter_context(cluster.devices(rig.gpu_resource(witness.namespace), ["GPU-0"]))
        gateway = await asyncio.to_thread(stack.enter_context, _serving(cluster, witness.namespace, program, warm))
        yield gateway, witness


@contextmanager
def _serving(cluster: Cluster, namespace: str, program: tuple[str, ...] | None, warm: int) -> Iterator[rig.PodGateway]:
    machine = Machine(Path(tempfile.mkdtemp(prefix="bg", dir="/tmp")))
    try:
        kind = rig.PodGateway if program is None else type("Counted", (rig.PodGateway,), {"program": program})
        gateway = kind(machine, cluster, namespace, warm=warm)
        yield gateway
        gateway.end()
    finally:
        machine.clean()


@asynccontextmanager
async def _witness() -> AsyncIterator[tuple[Cluster, Witness]]:
    """A namespace of one's own on the shared cluster, watched."""
    cluster, namespace = shared(), f"bench-{secrets.token_hex(4)}"
    if cluster is None:
        raise SystemExit("No cluster is up: run `python -m tests.cluster up` first.")
    cluster.kubectl("create", "namespace", namespace)
    cluster.kubectl("wait", "serviceaccount/default", "-n", namespace, "--for=create", "--timeout=30s")
    api = await KubeApi.connect(kubeconfig=str(cluster.kubeconfig))
    witness = Witness(api, namespace, rig.on_gpu_node(cluster))
    witness.watch.start()
    try:
        await witness.watch.synced.wait()
        yield cluster, witness
    finally:
        await witness.watch.stop()
        await api.close()
        cluster.kubectl("delete", "namespace", namespace, "--wait=false")


def _role(pod: dict[str, Any]) -> str:
    return (
        ""
        if pod["metadata"].get("deletionTimestamp") and not pod["spec"].get("nodeName")
        else pod["metadata"]["labels"].get(names.ROLE, "")
    )
