"""A whole gateway on the double's machine: kernels with device memory share real (doubled) GPUs and lose nothing."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from ..doubles.cuda import GIB, HERE, MIB, MISSING, Effect, Node, Op
from .machine import PATIENCE, Machine, until
from .serving import Browser, Gateway, Kernel, free_port

pytestmark = pytest.mark.skipif(bool(MISSING), reason=MISSING)
GPU = "%%gpu\n"
START = f"import sys; sys.path.insert(0, {str(HERE)!r}); import device; device.start()\n"


@pytest.fixture
def node(tmp_path: Path, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[Node]:
    node = Node(tmp_path, **{"memory": 1300 * MIB, "context": 64 * MIB, **getattr(request, "param", {})})
    for name, value in node.env.items():
        monkeypatch.setenv(name, value)
    yield node
    node.close()


@pytest.fixture
def serve(node: Node, tmp_path: Path) -> Iterator[Callable[..., Gateway]]:
    """A gateway that finds the double's GPUs, set further by the keywords ``Class={"setting": value}``."""
    machine = Machine(Path(tempfile.mkdtemp(prefix="eg", dir="/tmp")))
    served: list[Gateway] = []

    def serve(**config: dict[str, object]) -> Gateway:
        machine.configure(Leases={"min_hold": 0.0, "park_backoff": 1.0}, LocalBackend={"lock_dir": str(tmp_path)}, **config)
        served.append(Gateway(machine))
        return served[-1]

    yield serve
    for gateway in served:
        print(gateway.log)  # shown where a test fails
        if gateway.process.poll() is None:
            gateway.call("POST", "/api/shutdown", json={"kernels": True})
            gateway.process.wait(PATIENCE)
    machine.clean()


def begin(size: int) -> str:
    return f"{GPU}{START}m = device.Memory({size}); m.write(bytes(8), {size // 2})"


def count(size: int) -> str:
    return f"{GPU}n = int.from_bytes(m.read(8, {size // 2}), 'big') + 1; m.write(n.to_bytes(8, 'big'), {size // 2}); print(n)"


def take_turns(open_: Callable[[Kernel], Browser], kernels: list[Kernel], size: int, turns: int) -> None:
    """Each kernel's counter lies on the GPU alone, which holds one of them at a time."""
    browsers = [open_(kernel) for kernel in kernels]
    for browser in browsers:
        assert browser.run(begin(size)).status == "ok"
    for turn in range(turns):
        for browser in browsers:
            cell = browser.run(count(size))
            assert (cell.status, cell.out) == ("ok", f"{turn + 1}\n"), cell


def test_two_kernels_whose_state_does_not_fit_together_take_turns(node: Node, serve: Callable[..., Gateway]) -> None:
    gateway = serve()
    (gpu,) = gateway.gpu()["gpus"]
    assert (gpu["uuid"], gpu["rung"], gpu["simulated"]) == (node.uuids[0], "anywhere", False)
    with gateway.kernel() as one, gateway.kernel() as two:
        take_turns(Kernel.open, [one, two], 640 * MIB, 5)
        until(lambda: {one.lease["phase"], two.lease["phase"]} == {"PARKED", "HOLDING"})
        assert one.lease["parked_bytes"] + two.lease["parked_bytes"] == 704 * MIB
    until(lambda: node.used() == 0)


@pytest.mark.parametrize("node", [{"gpus": 2, "memory": 2 * GIB}], indirect=True)
def test_a_kernel_that_sees_all_gpus_resumes_on_whichever_is_free(node: Node, serve: Callable[..., Gateway]) -> None:
    gateway = serve(ElasticGateway={"visible_devices": "all"})
    assert {gpu["rung"] for gpu in gateway.gpu()["gpus"]} == {"anywhere"}
    with gateway.kernel() as mover, gateway.kernel() as one, gateway.kernel() as two:
        browser = mover.open()
        home = browser.run(begin(100 * MIB) + "; print(device.device_uuid())").out.strip()
        assert gateway.call("POST", f"/api/gpu/kernels/{mover.id}/release").ok
        until(lambda: mover.lease["phase"] == "PARKED")
        others = {kernel.id: kernel.open() for kernel in (one, two)}
        long = {number: other.begin(f"{GPU}import time\ntime.sleep(60)") for number, other in others.items()}
        until(lambda: one.lease["executing"] and two.lease["executing"])
        stays, goes = (one, two) if one.lease["gpus"] == [home] else (two, one)
        moved = browser.begin(count(100 * MIB) + "; print(device.device_uuid())")
        until(lambda: mover.lease["phase"] == "WAITING")
        assert goes.call("POST", "/interrupt").ok
        others[goes.id].finish(long[goes.id])
        assert browser.finish(moved).out.split() == ["1", *({*node.uuids} - {home})]
        assert stays.call("POST", "/interrupt").ok
        others[stays.id].finish(long[stays.id])


@pytest.mark.parametrize("node", [{"gpus": 2, "memory": 2 * GIB}], indirect=True)
def test_a_kernel_that_sees_its_own_gpu_alone_waits_for_that_one(node: Node, serve: Callable[..., Gateway]) -> None:
    gateway = serve()
    assert {gpu["rung"] for gpu in gateway.gpu()["gpus"]} == {"same-gpu"}
    with gateway.kernel() as kernel:
        browser = kernel.open()
        home = browser.run(begin(100 * MIB) + "; print(device.device_uuid())").out
        gateway.call("POST", f"/api/gpu/kernels/{kernel.id}/release")
        until(lambda: kernel.lease["phase"] == "PARKED")
        assert browser.run(count(100 * MIB) + "; print(device.device_uuid())").out == f"1\n{home}"


