"""TensorFlow's parameter server from a cell: a chief, two workers and a server of TensorFlow's own on this machine."""

from __future__ import annotations

import os
import signal
import tempfile
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from tests.integration.frameworks import kernelspec, python_with
from tests.integration.machine import Machine, until
from tests.integration.serving import Gateway, end

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]  # the environment is made once, which takes minutes

LOOP = """%%distributed -e tf-ps -w 2 --ps 1 -g 0
import tensorflow as tf
resolver = tf.distribute.cluster_resolver.TFConfigClusterResolver()
shape = {name: len(resolver.cluster_spec().job_tasks(name)) for name in resolver.cluster_spec().jobs}
strategy = tf.distribute.ParameterServerStrategy(resolver)
coordinator = tf.distribute.coordinator.ClusterCoordinator(strategy)
with strategy.scope():
    w = tf.Variable(start)
where = w.device

@tf.function
def step():
    x = tf.random.normal([32])
    with tf.GradientTape() as tape:
        loss = tf.reduce_mean((w * x - 3.0 * x) ** 2)
    w.assign_sub(0.1 * tape.gradient(loss, w))
    return loss

losses = [coordinator.schedule(step) for _ in range(40)]
coordinator.join()
losses = [float(each.fetch()) for each in losses]
weight = float(w.numpy())
print("trained")
"""


@pytest.fixture(scope="module")
def gateway() -> Iterator[Gateway]:
    python = python_with("tensorflow-cpu>=2.20")
    machine = Machine(Path(tempfile.mkdtemp(prefix="eg", dir="/tmp")))
    kernelspec(machine, "tensorflow", python)
    gateway = Gateway(machine, "Bursts.trusted_network=True")
    yield gateway
    end(gateway)
    machine.clean()


def test_a_chief_trains_a_variable_of_a_parameter_server_by_two_workers(gateway: Gateway) -> None:
    with gateway.kernel("tensorflow") as kernel:
        browser = kernel.open()
        browser.run("start = 0.5")
        cell = browser.run(LOOP, 300)
        assert cell.status == "ok" and "trained" in cell.out, cell
        assert browser.run("print(dict(sorted(shape.items())))").out == "{'chief': 1, 'ps': 1, 'worker': 2}\n"
        assert "job:ps" in browser.run("print(where)").out  # the variable lay there
        weight, first, last = map(float, browser.run("print(weight, losses[0], losses[-1])").out.split())
        assert abs(weight - 3) < 0.1 and last < first / 10


def test_a_parameter_server_that_is_lost_ends_the_cell_and_is_named(gateway: Gateway) -> None:
    with gateway.kernel("tensorflow") as kernel:
        browser = kernel.open()
        cell = browser.begin("%%distributed -e tf-ps -w 1 --ps 1\nimport time\ntime.sleep(600)")
        os.kill(until(lambda: servers(gateway, "ps"))[0], signal.SIGKILL)
        done = browser.finish(cell, seconds=120)
        assert done.status == "error" and "ps 0 was killed by SIGKILL" in done.evalue, done


def test_the_stop_button_leaves_no_server_of_tensorflow(gateway: Gateway) -> None:
    with gateway.kernel("tensorflow") as kernel:
        browser = kernel.open()
        cell = browser.begin("%%distributed -e tf-ps -w 2\nimport time\nprint('begun', flush=True)\ntime.sleep(600)")
        browser.wait(lambda m: m["parent"] == cell and m["type"] == "stream" and "begun" in m["content"]["text"], 120)
        assert (len(servers(gateway, "worker")), len(servers(gateway, "ps"))) == (2, 1)
        kernel.call("POST", "/interrupt")
        assert browser.finish(cell, seconds=60).ename == "KeyboardInterrupt"
        until(lambda: not servers(gateway))


def servers(gateway: Gateway, role: str = "") -> list[int]:
    """Processes of TensorFlow's own servers in this gateway's bursts."""
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            env = (process / "environ").read_text()
            ours = f"ELASTIC_BURST={gateway.machine.root}" in env and "tf_server" in (process / "cmdline").read_text()
            if ours and f'"type": "{role}' in env:
                found.append(int(process.name))
    return found
