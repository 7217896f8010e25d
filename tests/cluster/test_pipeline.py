"""A notebook as the step of a pipeline: papermill in a Job, whose kernel our provisioner starts; no gateway is there."""

from __future__ import annotations

import json
from typing import Any

import nbformat
import pytest

from tests.cluster.cluster import Cluster
from tests.cluster.images import RECIPES, build_image
from tests.cluster.rig import GATEWAY_IMAGE
from tests.integration.machine import REPOSITORY, until

STEP_IMAGE = GATEWAY_IMAGE.replace("elastic-gateway:", "elastic-gateway-step:")
CONFIG = {"ElasticGateway": {"simulated_gpus": 1}}


@pytest.fixture(scope="session")
def step_image(_session_cluster: Cluster) -> str:
    ours = build_image(REPOSITORY / "images/gateway/Dockerfile", GATEWAY_IMAGE, context=REPOSITORY)
    archive = build_image(RECIPES / "Dockerfile.step", STEP_IMAGE, {"BASE": f"docker-archive:{ours}"})
    with _session_cluster.turn(alone=False):
        _session_cluster.import_image(archive)
    return STEP_IMAGE


def notebook(*cells: str) -> str:
    parameters = nbformat.v4.new_code_cell("n = 1", metadata={"tags": ["parameters"]})
    spec = {"name": "elastic-python", "display_name": "Python (elastic GPU)", "language": "python"}
    return nbformat.writes(
        nbformat.v4.new_notebook(cells=[parameters, *map(nbformat.v4.new_code_cell, cells)], metadata={"kernelspec": spec})
    )


def job(name: str, image: str) -> dict[str, Any]:
    """As a workflow engine would have it: one container, its command, its exit status."""
    container = {
        "name": "main", "image": image, "imagePullPolicy": "Never",
        "command": ["papermill", "/in/step.ipynb", "/tmp/out.ipynb", "--log-output", "--no-progress-bar", "-p", "n", "7"],
        "env": [{"name": "JUPYTER_CONFIG_DIR", "value": "/in"}],
        "volumeMounts": [{"name": "in", "mountPath": "/in"}],
        "securityContext": {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}},
    }  # fmt: skip
    pod = {
        "restartPolicy": "Never", "automountServiceAccountToken": False, "containers": [container],
        "volumes": [{"name": "in", "configMap": {"name": name}}],
        "securityContext": {"runAsNonRoot": True, "runAsUser": 1000, "seccompProfile": {"type": "RuntimeDefault"}},
    }  # fmt: skip
    return {
        "apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": name},
        "spec": {"backoffLimit": 0, "template": {"spec": pod}},
    }  # fmt: skip


def ended(cluster: Cluster, namespace: str, name: str) -> tuple[int, str]:
    """Exit status and log of a step."""

    def statuses() -> list[dict[str, Any]]:
        pods = cluster.get("pods", "-n", namespace, "-l", f"job-name={name}")["items"]
        found = [status["state"] for pod in pods for status in pod["status"].get("containerStatuses", ())]
        return [state["terminated"] for state in found if "terminated" in state]

    code = until(statuses, 120)[0]["exitCode"]
    return code, cluster.kubectl("logs", "-n", namespace, f"job/{name}")


def test_a_notebook_runs_as_a_step_with_parameters_a_lease_and_an_exit_status(cluster: Cluster, namespace: str, step_image: str) -> None:
    steps = {
        "good": notebook("%%gpu\nimport os\nprint(n * 6, 'on', os.environ['CUDA_VISIBLE_DEVICES'])"),
        "bad": notebook("print('before')", "raise ValueError(f'no {n}')", "print('behind it')"),
    }
    for name, text in steps.items():
        data = {"step.ipynb": text, "jupyter_elastic_gateway_config.json": json.dumps(CONFIG)}
        cluster.apply(
            {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}, "data": data}, job(name, step_image), namespace=namespace
        )
    code, log = ended(cluster, namespace, "good")
    assert (code, "42 on GPU-SIM-0" in log) == (0, True), log
    code, log = ended(cluster, namespace, "bad")
    assert (code, "ValueError: no 7" in log, "behind it" in log.split("ValueError")[0]) == (1, True, False), log
