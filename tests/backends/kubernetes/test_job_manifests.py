"""The objects of a burst. ``python -m tests.backends.kubernetes.test_job_manifests`` writes the golden files anew."""

from __future__ import annotations

import json
from base64 import b64decode
from typing import Any

import pytest

from gateway.backends.kubernetes import names
from gateway.backends.kubernetes.jobs import manifests, parts
from gateway.backends.kubernetes.jobs.manifests import Wanted
from gateway.backends.kubernetes.profiles import Profile
from gateway.protocol import burst
from tests.backends.kubernetes.test_manifests import GOLDEN, KERNEL, OWNER, PROFILES, SITE, USER

ID, UID = "0123456789abcdef", "33333333-4444"
WANTED = {
    "plain": Wanted(ID, KERNEL, USER, 2, owner=OWNER),
    "gpu": Wanted(ID, KERNEL, USER, 3, gpus=2, timeout=3600.0),
    "gpu-on-demand": Wanted(ID, KERNEL, USER, 3, gpus=2, timeout=3600.0, on_demand=True),
    "plain-queued": Wanted(ID, KERNEL, USER, 2, owner=OWNER, queue="research"),
    "claim": Wanted(ID, KERNEL, USER, 2, gpus=1, owner=OWNER),
}
ACCESS = {"url": "https://gateway:8889", "certificate": "PEM", "token": "hush", "burst": ID}


def objects() -> dict[str, dict[str, Any]]:
    made = {f"job-{name}": manifests.job(SITE, PROFILES[name.partition("-")[0]], wanted, ["node-9"]) for name, wanted in WANTED.items()}
    for each in manifests.belongings(SITE, WANTED["plain"], UID, ACCESS):
        made[f"burst-{each['kind'].lower()}"] = each
    for name in ("gpu", "gpu-on-demand"):
        job, profile = made[f"job-{name}"], PROFILES["gpu"]
        base = parts.base(job, profile, WANTED[name].on_demand)
        made[f"job-{name}-base"] = base
        placed = {"metadata": {**base["metadata"], "uid": UID}}
        made[f"job-{name}-flex"] = parts.numbered(parts.flex(job, profile, WANTED[name].on_demand), 3, placed)
    return made


def jobs() -> dict[str, dict[str, Any]]:
    return {name: made for name, made in objects().items() if made["kind"] == "Job"}


@pytest.mark.parametrize("name", objects())
def test_objects_are_what_they_were(name: str) -> None:
    assert objects()[name] == json.loads((GOLDEN / f"{name}.json").read_text())


