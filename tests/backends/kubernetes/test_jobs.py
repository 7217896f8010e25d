"""A burst's Job against an API server: in which order its parts come, what is left where one can't, how its pods are read."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from gateway.backends.kubernetes import names
from gateway.backends.kubernetes.api import KubeApi
from gateway.backends.kubernetes.errors import ApiDenied
from gateway.backends.kubernetes.jobs import adapters
from gateway.backends.kubernetes.jobs.jobs import INDEX, Jobs
from gateway.backends.kubernetes.jobs.manifests import Wanted
from gateway.backends.kubernetes.manifests import Site
from gateway.backends.kubernetes.profiles import Profile
from gateway.protocol.errors import BadRequest
from gateway.protocol.roles import Role
from tests.doubles.api_server import ApiServer, status

ID = "0123456789abcdef"
NAME = names.burst_job(ID)
PARTS = ("secrets", "services", "networkpolicies")


def with_jobs(
    tmp_path: Path, test: Callable[[ApiServer, Jobs], Awaitable[None]], pods: list[dict[str, Any]] | None = None, kinds: Sequence[str] = (),
) -> None:  # fmt: skip
    async def run() -> None:
        async with ApiServer() as server:
            api = await KubeApi.connect(kubeconfig=server.kubeconfig(tmp_path))

            async def bring_code() -> None:
                pass

            cluster = SimpleNamespace(
                api=api, namespace="ns", name="lab", site=Site("lab", "ns", "gateway:1", code="code"), profiles={}, drained=(),
                ranks=lambda: pods or [], bring_code=bring_code,
            )  # fmt: skip
            try:
                await test(server, Jobs(cluster, kinds))  # type: ignore[arg-type]
            finally:
                await api.close()

    asyncio.run(run())


def make(jobs: Jobs, wanted: Wanted) -> Awaitable[str]:
    return jobs.make(jobs.job(Profile(image="i"), wanted), wanted, {"token": "hush"})


def test_a_job_is_let_go_once_all_that_its_pods_need_is_there_and_may_be_made_again(tmp_path: Path) -> None:
    async def test(server: ApiServer, jobs: Jobs) -> None:
        wanted = Wanted(ID, "k", "ada", 2)
        uid = await make(jobs, wanted)
        assert [path.rpartition("/")[2] for method, path in server.requests if method == "POST"] == ["jobs", *PARTS]
        assert server.requests[-1][0] == "PATCH"
        assert server.objects["jobs", "ns", NAME]["spec"]["suspend"] is False
        for part in PARTS:
            assert server.objects[part, "ns", NAME]["metadata"]["ownerReferences"][0]["uid"] == uid
        assert await make(jobs, wanted) == uid

    with_jobs(tmp_path, test)


def test_a_job_in_a_queue_stays_suspended(tmp_path: Path) -> None:
    async def test(server: ApiServer, jobs: Jobs) -> None:
        await make(jobs, Wanted(ID, "k", "ada", 2, queue="research"))
        assert server.objects["jobs", "ns", NAME]["spec"]["suspend"] is True

    with_jobs(tmp_path, test)


def test_kueues_words_are_had_from_an_older_one_too(tmp_path: Path) -> None:
    async def test(server: ApiServer, jobs: Jobs) -> None:
        waits = {"type": "QuotaReserved", "status": "False", "message": "LocalQueue nope doesn't exist"}
        labels = {"kueue.x-k8s.io/job-uid": "1"}
        await server.put({"metadata": {"name": "w", "labels": labels}, "status": {"conditions": [waits]}}, "workloads")
        assert await jobs.queued("1") == "LocalQueue nope doesn't exist"
        server.faults.append((404, status(404, "NotFound", "the server could not find the requested resource"), {}))
        assert await jobs.queued("1") == "LocalQueue nope doesn't exist"
        assert [path.split("/")[3] for _, path in server.requests][-2:] == ["v1beta2", "v1beta1"]

    with_jobs(tmp_path, test)


def test_of_one_whose_parts_are_refused_nothing_is_left(tmp_path: Path) -> None:
    async def test(server: ApiServer, jobs: Jobs) -> None:
        wanted = Wanted(ID, "k", "ada", 2)
        job = jobs.job(Profile(image="i"), wanted)
        create = jobs._cluster.api.create

        async def refused(kind: Any, namespace: Any, body: Any) -> Any:
            if body["kind"] == "Service":
                server.faults.append((403, status(403, "Forbidden", "services is forbidden"), {}))
            return await create(kind, namespace, body)

        jobs._cluster.api.create = refused  # type: ignore[method-assign]
        with pytest.raises(ApiDenied):
            await jobs.make(job, wanted, {"token": "hush"})
        assert ("jobs", "ns", NAME) not in server.objects

    with_jobs(tmp_path, test)


@pytest.mark.parametrize(("kind", "plurals"), [("jobset", ["jobsets"]), ("trainjob", ["trainingruntimes", "trainjobs"])])
def test_a_burst_of_another_kind_is_let_go_once_all_is_there_and_nothing_is_left_of_it(
    tmp_path: Path, kind: str, plurals: list[str]
) -> None:
    async def test(server: ApiServer, jobs: Jobs) -> None:
        uid = await make(jobs, Wanted(ID, "k", "ada", 2, shape=kind))
        parts = ["secrets", "networkpolicies"]  # names come with the kind
        assert [path.rpartition("/")[2] for method, path in server.requests if method == "POST"] == [*plurals, *parts]
        assert server.requests[-1][0] == "PATCH" and server.objects[plurals[-1], "ns", NAME]["spec"]["suspend"] is False
        for part in parts:
            [owner] = server.objects[part, "ns", NAME]["metadata"]["ownerReferences"]
            assert (owner["kind"].lower(), owner["uid"]) == (kind, uid)
        assert await jobs.ids() == {ID}
        await jobs.end(ID)
        assert not [key for key in server.objects if key[0] in plurals] and await jobs.ids() == set()

    with_jobs(tmp_path, test, kinds=[kind])


def test_a_kind_runs_where_the_admin_has_switched_it_on_and_ranks_of_ours_can_run_in_it(tmp_path: Path) -> None:
    async def test(server: ApiServer, jobs: Jobs) -> None:
        assert jobs.checked_shape("job") == "job" and jobs.checked_shape("jobset") == "jobset"
        for name, told in (("volcano", "KubernetesBackend.job_kinds"), ("rayjob", "--dry-run shows"), ("slurm", "no launcher")):
            with pytest.raises(BadRequest, match=told):
                jobs.checked_shape(name)
        assert jobs.checked_shape("rayjob", to_run=False) == "rayjob"

    with_jobs(tmp_path, test, kinds=["jobset"])


@pytest.mark.parametrize("kind", [name for name in adapters.SHAPES if name != adapters.JOB])
def test_the_objects_are_shown_as_they_would_be_without_the_token(tmp_path: Path, kind: str) -> None:
    async def test(server: ApiServer, jobs: Jobs) -> None:
        wanted = Wanted(ID, "k", "ada", 1, shape=kind)
        shown = jobs.shown(jobs.job(Profile(image="i"), wanted), wanted)
        assert kind in [each["kind"].lower() for each in shown] or kind == "volcano"
        assert {"Secret", "NetworkPolicy"} <= {each["kind"] for each in shown} and server.requests == []

    with_jobs(tmp_path, test)


def test_a_kind_that_the_cluster_does_not_have_is_named_and_nothing_is_left(tmp_path: Path) -> None:
    async def test(server: ApiServer, jobs: Jobs) -> None:
        server.faults.append((404, status(404, "NotFound", "the server could not find the requested resource"), {}))
        with pytest.raises(BadRequest, match=r"no JobSet of jobset\.x-k8s\.io/v1alpha2"):
            await make(jobs, Wanted(ID, "k", "ada", 2, shape="jobset"))
        assert server.objects == {}

    with_jobs(tmp_path, test, kinds=["jobset"])


def test_what_is_kept_for_the_gateway_is_made_once(tmp_path: Path) -> None:
    async def test(server: ApiServer, jobs: Jobs) -> None:
        assert await jobs.kept("bursts", lambda: {"key": "first"}) == {"key": "first"}
        assert await jobs.kept("bursts", lambda: {"key": "second"}) == {"key": "first"}

    with_jobs(tmp_path, test)


def rank(number: int, created: str, burst: str = ID, **state: Any) -> dict[str, Any]:
    labels = {names.BURST: burst, INDEX: str(number)}
    container = {"name": "rank", "state": state or {"running": {}}}
    return {
        "metadata": {"name": f"p{number}{created}", "creationTimestamp": created, "labels": labels},
        "status": {"phase": "Running", "podIP": f"10.0.0.{number}", "containerStatuses": [container]},
    }


def test_of_each_rank_the_newest_pod_counts(tmp_path: Path) -> None:
    gone = rank(1, "1", terminated={"exitCode": 137, "reason": "Error"})
    gone["status"]["phase"] = "Failed"
    pods = [rank(0, "1"), gone, rank(1, "2"), rank(0, "9", burst="f" * 16)]

    async def test(server: ApiServer, jobs: Jobs) -> None:
        assert jobs.addresses(ID) == {0: "10.0.0.0", 1: "10.0.0.1"}
        assert (jobs.pods(ID).count, dict(jobs.pods(ID).trouble)) == (2, {})
        pods.pop(2)
        found = jobs.pods(ID)
        assert dict(found.ended) == {1: 137}
        assert found.trouble[1].final and found.trouble[1].message.startswith("Rank 1's pod ended")

    with_jobs(tmp_path, test, pods)


@pytest.mark.parametrize(
    ("image", "told"),
    [("", "lab:1"), ("lab:1", "lab:1"), ("registry.example.com/torch:2", "registry.example.com/torch:2"), ("evil:1", "")],
)
def test_workers_have_another_image_where_the_profile_leaves_it_to_clients(tmp_path: Path, image: str, told: str) -> None:
    profile = Profile(image="lab:1", overrides={"KERNEL_IMAGE": ["registry.example.com/*"]})

    async def test(server: ApiServer, jobs: Jobs) -> None:
        jobs._cluster.profiles = {"default": profile}
        kernel = SimpleNamespace(profile="default", whose=None)
        if not told:
            with pytest.raises(BadRequest, match="--image can't be had: KERNEL_IMAGE is 'evil:1'"):
                jobs.profile(kernel, image)
            return
        wanted = Wanted(ID, "k", "ada", 2)
        pods = [jobs.job(jobs.profile(kernel, image), wanted)]
        pods.append(jobs.workers.flex(pods[0], profile, on_demand=False))
        pods += jobs.roles(jobs.profile(kernel, image), wanted, [(Role("eye", 1), 2)]).values()
        assert [each["spec"]["template"]["spec"]["containers"][0]["image"] for each in pods] == [told] * 3

    with_jobs(tmp_path, test)
