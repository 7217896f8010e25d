"""Torch: a storage crosses once, models and optimizers are changed in place, and what belongs to a process group stays there."""

from __future__ import annotations

import pytest

from tests.magics.capture.elsewhere import Ranks

torch = pytest.importorskip("torch", reason="torch is 5 GB and no part of the test extra: pip install torch")

NET = """
import torch
from torch import nn
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.norm, self.last = nn.Linear(300, 300), nn.BatchNorm1d(300), nn.Linear(300, 300)
        self.last.weight = self.first.weight
    def forward(self, x): return self.last(self.norm(self.first(x)))
net = Net()
optimizer = torch.optim.Adam(net.parameters())
weight = net.first.weight
x = torch.ones(8, 300)
"""
TRAIN = """
for step in range(2):
    optimizer.zero_grad(); net(x).pow(2).mean().backward(); optimizer.step()
"""


@pytest.fixture(scope="module")
def ranks():
    ranks = Ranks("torch")
    yield ranks
    ranks.close()


@pytest.fixture
def model(notebook):
    notebook.here(NET)
    return notebook


def test_a_trained_model_comes_home_in_place_and_its_optimizer_still_trains_it(model):
    before = {name: value.clone() for name, value in model["net"].state_dict().items()}
    parameters = list(model["net"].parameters())
    report = model.there(TRAIN + "state = {name: value.clone() for name, value in net.state_dict().items()}")
    after = model["net"].state_dict()
    assert set(report.mutated) == {"net", "optimizer"} and not report.skipped
    assert all(torch.equal(after[name], model["state"][name]) for name in after) and not torch.equal(
        after["last.bias"], before["last.bias"]
    )
    assert all(a is b for a, b in zip(parameters, model["net"].parameters(), strict=True)) and model["weight"] is model["net"].last.weight
    assert model["optimizer"].param_groups[0]["params"][0] is model["weight"] and model["optimizer"].state[model["weight"]]["step"] == 2
    model.here(TRAIN)  # and goes on


def test_a_model_that_is_only_used_does_not_come_back(model):
    model.here("net.eval()")
    report = model.there("y = net(x).detach()")
    assert report.mutated == [] and sum(map(len, model.answer.back)) < 50_000


def test_storages_cross_once_and_views_stay_views(notebook):
    notebook.here("import torch; whole = torch.zeros(100_000); part = whole[10:20]; turned = whole.view(100, 1000).t()")
    capsule = notebook.pack("whole, part, turned")
    assert capsule.bytes < 450_000
    notebook.there("part += 1; s = [float(whole.sum()), turned.stride()]\nnew = torch.zeros(50_000); twin = new.view(-1)")
    assert notebook["whole"].sum() == 10 and notebook["part"].sum() == 10 and notebook["s"] == [10.0, (1, 1000)]
    notebook["new"][0] = 5
    assert notebook["twin"][0] == 5


def test_a_tensor_on_the_cpu_is_packed_as_it_lies_there(notebook):
    notebook.here("import torch; t = torch.zeros(100_000)")
    capsule = notebook.pack("t")
    pointers = [torch.frombuffer(blob, dtype=torch.uint8).data_ptr() for blob in capsule.blobs if not memoryview(blob).readonly]
    assert notebook["t"].data_ptr() in pointers


@pytest.mark.parametrize(
    "make",
    [
        "torch.ones(5, dtype=torch.bfloat16)",
        "torch.tensor(3)",
        "torch.zeros(0, 4)",
        "torch.ones(3, requires_grad=True)",
        "torch.nn.Parameter(torch.ones(2), requires_grad=False)",
        "torch.eye(3).to_sparse()",
        "torch.ones(3, dtype=torch.complex64).conj()",
        "torch.ones(2, 3).t()",
        "torch.tensor([True, False])",
    ],
)
def test_every_kind_of_tensor_goes_and_comes(notebook, make):
    notebook.here(f"import torch; t = {make}")
    notebook.there("u = t.detach().clone().requires_grad_(t.requires_grad); same = t; shown = repr(t)")
    assert repr(notebook["u"]) == repr(notebook["t"]).replace("Parameter containing:\n", "").replace(", requires_grad=False", "")
    assert notebook["same"] is notebook["t"] and notebook["shown"] == repr(notebook["t"])


def test_a_new_shape_and_a_new_wish_for_gradients_are_taken_home(notebook):
    notebook.here("import torch; t = torch.zeros(3); alias = t")
    notebook.there("t.data = torch.full((5,), 2.); t.requires_grad_(True)")
    assert notebook["alias"].shape == (5,) and notebook["alias"].requires_grad and notebook["alias"].sum() == 10


def test_wrappers_come_home_as_what_they_wrapped(model):
    source = (
        "import torch.distributed as dist, tempfile\n"
        "dist.init_process_group('gloo', init_method='file://' + tempfile.mktemp(), rank=0, world_size=1)\n"
        "ddp = nn.parallel.DistributedDataParallel(net)\nfresh = nn.parallel.DistributedDataParallel(Net())\n"
        "ddp(x).sum().backward(); optimizer.step(); dist.destroy_process_group()"
    )
    report = model.there(source)
    assert model["ddp"] is model["net"] and type(model["fresh"]) is model["Net"] and "net" in report.mutated


def test_device_is_the_ranks_own(notebook):
    notebook.here("device = 'the notebook has one'")
    notebook.there("import torch; where = str(torch.zeros(1, device=device).device); own = str(device)")
    assert notebook["where"] == notebook["own"] and notebook["device"] == "the notebook has one"


def test_a_result_with_history_leaves_it_there(notebook):
    notebook.here("import torch; w = torch.ones(3, requires_grad=True)")
    notebook.there("loss = (w * 2).sum()")
    assert float(notebook["loss"]) == 6


def test_an_accelerators_tensors_go_to_the_place_that_the_rank_names():
    """Without a GPU: torch's ``meta`` device stands for it on the way there."""

    from gateway.protocol.transfer import restore, tensors

    data = bytearray(torch.arange(4.0).numpy().tobytes())
    with restore.into(restore.Place({}, lambda: torch.device("meta"))) as place:
        there = tensors.storage(data, "cuda")
        back = tensors.tensor(there, torch.float32, 0, (4,), (1,), True, True)
    assert back.device.type == "meta" and isinstance(back, torch.nn.Parameter) and len(place.moved) == 1