def test_state_that_is_lost_on_its_way_back_is_told_and_its_gpu_goes_to_the_next(node: Node, serve: Callable[..., Gateway]) -> None:
    gateway = serve()
    with gateway.kernel() as one, gateway.kernel() as two:
        unlucky, lucky = one.open(), two.open()
        assert unlucky.run(begin(640 * MIB)).status == "ok"
        assert lucky.run(begin(640 * MIB)).status == "ok"
        with node.fault(Op.RESTORE, 2, Effect.POISON):
            cell = unlucky.run(count(640 * MIB))
        assert (cell.status, cell.ename) == ("error", "DeviceError")
        assert "is lost" in cell.evalue
        assert lucky.run(count(640 * MIB)).out == "1\n"
        assert unlucky.run("print('saved')").out == "saved\n"


def test_a_kernel_whose_state_was_lost_on_the_gpu_is_ended_when_somebody_waits_for_it(node: Node, serve: Callable[..., Gateway]) -> None:
    gateway = serve()
    with gateway.kernel() as one, gateway.kernel() as two:
        unlucky, lucky = one.open(), two.open()
        assert unlucky.run(begin(640 * MIB)).status == "ok"
        with node.fault(Op.CHECKPOINT, 304, Effect.FAIL):
            assert lucky.run(begin(640 * MIB)).status == "ok"
        unlucky.wait(lambda m: m["content"].get("execution_state") in ("restarting", "autorestarting"))
        assert lucky.run(count(640 * MIB)).out == "1\n"


def test_a_gateway_that_is_killed_finds_the_parked_state_again(node: Node, serve: Callable[..., Gateway]) -> None:
    gateway = serve()
    kernel = gateway.kernel()
    browser = kernel.open()
    assert browser.run(begin(640 * MIB)).status == "ok"
    gateway.call("POST", f"/api/gpu/kernels/{kernel.id}/release")
    until(lambda: kernel.lease["phase"] == "PARKED")
    gateway.process.send_signal(signal.SIGKILL)
    gateway.process.wait()
    browser.close()
    gateway.start()
    until(lambda: kernel.lease["parked_bytes"] == 704 * MIB)
    with kernel:
        assert kernel.open().run(count(640 * MIB)).out == "1\n"


def test_a_supervisor_that_is_killed_in_the_middle_of_parking_costs_its_kernel_and_nobody_else(
    node: Node, serve: Callable[..., Gateway]
) -> None:
    gateway = serve()
    left = "import device, time; device.start(); print(1, flush=True); time.sleep(600)"
    with gateway.kernel() as one, gateway.kernel() as two:
        unlucky, lucky = one.open(), two.open()
        assert unlucky.run(begin(640 * MIB)).status == "ok"
        start = f"import os, subprocess; e = dict(os.environ, PYTHONPATH={str(HERE)!r})\n"
        start += f"c = subprocess.Popen([sys.executable, '-c', {left!r}], env=e, stdout=-1, start_new_session=True); c.stdout.readline()"
        assert unlucky.run(GPU + start).status == "ok"
        node.set(seconds=0.5)
        waits = lucky.begin(begin(640 * MIB))
        until(lambda: one.lease["phase"] == "PARKING")
        (supervisor,) = [each["pid"] for each in gateway.machine.supervisors() if each["kernel_id"] == one.id]
        os.kill(supervisor, signal.SIGKILL)
        assert lucky.finish(waits).status == "ok"
        assert node.used() == 704 * MIB, "of the other one alone"
        assert lucky.run(count(640 * MIB)).out == "1\n"


@pytest.mark.slow
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("node", [{"memory": 3 * GIB, "context": 256 * MIB}], indirect=True)
def test_five_hundred_cells_through_jupyterlab_lose_no_value(node: Node, serve: Callable[..., Gateway], tmp_path: Path) -> None:
    gateway, port = serve(), free_port()
    config = (
        f"c.IdentityProvider.token = {gateway.token!r}\nc.GatewayClient.auth_token = {gateway.token!r}\nc.ServerApp.allow_root = True\n"
    )
    (tmp_path / "lab.py").write_text(f"c = get_config()\n{config}")
    command = [sys.executable, "-m", "jupyterlab", f"--config={tmp_path / 'lab.py'}", f"--port={port}", "--no-browser",
               f"--gateway-url={gateway.url}"]  # fmt: skip
    env = {**os.environ, **gateway.machine.env, "LD_LIBRARY_PATH": ""}
    with (tmp_path / "lab.log").open("wb") as log:
        lab = subprocess.Popen(command, env=env, cwd=tmp_path, stdout=log, stderr=log)
    front = Lab(gateway, port)
    try:
        until(front.answers)
        kernels = [Kernel(gateway, front.call("POST", "/api/kernels", json={"name": "elastic"}).json()["id"]) for _ in range(2)]
        take_turns(lambda kernel: Browser(front, kernel.id), kernels, 2 * GIB - 300 * MIB, 250)
    finally:
        lab.terminate()
        lab.wait(PATIENCE)


class Lab:
    """A JupyterLab server in front of a gateway, addressed as one."""

    def __init__(self, gateway: Gateway, port: int) -> None:
        self.url, self.headers = f"http://127.0.0.1:{port}", gateway.headers

    call, answers = Gateway.call, Gateway.answers
