"""A cell that drives a Ray cluster of its own, on this machine."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.integration.frameworks import kernelspec, python_with
from tests.integration.machine import Machine, until
from tests.integration.serving import Gateway, end

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]  # the environment is made once, which takes minutes


@pytest.fixture(scope="module")
def gateway() -> Iterator[Gateway]:
    python = python_with("ray>=2.52")
    machine = Machine(Path(tempfile.mkdtemp(prefix="eg", dir="/tmp")))
    kernelspec(machine, "ray", python)
    gateway = Gateway(machine)
    yield gateway
    end(gateway)
    machine.clean()


def test_a_cell_drives_a_ray_cluster_of_its_own_and_nothing_of_it_is_left(gateway: Gateway) -> None:
    with gateway.kernel("ray") as kernel:
        browser = kernel.open()
        browser.run("def double(x):\n    return 2 * x")
        cell = browser.run(
            "%%distributed -w 3 -e ray\nimport os, ray\nray.init(logging_level='ERROR')\ntwice = ray.remote(double)\n"
            "cpus = int(ray.cluster_resources()['CPU'])\ndoubled = sum(ray.get([twice.remote(x) for x in range(10)]))\n"
            "place = str(ray._private.worker._global_node.get_session_dir_path())\nprint('driven')",
            300,
        )
        assert cell.status == "ok" and "driven" in cell.out, cell
        assert browser.run("print(cpus, doubled)").out == "3 90\n"
        until(lambda: not processes(gateway))
        place = Path(browser.run("print(place)").out.strip())
        assert place.parent.name.startswith("elastic-ray-") and not place.parent.exists()


def test_only_who_has_the_token_of_a_burst_may_use_its_ray_and_only_on_this_machine(gateway: Gateway) -> None:
    with gateway.kernel("ray") as kernel:
        browser = kernel.open()
        cell = browser.run(
            "%%distributed -w 1 -e ray\nimport os, ray, subprocess, sys, tempfile\nfrom pathlib import Path\n"
            "ray.init(logging_level='ERROR')\n"
            "other = Path(tempfile.mkdtemp(), 'token')\nother.write_text('0' * 64)\n"
            "stranger = subprocess.run([sys.executable, '-c', 'import ray; ray.init(); print(1)'], capture_output=True, text=True,\n"
            "    env={**os.environ, 'RAY_AUTH_TOKEN_PATH': str(other)}).stderr[-300:]\n"
            "mode = oct(os.stat(os.environ['RAY_AUTH_TOKEN_PATH']).st_mode & 0o777)\n"
            "port = int(os.environ['RAY_ADDRESS'].partition(':')[2])\n"
            "ours = [line.split()[1] for name in ('tcp', 'tcp6') for line in Path('/proc/net', name).read_text().splitlines()[1:]\n"
            "    if line.split()[3] == '0A' and int(line.split()[1].rpartition(':')[2], 16) == port]",
            300,
        )
        assert cell.status == "ok", cell
        assert "ConnectionError" in browser.run("print(stranger)").out
        assert browser.run("print(mode)").out == "0o600\n"
        listens = browser.run("print(*ours)").out.split()
        assert listens and all(each.split(":")[0].endswith("0100007F") for each in listens), listens


def test_the_stop_button_leaves_nothing_of_ray(gateway: Gateway) -> None:
    with gateway.kernel("ray") as kernel:
        browser = kernel.open()
        cell = browser.begin(
            "%%distributed -w 1 -e ray\nimport ray, time\nray.init(logging_level='ERROR')\nprint('begun')\ntime.sleep(600)"
        )
        browser.wait(lambda m: m["parent"] == cell and m["type"] == "stream" and "begun" in m["content"]["text"], 200)
        assert any("raylet" in line for line in processes(gateway))
        kernel.call("POST", "/interrupt")
        assert browser.finish(cell, seconds=60).ename == "KeyboardInterrupt"
        until(lambda: not processes(gateway))


def processes(gateway: Gateway) -> list[str]:
    """Command lines of this gateway's bursts' processes."""
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        try:
            if f"ELASTIC_BURST={gateway.machine.root}" in (process / "environ").read_text():
                found.append((process / "cmdline").read_text().replace("\0", " "))
        except OSError:
            continue
    return found
