"""``@jupyterlab/services`` in Node, as VS Code uses it, straight at the gateway: no JupyterLab server and no extension of ours between."""

from __future__ import annotations

import json
import shutil
import signal
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.integration.frontends.node import packages
from tests.integration.serving import GPU, Gateway

SCRIPT = Path(__file__).parent / "services.mjs"
PROTOCOLS = pytest.mark.parametrize("protocol", ["v1", "legacy"])

pytestmark = pytest.mark.timeout(300)  # npm may have to fetch it first


class Client:
    def __init__(self, gateway: Gateway, protocol: str) -> None:
        folder = packages(jupyterlab__services="7.4.9", ws="8.18.3")
        node = shutil.which("node") or ""
        self._process = subprocess.Popen(
            [node, str(SCRIPT), str(folder), gateway.url, gateway.token, protocol], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )

    def __call__(self, do: str, **wish: Any) -> dict[str, Any]:
        assert self._process.stdin is not None and self._process.stdout is not None
        self._process.stdin.write(json.dumps({"do": do, **wish}) + "\n")
        self._process.stdin.flush()
        answer = json.loads(self._process.stdout.readline())
        assert "failed" not in answer, answer
        return answer

    def close(self) -> None:
        self._process.kill()
        self._process.communicate()


@pytest.fixture
def client() -> Iterator[Callable[[Gateway, str], Client]]:
    opened: list[Client] = []

    def open_(gateway: Gateway, protocol: str) -> Client:
        opened.append(Client(gateway, protocol))
        return opened[-1]

    yield open_
    for each in opened:
        each.close()


@PROTOCOLS
def test_a_notebook_of_vs_code_has_its_cells_input_interrupts_and_binary_messages(gateway, client, protocol):
    code = client(gateway, protocol)
    assert "elastic" in code("specs")["names"]
    opened = code("open", name="elastic", path=f"{protocol}.ipynb")
    assert opened["subprotocol"] == ("" if protocol == "legacy" else "v1.kernel.websocket.jupyter.org")
    assert code("run", code=GPU + "import os; print('on', os.environ['CUDA_VISIBLE_DEVICES'])")["out"].startswith("on ")
    assert code("run", code="print(input())", stdin="Ann")["out"] == "Ann\n"
    assert code("run", code="1/0")["ename"] == "ZeroDivisionError"
    lines = code("run", code="for i in range(2000): print(i, flush=True)")["out"].split()
    assert lines == [str(i) for i in range(2000)]
    code(
        "run",
        code="def opened(comm, _):\n    comm.on_msg(lambda m: comm.send({}, buffers=[bytes(m['buffers'][0])[::-1]]))\n"
        "get_ipython().kernel.comm_manager.register_target('echo', opened)",
    )
    assert code("comm", bytes=[0, 255, 1])["bytes"] == [1, 255, 0]
    assert code("interrupt", code="import time\nprint('on', flush=True)\ntime.sleep(600)")["ename"] == "KeyboardInterrupt"
    code("restart")
    assert code("run", code="print('opened' in dir())")["out"] == "False\n"
    code("end")
    assert gateway.call("GET", f"/api/kernels/{opened['id']}").status_code == 404


@PROTOCOLS
def test_it_reconnects_by_itself_to_a_gateway_that_was_killed_and_finds_its_variables(own_machine, client, protocol):
    gateway = Gateway(own_machine)
    code = client(gateway, protocol)
    code("open", name="elastic", path="notebook.ipynb")
    code("run", code="x = 'kept'")
    gateway.stop(signal.SIGKILL)
    code("lost")
    gateway.start()
    code("connected")
    assert code("run", code="print(x)")["out"] == "kept\n"
    code("end")
    gateway.stop()
