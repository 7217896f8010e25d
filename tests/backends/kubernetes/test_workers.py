"""Workers of an elastic burst against an API server: how their pods are read, how those beyond the least come and go."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from gateway.backends.kubernetes import names
from gateway.backends.kubernetes.jobs.jobs import Jobs
from gateway.backends.kubernetes.jobs.manifests import Wanted
from gateway.backends.kubernetes.jobs.workers import gpus_of
from gateway.backends.kubernetes.profiles import Profile
from gateway.protocol.errors import ElasticError
from tests.backends.kubernetes.test_jobs import ID, NAME, make, with_jobs
from tests.doubles.api_server import ApiServer

PROFILE = Profile(image="i", gpu_resource="example.com/gpu", node_selector={"pool": "gpu"})


def flex(jobs: Jobs, gpus: int = 1) -> dict[str, Any]:
    wanted = Wanted(ID, "k", "ada", 1, gpus)
    return jobs.workers.flex(jobs.job(PROFILE, wanted), PROFILE, on_demand=False)


def pod(name: str, flex: str = "", state: str = "running", **fields: Any) -> dict[str, Any]:
    labels = {names.BURST: ID, **({names.FLEX: flex} if flex else {})}
    status = {"podIP": "10.0.0.1", "phase": fields.pop("phase", "Running"), "containerStatuses": [{"state": {state: {}}}]}
    containers = [{"resources": {"limits": {"memory": "1", "example.com/gpu": "1"}}}]
    spec = {"nodeName": "node-1", "containers": containers}
    return {"metadata": {"name": name, "labels": labels, **fields}, "spec": spec, "status": status}


def test_a_worker_more_is_made_once_and_ended_by_itself(tmp_path: Path) -> None:
    async def test(server: ApiServer, jobs: Jobs) -> None:
        await make(jobs, Wanted(ID, "k", "ada", 1))
        made = await jobs.workers.begin(flex(jobs), 1, "uid")
        assert made == server.objects["jobs", "ns", f"{NAME}-1"]["metadata"]["uid"]
        assert await jobs.workers.begin(flex(jobs), 1, "uid") == made
        await jobs.workers.begin(flex(jobs), 2, "uid")
        assert {key[2] for key in server.objects if key[0] == "jobs"} == {NAME, f"{NAME}-1", f"{NAME}-2"}
        await jobs.workers.end(ID, 1)
        await jobs.workers.end(ID, 1)
        assert {key[2] for key in server.objects if key[0] == "jobs"} == {NAME, f"{NAME}-2"}

    with_jobs(tmp_path, test)


def test_pods_are_read_as_what_they_are(tmp_path: Path) -> None:
    async def test(server: ApiServer, jobs: Jobs) -> None:
        found = jobs.workers.members(ID)
        assert {name: (each.flex, each.address, each.ending, each.over) for name, each in found.items()} == {
            "base": (0, "10.0.0.1", False, False),
            "more": (3, "10.0.0.1", True, False),
            "done": (0, "", False, True),
            "new": (0, "", False, False),
        }
        assert found["base"].node == "node-1"
        assert jobs.workers.members("f" * 16) == {}
        assert jobs.workers.gpus(ID) == {"node-1": 2}, "of those that run"
        assert jobs.workers.gpus("f" * 16) == {}

    pods = [
        pod("base"), pod("more", "3", deletionTimestamp="2026-11-30T00:00:00Z"), pod("done", state="terminated", phase="Failed"),
        pod("new", state="waiting", phase="Pending"),
    ]  # fmt: skip
    with_jobs(tmp_path, test, pods)


def test_why_a_pod_with_a_node_does_not_begin_is_told_in_the_clusters_newest_words(tmp_path: Path) -> None:
    async def test(server: ApiServer, jobs: Jobs) -> None:
        assert await jobs.hindrance(ID) == ""
        for moment, said in (("2026-11-30T00:00:01Z", "it is slow"), ("2026-11-30T00:00:02Z", 'configmap "conf" not found')):
            event = {"metadata": {"name": f"e-{moment[-3]}"}, "lastTimestamp": moment, "message": said, "type": "Warning"}
            await server.put(event, "events", "ns")
        assert await jobs.hindrance(ID) == 'configmap "conf" not found'
        assert await jobs.hindrance("f" * 16) == ""

    with_jobs(tmp_path, test, [pod("runs", creationTimestamp="1"), pod("stuck", state="waiting", phase="Pending", creationTimestamp="2")])


def test_that_no_pod_will_come_any_more_is_told_with_the_reason(tmp_path: Path) -> None:
    async def test(server: ApiServer, jobs: Jobs) -> None:
        assert await jobs.workers.ended(ID) == "Its Job was deleted in the cluster."
        await make(jobs, Wanted(ID, "k", "ada", 1))
        assert await jobs.workers.ended(ID) == ""
        failed = {
            "type": "Failed",
            "status": "True",
            "reason": "DeadlineExceeded",
            "message": "It was active too long",
        }
        server.objects["jobs", "ns", NAME]["status"] = {"conditions": [failed]}
        assert await jobs.workers.ended(ID) == "Its Job has failed: It was active too long."

    with_jobs(tmp_path, test)


def test_what_workers_count_their_gpus_in_is_read_from_their_pod(tmp_path: Path) -> None:
    async def test(server: ApiServer, jobs: Jobs) -> None:
        assert jobs.workers.resource(flex(jobs, 2)) == "example.com/gpu"
        assert gpus_of(flex(jobs, 2)["spec"]["template"]["spec"]) == {"example.com/gpu": 2}
        with pytest.raises(ElasticError, match="have no GPUs"):
            jobs.workers.resource(flex(jobs, 0))

    with_jobs(tmp_path, test)
