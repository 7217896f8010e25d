"""A burst as JobSet, TrainJob, RayJob, Volcano Job or MPIJob: valid by their own schemas, and the same ranks as those of its Job."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import jsonschema
import pytest

from gateway.backends.kubernetes import names
from gateway.backends.kubernetes.jobs import adapters, manifests
from gateway.backends.kubernetes.jobs.adapters import SHAPES, mpijob, rayjob, trainjob, volcano
from gateway.backends.kubernetes.jobs.adapters.parts import INDEX, Part
from gateway.protocol import burst
from gateway.protocol.errors import BadRequest
from tests.backends.kubernetes.test_job_manifests import ACCESS, UID, WANTED
from tests.backends.kubernetes.test_manifests import PROFILES, SITE
from tests.cluster import crds

OTHERS = [name for name in SHAPES if name != adapters.JOB]
ROLES = [("jobset", 2), ("volcano", 2), *((name, 1) for name in OTHERS)]  # and how many roles they can have


def parts(wanted: str = "gpu", roles: int = 1) -> list[Part]:
    job = manifests.job(SITE, PROFILES[wanted.partition("-")[0]], WANTED[wanted])
    return [Part(("worker", "ps")[number], job) for number in range(roles)]


def made(name: str, wanted: str = "gpu", roles: int = 1) -> list[dict[str, Any]]:
    return [*SHAPES[name].before(parts(wanted, roles)), SHAPES[name].build(parts(wanted, roles))]


def templates(value: Any) -> list[dict[str, Any]]:
    """All pod templates, wherever they stand."""
    if isinstance(value, dict):
        own = [value] if "containers" in value.get("spec", {}) else []
        return own + [found for each in value.values() for found in templates(each)]
    return [found for each in value for found in templates(each)] if isinstance(value, list) else []


@pytest.mark.parametrize("wanted", WANTED)
@pytest.mark.parametrize(("name", "roles"), ROLES)
def test_the_objects_are_valid_by_the_schemas_of_their_own_projects(name: str, roles: int, wanted: str) -> None:
    for each in made(name, wanted, roles):
        kind = name if each["kind"] != "TrainingRuntime" else "trainingruntime"
        try:
            validator = crds.validator(kind, each["apiVersion"].partition("/")[2])
        except FileNotFoundError:
            pytest.skip(f"the cache has no CRD of {kind}: {crds.BUILD}")
        validator.validate(each)
        assert each["apiVersion"].partition("/")[0] == crds.crd(kind)["spec"]["group"]


def test_a_schema_is_believed_as_it_refuses_what_is_wrong() -> None:
    try:
        validator = crds.validator("jobset", "v1alpha2")
    except FileNotFoundError:
        pytest.skip(f"the cache has no CRD of JobSet: {crds.BUILD}")
    [jobset] = made("jobset")
    jobset["spec"]["replicatedJobs"][0]["template"]["spec"]["completion"] = 2
    with pytest.raises(jsonschema.ValidationError, match="completion"):
        validator.validate(jobset)


@pytest.mark.parametrize(("name", "roles"), ROLES)
def test_ranks_are_those_of_the_job_restricted_and_without_a_token(name: str, roles: int) -> None:
    own = parts()[0].template()
    found = [template for each in made(name, roles=roles) for template in templates(each)]
    assert found
    for template in found:
        assert template["metadata"] == own["metadata"]
        assert template["spec"]["automountServiceAccountToken"] is False
        assert template["spec"]["securityContext"] == own["spec"]["securityContext"]
        assert template["spec"]["restartPolicy"] == "Never"
        [container] = template["spec"]["containers"]
        assert container["securityContext"] == own["spec"]["containers"][0]["securityContext"]
        assert container["volumeMounts"] == own["spec"]["containers"][0]["volumeMounts"]
        assert container["resources"]["limits"]["memory"]


@pytest.mark.parametrize("name", OTHERS)
def test_an_adapter_changes_nothing_of_the_job_that_it_is_given(name: str) -> None:
    given = parts()
    before = json.dumps([dict(part.job) for part in given])
    SHAPES[name].before(given)
    SHAPES[name].build(given)
    assert json.dumps([dict(part.job) for part in given]) == before


@pytest.mark.parametrize("name", [name for name in OTHERS if name != "volcano"])
def test_nothing_begins_before_all_that_it_needs_is_there(name: str) -> None:
    spec, change = made(name)[-1]["spec"], SHAPES[name].let_go
    assert change is not None
    while isinstance(change.get("spec", change).get("suspend"), type(None)):
        [(key, change)] = change["spec"].items()
        spec = spec[key]
    assert spec["suspend"] is True


@pytest.mark.parametrize("name", [*(name for name in OTHERS if name != "volcano"), adapters.JOB])
def test_a_queue_is_kueues_label_on_the_whole(name: str) -> None:
    queued = made(name, "plain-queued")[-1]
    assert queued["metadata"]["labels"][manifests.KUEUE_QUEUE] == "research"
    assert manifests.KUEUE_QUEUE not in json.dumps(templates(queued))


def test_a_queue_of_volcano_is_one_of_its_own() -> None:
    [queued] = made("volcano", "plain-queued")
    assert queued["spec"]["queue"] == "research" and manifests.KUEUE_QUEUE not in json.dumps(queued)
    assert "queue" not in made("volcano", "plain")[0]["spec"]


def test_a_jobset_has_a_job_for_each_role_with_its_rules_and_is_never_begun_anew() -> None:
    [jobset] = made("jobset", roles=2)
    jobs = {each["name"]: each["template"]["spec"] for each in jobset["spec"]["replicatedJobs"]}
    assert list(jobs) == ["worker", "ps"]
    for spec in jobs.values():
        assert (spec["completions"], spec["parallelism"], spec["backoffLimit"]) == (3, 3, 0)
        assert spec["podFailurePolicy"]["rules"][0]["onExitCodes"]["values"] == [burst.USER_ERROR]
    assert jobset["spec"]["failurePolicy"] == {"maxRestarts": 0}


def test_a_trainjob_brings_a_runtime_with_the_whole_pod_as_trainer_wants_it() -> None:
    runtime, train = made("trainjob")
    about = {"apiGroup": "trainer.kubeflow.org", "kind": runtime["kind"], "name": runtime["metadata"]["name"]}
    assert train["spec"]["runtimeRef"] == about
    assert train["spec"]["trainer"]["numNodes"] == runtime["spec"]["mlPolicy"]["numNodes"] == 3
    [job] = runtime["spec"]["template"]["spec"]["replicatedJobs"]
    assert job["name"] == trainjob.NODE and job["template"]["metadata"]["labels"] == {trainjob.ANCESTOR: "trainer"}
    assert [each["name"] for each in templates(job)[0]["spec"]["containers"]] == [trainjob.NODE]
    assert job["template"]["spec"]["podFailurePolicy"]["rules"][0]["onExitCodes"]["containerName"] == trainjob.NODE
    assert SHAPES["trainjob"].container == trainjob.NODE
    assert "maxRestarts" not in json.dumps(runtime), "Trainer drops a 0, and its API takes that for a change that it forbids"


def test_volcano_starts_all_pods_or_none_and_tells_each_its_number() -> None:
    [job] = made("volcano", roles=2)
    assert job["spec"]["minAvailable"] == sum(task["replicas"] for task in job["spec"]["tasks"]) == 6
    for template in templates(job):
        [told] = [each for each in template["spec"]["containers"][0]["env"] if each["name"] == INDEX]
        assert volcano.TASK_INDEX in told["valueFrom"]["fieldRef"]["fieldPath"]
    assert {each["action"] for each in job["spec"]["policies"]} == {"TerminateJob"}


def test_of_a_rayjob_the_entrypoint_is_rank_0_and_each_worker_a_node_of_ray() -> None:
    [job] = made("rayjob")
    command = parts()[0].template()["spec"]["containers"][0]["command"]
    assert job["spec"]["entrypoint"].split() == command
    cluster = job["spec"]["rayClusterSpec"]
    assert 1 + sum(group["replicas"] for group in cluster["workerGroupSpecs"]) == 3
    assert all("command" not in template["spec"]["containers"][0] for template in templates(job)), "KubeRay writes it"
    submitter = job["spec"]["submitterPodTemplate"]["spec"]["containers"][0]
    assert submitter["resources"] == rayjob.SUBMITTER, "no GPU"


def test_of_an_mpijob_the_launcher_runs_rank_0s_agent_without_a_gpu_and_workers_an_ssh_server() -> None:
    [job] = made("mpijob")
    launcher, worker = (job["spec"]["mpiReplicaSpecs"][each] for each in ("Launcher", "Worker"))
    [leads], [serves] = (each["template"]["spec"]["containers"] for each in (launcher, worker))
    assert leads["command"] == parts()[0].template()["spec"]["containers"][0]["command"]
    assert {"name": INDEX, "value": "0"} in leads["env"]
    assert "nvidia.com/gpu" not in json.dumps(leads["resources"]) and serves["resources"]["limits"]["nvidia.com/gpu"] == "2"
    assert (launcher["replicas"], worker["replicas"]) == (1, 3)
    assert serves["command"][:4] == ["/usr/sbin/sshd", "-De", "-p", str(mpijob.PORT)]


@pytest.mark.parametrize("name", ["trainjob", "rayjob", "mpijob"])
def test_what_has_one_role_refuses_several_and_says_which_does_not(name: str) -> None:
    with pytest.raises(BadRequest, match="-l jobset"):
        SHAPES[name].build(parts(roles=2))


@pytest.mark.parametrize("name", SHAPES)
def test_all_of_a_burst_belongs_to_what_it_is_made_as(name: str) -> None:
    main = made(name)[-1]
    found = adapters.belonging(manifests.belongings(SITE, WANTED["gpu"], UID, ACCESS), SHAPES[name], main)
    assert {each["kind"] for each in found} == {"Secret", "NetworkPolicy", *(() if SHAPES[name].own_names else ("Service",))}
    for each in found:
        [owner] = each["metadata"]["ownerReferences"]
        assert (owner["apiVersion"], owner["kind"], owner["uid"]) == (main["apiVersion"], main["kind"], UID)


def test_a_kind_that_is_not_known_is_refused_with_those_that_are() -> None:
    with pytest.raises(BadRequest, match="job, jobset"):
        adapters.shape("slurm")


def several(name: str) -> list[dict[str, Any]]:
    """As that kind of object, with four processes in each worker."""
    wanted = replace(WANTED["gpu"], procs=4)
    found = [Part("rank", manifests.job(SITE, PROFILES["gpu"], wanted))]
    return [*SHAPES[name].before(found), SHAPES[name].build(found)]


@pytest.mark.parametrize("name", [name for name in (*OTHERS, adapters.JOB) if name != "rayjob"])
def test_processes_of_a_worker_are_said_of_its_pod_whatever_it_is_made_as(name: str) -> None:
    pods = [template["metadata"]["annotations"].get(names.PROCS) for each in several(name) for template in templates(each)]
    assert pods and set(pods) == {"4"}


def test_mpirun_of_an_mpijob_has_a_slot_for_each_process_and_a_rayjob_has_none() -> None:
    assert several("mpijob")[0]["spec"]["slotsPerWorker"] == 4 and made("mpijob")[0]["spec"]["slotsPerWorker"] == 1
    with pytest.raises(BadRequest, match="leave --procs out"):
        several("rayjob")