@pytest.mark.parametrize("name", jobs())
def test_every_rank_is_restricted_and_has_no_token_of_the_cluster_nor_of_the_burst(name: str) -> None:
    spec = jobs()[name]["spec"]["template"]["spec"]
    assert spec["automountServiceAccountToken"] is False
    assert spec["securityContext"]["runAsNonRoot"] is True and spec["securityContext"]["runAsUser"] > 0
    assert spec["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
    assert not {"hostNetwork", "hostPID", "hostIPC", "serviceAccountName", "shareProcessNamespace"} & set(spec)
    for container in [*spec["containers"], *spec.get("initContainers", [])]:
        assert container["securityContext"]["allowPrivilegeEscalation"] is False
        assert container["securityContext"]["capabilities"] == {"drop": ["ALL"]}
        assert container["resources"]["limits"]["memory"]
    assert not any("hostPath" in volume for volume in spec["volumes"])
    assert "hush" not in json.dumps(jobs())


def test_workers_beyond_the_least_are_jobs_that_nobody_makes_again_and_that_go_with_the_base() -> None:
    made = objects()["job-gpu-flex"]
    assert made["spec"]["completions"] == 1 and made["spec"]["backoffLimit"] == 0 and not made["spec"]["suspend"]
    assert [each["uid"] for each in made["metadata"]["ownerReferences"]] == [UID]
    assert made["spec"]["template"]["metadata"]["labels"][names.FLEX] == "3"
    assert names.FLEX not in objects()["job-gpu-base"]["spec"]["template"]["metadata"]["labels"]


def test_workers_beyond_the_least_prefer_spot_nodes_and_have_the_lower_priority() -> None:
    pod, plain = (objects()[f"job-gpu-{part}"]["spec"]["template"]["spec"] for part in ("flex", "base"))
    preferred = pod["affinity"]["nodeAffinity"]["preferredDuringSchedulingIgnoredDuringExecution"]
    told = {each["preference"]["matchExpressions"][0]["key"] for each in preferred}
    assert told == set(PROFILES["gpu"].spot_nodes) and {"key": "spot", "operator": "Exists"} in pod["tolerations"]
    assert (pod["priorityClassName"], plain["priorityClassName"]) == ("spare", "gpu-kernel")
    [avoided] = plain["affinity"]["nodeAffinity"]["preferredDuringSchedulingIgnoredDuringExecution"]
    unlike = {(each["key"], each["operator"]) for each in avoided["preference"]["matchExpressions"]}
    assert unlike == {(label, "NotIn") for label in PROFILES["gpu"].spot_nodes}, "those are left to the workers beyond the least"
    assert "requiredDuringSchedulingIgnoredDuringExecution" in plain["affinity"]["nodeAffinity"], "a drained node"


@pytest.mark.parametrize("part", ["base", "flex"])
def test_on_demand_no_worker_is_on_a_spot_node(part: str) -> None:
    pod = objects()[f"job-gpu-on-demand-{part}"]["spec"]["template"]["spec"]
    [term] = pod["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]["nodeSelectorTerms"]
    unlike = {(each["key"], each["operator"]) for each in term["matchExpressions"]}
    assert unlike == {(label, "NotIn") for label in PROFILES["gpu"].spot_nodes}
    assert term["matchFields"], "drained nodes are none either"
    assert {"key": "spot", "operator": "Exists"} not in pod["tolerations"]


def test_workers_beyond_the_least_wait_in_the_same_queue() -> None:
    made = parts.flex(objects()["job-plain-queued"], PROFILES["plain"], on_demand=False)
    assert made["spec"]["suspend"] and made["metadata"]["labels"][manifests.KUEUE_QUEUE] == "research"


def test_the_token_lies_in_the_secret_that_is_mounted_and_nowhere_else() -> None:
    made = objects()
    assert json.loads(b64decode(made["burst-secret"]["data"][burst.SPEC]))["token"] == "hush"
    assert [name for name, each in made.items() if "hush" in json.dumps(each)] == []
    [volume] = [each for each in made["job-plain"]["spec"]["template"]["spec"]["volumes"] if each["name"] == "elastic-spec"]
    assert volume["secret"]["secretName"] == made["burst-secret"]["metadata"]["name"]
    assert volume["secret"]["items"] == [{"key": burst.SPEC, "path": burst.SPEC}]


def test_ranks_are_like_their_kernel_and_request_their_gpus_themselves() -> None:
    made = jobs()
    spec, kernel = made["job-gpu"]["spec"]["template"]["spec"], json.loads((GOLDEN / "kernel-gpu.json").read_text())["spec"]
    assert {"nodeSelector", "tolerations", "securityContext", "imagePullSecrets", "runtimeClassName"} <= set(spec)
    for same in ("nodeSelector", "tolerations", "securityContext", "imagePullSecrets", "runtimeClassName", "priorityClassName"):
        assert spec[same] == kernel[same]
    ours, theirs = spec["containers"][0], kernel["containers"][0]
    assert ours["image"] == theirs["image"]
    assert all(mount in ours["volumeMounts"] for mount in theirs["volumeMounts"])
    assert ours["resources"]["limits"]["nvidia.com/gpu"] == "2"
    assert "NVIDIA_VISIBLE_DEVICES" not in str(ours["env"]), "the device plugin says it"
    assert "resourceClaims" not in made["job-claim"]["spec"]["template"]["spec"]
    assert {"name": "NVIDIA_VISIBLE_DEVICES", "value": "void"} in made["job-plain"]["spec"]["template"]["spec"]["containers"][0]["env"]
    assert "NotIn" in str(spec["affinity"]), "a drained node"


def test_nothing_is_left_of_a_burst_all_of_it_belongs_to_its_job_and_that_to_the_kernel() -> None:
    made = objects()
    assert [each["uid"] for each in made["job-plain"]["metadata"]["ownerReferences"]] == [OWNER["uid"]]
    assert "ownerReferences" not in made["job-gpu"]["metadata"], "it was detached"
    for name in ("burst-secret", "burst-service", "burst-networkpolicy"):
        [owner] = made[name]["metadata"]["ownerReferences"]
        assert (owner["kind"], owner["name"], owner["uid"]) == ("Job", made["job-plain"]["metadata"]["name"], UID)


def test_a_users_error_is_told_from_what_may_be_tried_again() -> None:
    spec = jobs()["job-plain"]["spec"]
    first, second = spec["podFailurePolicy"]["rules"]
    assert first["action"] == "FailJob" and first["onExitCodes"]["values"] == [burst.USER_ERROR]
    assert second["action"] == "Ignore" and second["onPodConditions"][0]["type"] == "DisruptionTarget"
    assert (spec["completions"], spec["parallelism"], spec["completionMode"], spec["suspend"]) == (2, 2, "Indexed", True)


def test_a_queue_is_kueues_label_on_the_job_alone() -> None:
    queued, plain = jobs()["job-plain-queued"], jobs()["job-plain"]
    assert queued["metadata"]["labels"].pop(manifests.KUEUE_QUEUE) == "research"
    assert queued == plain


def test_ranks_hear_those_of_their_own_burst_alone() -> None:
    spec = objects()["burst-networkpolicy"]["spec"]
    us = {"matchLabels": {names.BURST: ID}}
    assert spec["podSelector"] == us and spec["ingress"] == [{"from": [{"podSelector": us}]}]
    assert jobs()["job-plain"]["spec"]["template"]["metadata"]["labels"][names.BURST] == ID


def test_a_profile_can_not_forge_the_labels_by_which_ranks_are_found() -> None:
    profile = Profile(image="i", labels={names.BURST: "another", names.ROLE: "kernel"})
    labels = manifests.job(SITE, profile, WANTED["plain"])["spec"]["template"]["metadata"]["labels"]
    assert (labels[names.BURST], labels[names.ROLE]) == (ID, names.ROLE_RANK)


if __name__ == "__main__":
    for name, made in objects().items():
        (GOLDEN / f"{name}.json").write_text(json.dumps(made, indent=2) + "\n")
