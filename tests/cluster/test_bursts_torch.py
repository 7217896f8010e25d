"""Torch across pods: a small real model is trained by two ranks and evaluated in the notebook. Torch comes by a folder of this machine."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path

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
