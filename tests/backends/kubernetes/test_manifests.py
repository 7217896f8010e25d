"""What we make in a cluster, object by object. ``python -m tests.backends.kubernetes.test_manifests`` writes the golden files anew."""

from __future__ import annotations

import json
from base64 import b64decode
from pathlib import Path
from typing import Any

import pytest

from gateway.backends.kubernetes import manifests, names
from gateway.backends.kubernetes.manifests import Site
from gateway.backends.kubernetes.profiles import Profile, profiles

GOLDEN = Path(__file__).parent / "golden"
SITE = Site("lab", "kernels", "example/gateway:1", code="code-lab-1234")
KERNEL, USER = "0d5bd4f5-41a9-4b43-8b1c-3a8a2f9a7d11", "ada@example.org"
NAME = names.kernel_pod(KERNEL)
OWNER = {"name": NAME, "uid": "11111111-2222"}

PROFILES = profiles(
    {
        "plain": {"image": "example/kernel:1"},
        "gpu": {
            "image": "example/torch:1", "cpu": "4", "cpu_limit": "8", "memory": "16Gi", "parkable_memory": "40Gi",
            "gpu_resource": "nvidia.com/gpu", "node_selector": {"pool": "gpu"}, "tolerations": [{"key": "gpu", "operator": "Exists"}],
            "volumes": [
                {"name": "home", "mount_path": "/home/jovyan", "sub_path": "users/{user}", "persistentVolumeClaim": {"claimName": "homes"}},
                {"name": "data", "mount_path": "/data", "read_only": True, "nfs": {"server": "nas", "path": "/data"}},
            ],
            "working_dir": "/home/jovyan", "priority_class": "gpu-kernel", "flex_priority_class": "spare",
            "spot_tolerations": [{"key": "spot", "operator": "Exists"}], "runtime_class": "nvidia", "pull_secrets": ["site"],
            "annotations": {"site/a": "b"}, "labels": {"team": "vision", names.USER: "forged"},
        },
        "life": {"image": "example/torch:1", "gpu_resource": "nvidia.com/gpu", "gpu_sees": "life", "gpus": 2},
        "claim": {"image": "example/torch:1", "gpu_resource": "amd.com/gpu", "gpu_sees": "claim", "gpu_claim": "all-gpus"},
    }
)  # fmt: skip


def objects() -> dict[str, dict[str, Any]]:
    made = {f"kernel-{name}": manifests.kernel_pod(SITE, profile, NAME, KERNEL, USER, profile.gpus) for name, profile in PROFILES.items()}
    made["slot"] = manifests.slot_pod(SITE, PROFILES["gpu"], "slot-node-1", KERNEL, USER, "node-1", 2, OWNER)
    made["code"] = manifests.code_secret(SITE, "UEs=")
    made["secret"] = manifests.secret(SITE, NAME, KERNEL, USER, {"key": "k"}, {"secretkey": "s"})
    return made


@pytest.mark.parametrize("name", objects())
def test_objects_are_what_they_were(name: str) -> None:
    assert objects()[name] == json.loads((GOLDEN / f"{name}.json").read_text())


def pods() -> dict[str, dict[str, Any]]:
    return {name: made for name, made in objects().items() if made["kind"] == "Pod"}


