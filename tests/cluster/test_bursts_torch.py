"""Torch across pods: a small real model is trained by two ranks and evaluated in the notebook. Torch comes by a folder of this machine."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from importlib.util import find_spec
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from gateway.backends.kubernetes import manifests
from tests.cluster.cluster import Cluster
from tests.cluster.rig import PodGateway
from tests.integration.machine import Machine
from tests.integration.test_burst_engines import DIGITS, TRAINING, needs_torch

pytestmark = [
    needs_torch,
    pytest.mark.skipif(sys.version_info[:2] != (3, 11), reason="the image has Python 3.11, and so must this: its packages are mounted"),
    pytest.mark.timeout(500),
]  # fmt: skip
SITE = "/opt/site"


@pytest.fixture
def with_torch(cluster: Cluster, namespace: str, gateway_image: str, pod_machine: Machine) -> Iterator[PodGateway]:
    """A gateway whose kernels and ranks see this environment's packages."""
    spec = find_spec("torch")
    assert spec is not None and spec.origin is not None
    packages = {"name": "site", "mount_path": SITE, "read_only": True, "hostPath": {"path": str(Path(spec.origin).parents[1])}}
    fields = {"volumes": [packages], "env": {"PYTHONPATH": f"{manifests.CODE}/{manifests.CODE_KEY}:{SITE}"}, "memory": "2Gi"}
    gateway = PodGateway(pod_machine, cluster, namespace, more={"default": fields})
    yield gateway
    gateway.end()


def test_a_model_is_trained_by_ranks_in_two_pods_and_evaluated_in_the_notebook(with_torch: PodGateway) -> None:
    with with_torch.kernel("default", KERNEL_USERNAME="ada") as kernel:
        browser = kernel.open()
        loaded = browser.run(f"%%cpu\n{DIGITS}", 240)
        assert loaded.status == "ok", loaded
        before = float(browser.run("%%cpu\nprint(accuracy())", 120).out)
        trained = browser.run(TRAINING, 300)
        assert (trained.status, trained.out) == ("ok", "gloo 2\n"), (trained, with_torch.log[-3000:])
        assert before < 0.3 < 0.9 < float(browser.run("%%cpu\nprint(accuracy())").out)
        assert browser.run("%%cpu\nprint(weights is model[0].weight)").out == "True\n"
        failed = browser.run(
            "%%distributed -w 2 -e torch -g 0\nimport torch.distributed as dist\n"
            "if RANK == 1:\n    raise LookupError('one of two')\ndist.barrier()",
            200,
        )
        assert (failed.ename, failed.evalue) == ("LookupError", "one of two"), failed


GROWING = """%%distributed -w 1:2 -e torch -g 0 --name growing --show 0
import time
from torch.nn.parallel import DistributedDataParallel
from gateway import elastic
ddp = DistributedDataParallel(model)
optimizer = torch.optim.Adam(ddp.parameters(), lr=1e-2)
state = elastic.State(model=ddp, optimizer=optimizer, seen=[])
batches = torch.utils.data.DataLoader(torch.utils.data.TensorDataset(X, Y), batch_size=32, shuffle=True)
for epoch in state.range("epoch", 4):
    for x, y in state.shard("batch", batches):
        loss = torch.nn.functional.cross_entropy(ddp(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        time.sleep(0.3)
        state.seen.append((epoch, WORLD_SIZE, time.time()))
        print("of", WORLD_SIZE, flush=True)
        state.commit()
seen = state.seen
"""
BATCHES = -(-1797 // 32)  # of an epoch


def test_training_goes_on_with_more_workers_and_with_fewer_and_no_batch_is_lost_or_learned_twice(with_torch: PodGateway) -> None:
    with with_torch.kernel("default", KERNEL_USERNAME="ada") as kernel:
        browser = kernel.open()
        assert browser.run(f"%%cpu\n{DIGITS}", 240).status == "ok"
        cell = browser.begin(GROWING)
        for workers in (2, 1, None):
            of = f"of {3 - workers}\n" if workers else "of 1\n"
            count = browser_text(browser, cell).count(of)
            browser.wait(lambda m, of=of, count=count: browser_text(browser, cell).count(of) > count + 2, 200)
            if workers:
                assert with_torch.call("POST", "/api/bursts/growing/scale", json={"workers": workers}).status_code == 202
        done = browser.finish(cell, 300)
        assert done.status == "ok", (done, with_torch.log[-3000:])
        seen = eval(browser.run("%%cpu\nprint(seen)").out)
        worlds = [world for _, world, _ in seen]
        assert [world for at, world in enumerate(worlds) if not at or worlds[at - 1] != world] == [1, 2, 1]
        # Each round of an epoch takes as many batches as there are workers; the last one is filled up from the beginning
        for epoch in range(4):
            learned = sum(world for at, world, _ in seen if at == epoch)
            assert BATCHES <= learned <= BATCHES + 1
        assert float(browser.run("%%cpu\nprint(accuracy())").out) > 0.9
        pauses = [round(after - before, 1) for (_, a, before), (_, b, after) in pairwise(seen) if a != b]
        print(f"pauses of the two changes: {pauses} s")


def browser_text(browser: Any, cell: str) -> str:
    return "".join(m["content"].get("text", "") for m in browser.messages if m["parent"] == cell and m["type"] == "stream")


def test_torchrun_in_each_of_two_pods_has_two_ranks_that_hold_together(with_torch: PodGateway) -> None:
    with with_torch.kernel("default", KERNEL_USERNAME="ada") as kernel:
        browser = kernel.open()
        browser.run("x = 1", 240)
        cell = browser.run(
            "%%distributed -w 2 -e torch -g 0 --procs 2 --ranks all\nimport socket, torch, torch.distributed as dist\n"
            "total = torch.tensor(RANK + 1)\ndist.all_reduce(total)\ntotal, host, local = int(total), socket.gethostname(), LOCAL_RANK",
            400,
        )
        assert cell.status == "ok", (cell, with_torch.log[-3000:])
        assert browser.run("print(total, local, len(set(host)))").out == "[10, 10, 10, 10] [0, 1, 0, 1] 2\n"
