"""A supervisor as in a pod: over the network, with keys, as a container's first process."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import signal
import socket
import subprocess
from collections.abc import Coroutine, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import zmq

from gateway.backends.base import LinkKeys
from gateway.broker.link import KernelLink
from gateway.protocol.errors import SupervisorLost
from gateway.protocol.model import Phase
from tests.integration.pods import Browser, Pod
from tests.integration.supervised import PATIENCE

ROLES = ["owner", "broker", "sessions"]


@pytest.fixture
def pod(request: pytest.FixtureRequest) -> Iterator[Pod]:
    pod = Pod(**getattr(request, "param", {}))
    assert pod.said == "ready\n", pod.last_words()
    yield pod
    pod.stop()


def run(story: Coroutine[Any, Any, Any]) -> Any:
    return asyncio.run(asyncio.wait_for(story, 60))


async def dial(pod: Pod, generation: int = 1) -> KernelLink:
    link = KernelLink(pod)
    await link.open(ROLES, generation, PATIENCE)
    return link


def test_a_gateway_drives_a_kernel_over_the_network_and_another_adopts_it_with_its_gpu(pod: Pod) -> None:
    async def story() -> None:
        assert pod.link_address.startswith("tcp://127.0.0.1:")
        first = await dial(pod)
        browser = Browser(first, "one")
        await browser.there.wait()
        cell = asyncio.create_task(browser.run("%%gpu\nimport os; x = 41; print(os.environ['CUDA_VISIBLE_DEVICES'])"))
        await first.until(lambda state: state.lease.wanted)
        first.order("grant", (1, 1), gpus=["slot-a/0"], devices=["GPU-SIM-3"])
        assert await cell == "GPU-SIM-3\n"
        state = await first.until(lambda state: state.lease.phase == Phase.HOLDING and not state.lease.executing)
        assert state.lease.gpus == state.lease.home == ["slot-a/0"]
        first._hang_up()  # as if it were killed: no word of it

        second = await dial(pod, 2)
        assert second.state.lease.gpus == ["slot-a/0"]
        assert await Browser(second, "two").run("%%cpu\nprint(x + 1)") == "42\n"
        second.close()

    run(story())


def test_who_has_the_wrong_key_is_refused_and_disturbs_nobody(pod: Pod) -> None:
    async def story() -> None:
        link = await dial(pod)
        public, secret = (key.decode() for key in zmq.curve_keypair())
        keys = pod.link_curve
        assert keys is not None
        wrong: list[LinkKeys | None] = [replace(keys, public=public, secret=secret), replace(keys, server=public), None]
        for each in wrong:
            stranger = Pod.__new__(Pod)
            stranger.__dict__.update({**pod.__dict__, "link_curve": each})
            with pytest.raises(SupervisorLost):
                await KernelLink(stranger).open(ROLES, 9, 3.0)
        assert await Browser(link, "one").run("%%cpu\nprint('fine')") == "fine\n"
        link.close()

    run(story())


def test_garbage_and_floods_and_half_open_connections_disturb_nobody(pod: Pod) -> None:
    async def story() -> None:
        link = await dial(pod)
        host, _, port = pod.link_address.removeprefix("tcp://").rpartition(":")
        sockets = []
        for at in range(200):
            sockets.append(socket.create_connection((host, int(port)), PATIENCE))
            if at % 3:
                sockets[-1].sendall(os.urandom(300) if at % 3 == 1 else b"\xff" + bytes(8) + b"\x7f\x03\x01CURVE" + bytes(50))
        browser = Browser(link, "one")
        assert await browser.run("%%cpu\nprint('fine')") == "fine\n"
        second = await dial(pod)
        for each in sockets:
            each.close()
        assert await browser.run("%%cpu\nprint('still')") == "still\n"
        link.close()
        second.close()

    run(story())


def test_a_link_whose_port_nobody_serves_any_more_says_so_at_once(pod: Pod) -> None:
    assert pod.stop() == 0
    with pytest.raises(SupervisorLost, match="nobody answers"):
        run(KernelLink(pod).open(ROLES, 1, PATIENCE))


def test_plain_ports_with_keys_let_in_who_knows_their_public_key() -> None:
    public, secret = (key.decode() for key in zmq.curve_keypair())
    pod = Pod(curve_publickey=public, curve_secretkey=secret)
    context = zmq.Context()
    socket = context.socket(zmq.DEALER)
    socket.linger = 0
    socket.curve_serverkey = public.encode()
    socket.curve_publickey, socket.curve_secretkey = zmq.curve_keypair()
    socket.connect(f"tcp://127.0.0.1:{pod.connection['hb_port']}")
    socket.send(b"beat")
    assert socket.poll(int(PATIENCE * 1000))
    assert socket.recv() == b"beat"
    context.destroy(0)
    assert pod.stop() == 0


def test_sigterm_ends_kernel_and_supervisor_cleanly_and_leaves_the_spec(pod: Pod) -> None:
    kernel = run(state_of(pod)).pid
    assert pod.stop() == 0
    assert pod.spec.exists()
    assert not (pod.folder / "run").exists()
    assert not Path(f"/proc/{kernel}").exists()


async def state_of(pod: Pod) -> Any:
    link = await dial(pod)
    state = await link.until(lambda state: state.ready)
    link.close()
    return state


def test_what_an_earlier_container_of_the_pod_has_left_is_in_nobodys_way() -> None:
    first = Pod()
    run(state_of(first))
    first.process.kill()
    first.process.wait()
    assert (first.folder / "run/magic.sock").exists()
    second = Pod(folder=first.folder)
    assert second.said == "ready\n", second.last_words()
    assert run(state_of(second)).ready
    assert (first.folder / "run").stat().st_mode & 0o7777 == 0o700
    assert second.stop() == 0


@pytest.mark.parametrize(
    ("keys", "said"),
    [(None, "link_curve lacks publickey, secretkey, client"), ({"publickey": "a", "secretkey": "b", "client": "c" * 40}, "no CURVE key")],
)
def test_no_link_is_opened_on_the_network_without_good_keys(keys: dict[str, str] | None, said: str) -> None:
    pod = Pod(link_curve=keys)
    assert pod.said.startswith("failed: ") and said in pod.said
    assert pod.process.wait(PATIENCE) == 1


def first_process() -> str:
    """Why no process can be the first of a namespace here; "": it can."""
    if not shutil.which("unshare"):
        return "there is no unshare (util-linux)"
    tried = subprocess.run(["unshare", "--pid", "--fork", "--mount-proc", "true"], capture_output=True, text=True)
    return "" if tried.returncode == 0 else f"process namespaces can't be made here (run as root): {tried.stderr.strip()}"


@pytest.mark.skipif(bool(first_process()), reason=first_process())
def test_as_the_first_process_it_reaps_orphans_and_tells_its_kernels_end_rightly() -> None:
    pod = Pod(prefix=["unshare", "--pid", "--fork", "--mount-proc", "--kill-child"])
    assert pod.said == "ready\n", pod.last_words()
    zombies = "os.system('cat /proc/[0-9]*/stat 2>/dev/null | grep -q \") Z \"') == 0"  # cat: one that has just been reaped is none

    async def story() -> None:
        link = await dial(pod)
        browser = Browser(link, "one")
        await browser.run("%%cpu\nimport os, subprocess, time")
        assert await browser.run("%%cpu\nprint(os.getppid())") == "1\n"
        # A daemon's way: the child ends at once, and the grandchild's parent is the first process then. It ends, too.
        await browser.run("%%cpu\nsubprocess.run(['sh', '-c', 'sleep 0.1 & sleep 0.1 & setsid sleep 0.1 &'])")
        assert await browser.run(f"%%cpu\nend = time.time() + 20\nwhile {zombies} or os.system('pgrep -x sleep >/dev/null') == 0:\n"
                                 "    assert time.time() < end\n    time.sleep(0.05)\nprint('clean')") == "clean\n"  # fmt: skip
        await link.call("signal", signum=9)
        state = await link.until(lambda state: not state.alive)
        assert state.exit_code == -signal.SIGKILL
        await link.call("respawn")
        await link.until(lambda state: state.ready)
        link.close()

    run(story())
    inside = json.loads((pod.folder / "run/supervisor.json").read_text())["pid"]
    assert inside == 1
    assert pod.stop() == 0