@pytest.mark.parametrize("name", pods())
def test_every_pod_is_restricted_and_has_no_token(name: str) -> None:
    spec = pods()[name]["spec"]
    assert spec["automountServiceAccountToken"] is False
    assert spec["securityContext"]["runAsNonRoot"] is True
    assert spec["securityContext"]["runAsUser"] > 0
    assert spec["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
    assert not {"hostNetwork", "hostPID", "hostIPC", "serviceAccountName"} & set(spec)
    assert len(spec["containers"]) == 1 or not spec.get("shareProcessNamespace"), "it sees no processes but its own"
    for container in [*spec["containers"], *spec.get("initContainers", [])]:
        assert container["securityContext"]["allowPrivilegeEscalation"] is False
        assert container["securityContext"]["capabilities"] == {"drop": ["ALL"]}
        assert "privileged" not in container["securityContext"]
        assert container["resources"]["limits"]["memory"]
    assert not any("hostPath" in volume for volume in spec.get("volumes", []))


def test_what_a_gateway_keeps_to_itself_is_not_mounted_in_the_pod() -> None:
    [volume] = [each for each in objects()["kernel-plain"]["spec"]["volumes"] if each.get("secret", {}).get("secretName") == NAME]
    assert [item["key"] for item in volume["secret"]["items"]] == [manifests.SPEC_KEY]
    assert json.loads(b64decode(objects()["secret"]["data"][manifests.OWNER_KEY])) == {"secretkey": "s"}


def test_a_leased_kernel_requests_no_gpu_and_one_for_life_does() -> None:
    made = pods()
    assert "nvidia.com/gpu" not in made["kernel-gpu"]["spec"]["containers"][0]["resources"]["limits"]
    assert made["kernel-life"]["spec"]["containers"][0]["resources"]["limits"]["nvidia.com/gpu"] == "2"
    assert made["slot"]["spec"]["containers"][0]["resources"]["requests"]["nvidia.com/gpu"] == "2"


def test_a_kernel_is_sent_to_no_drained_node() -> None:
    pod = manifests.kernel_pod(SITE, PROFILES["plain"], NAME, KERNEL, USER, 1, {"node2", "node1"})
    required = pod["spec"]["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]
    assert required["nodeSelectorTerms"] == [
        {"matchFields": [{"key": "metadata.name", "operator": "NotIn", "values": [node]} for node in ("node1", "node2")]}
    ]


def test_a_kernel_goes_to_the_node_where_it_fits_best_and_to_another_where_that_is_full() -> None:
    pod = manifests.kernel_pod(SITE, PROFILES["gpu"], NAME, KERNEL, USER, 1, {"node2"}, "node1")
    affinity = pod["spec"]["affinity"]["nodeAffinity"]
    here = {"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["node1"]}]}
    assert affinity["preferredDuringSchedulingIgnoredDuringExecution"] == [{"weight": 100, "preference": here}]
    assert "NotIn" in str(affinity["requiredDuringSchedulingIgnoredDuringExecution"])


def test_a_profile_can_not_forge_the_labels_by_which_kernels_are_found() -> None:
    assert pods()["kernel-gpu"]["metadata"]["labels"][names.USER] == names.slug(USER)


def test_a_users_name_becomes_no_path_of_anothers() -> None:
    profile = PROFILES["gpu"]
    paths = {
        user: manifests.kernel_pod(SITE, profile, NAME, KERNEL, user, 1)["spec"]["containers"][0]["volumeMounts"][3]["subPath"]
        for user in ("ada", "../ada", "ada/../bob", "", "Ada")
    }
    assert len(set(paths.values())) == len(paths)
    assert not any(".." in path or path.endswith("/") for path in paths.values())


def test_every_kubernetes_quantity_is_text() -> None:
    def quantities_of(resources: dict[str, Any]) -> list[Any]:
        return [*resources.get("limits", {}).values(), *resources.get("requests", {}).values()]

    containers = [each for made in pods().values() for each in (*made["spec"]["containers"], *made["spec"].get("initContainers", []))]
    found = [amount for each in containers for amount in quantities_of(each["resources"])]
    assert found
    assert all(isinstance(each, str) for each in found)


def test_the_same_arguments_give_the_same_object() -> None:
    assert objects() == objects()
    assert isinstance(PROFILES["gpu"], Profile)


if __name__ == "__main__":
    for file_name, made in objects().items():
        (GOLDEN / f"{file_name}.json").write_text(json.dumps(made, indent=1, sort_keys=True) + "\n")
