"""Roles beside the first: Jobs of their own, with an image and a size of their own."""

from __future__ import annotations

import pytest

from gateway.backends.kubernetes.jobs import adapters, manifests, roles
from gateway.backends.kubernetes.jobs.adapters.parts import Part
from gateway.backends.kubernetes.jobs.manifests import Wanted
from gateway.backends.kubernetes.manifests import Site
from gateway.backends.kubernetes.profiles import Profile
from gateway.protocol.errors import BadRequest
from gateway.protocol.roles import Role

SITE = Site("lab", "ns", "gateway:1", code="code")
PROFILE = Profile(image="kernel:1", overrides={"KERNEL_IMAGE": ("sim:*",), "KERNEL_MEMORY": "8Gi"}, gpu_resource="nvidia.com/gpu")
WANTED = Wanted("0" * 16, "k", "ada", 2, 1, queue="research")
MAIN = {"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "main", "uid": "u-1"}}


def test_a_role_has_its_own_image_size_and_gpus_and_the_numbers_after_the_first_role() -> None:
    main = manifests.job(SITE, PROFILE, WANTED)
    made = roles.job(SITE, PROFILE, WANTED, Role("simulator", 3, image="sim:2", memory="4Gi"), 2)
    assert made["metadata"]["name"] == f"{main['metadata']['name']}-simulator"
    assert (made["spec"]["completions"], made["spec"]["suspend"]) == (3, True)
    pod = made["spec"]["template"]
    [container] = pod["spec"]["containers"]
    assert container["image"] == "sim:2" and container["resources"]["limits"]["memory"] == str(4 << 30)
    assert "nvidia.com/gpu" not in container["resources"]["limits"]
    assert {"name": "ELASTIC_BURST_FIRST", "value": "2"} in container["env"]
    assert pod["metadata"]["labels"]["elastic.jupyter.org/first"] == "2"
    assert pod["spec"]["subdomain"] == main["spec"]["template"]["spec"]["subdomain"]  # one Service names them all
    assert not any("kueue" in label for label in made["metadata"]["labels"])


def test_a_role_goes_with_the_first() -> None:
    owned = roles.owned(roles.job(SITE, PROFILE, WANTED, Role("simulator", 1), 2), MAIN)
    assert owned["metadata"]["ownerReferences"] == [
        {"apiVersion": "batch/v1", "kind": "Job", "name": "main", "uid": "u-1", "controller": False, "blockOwnerDeletion": False}
    ]


@pytest.mark.parametrize(
    ("role", "told"),
    [
        (Role("simulator", 1, image="evil:1"), "The role simulator can't be had: KERNEL_IMAGE.*lets in sim:"),
        (Role("simulator", 1, memory="9Gi"), "KERNEL_MEMORY.*at most 8Gi"),
        (Role("simulator", 1, memory="x"), "KERNEL_MEMORY.*must be a quantity"),
        (Role("simulator", 1, cpu="2"), "KERNEL_CPU can't be chosen"),
    ],
)
def test_a_role_has_nothing_that_the_profile_does_not_leave_to_clients(role: Role, told: str) -> None:
    with pytest.raises(BadRequest, match=told):
        roles.job(SITE, PROFILE, WANTED, role, 2)


def test_a_jobset_has_a_replicated_job_for_each_role() -> None:
    parts = [
        Part("rank", manifests.job(SITE, PROFILE, WANTED)),
        Part("simulator", roles.job(SITE, PROFILE, WANTED, Role("simulator", 3), 2)),
    ]
    made = adapters.shape("jobset").build(parts)
    assert [(each["name"], each["template"]["spec"]["completions"]) for each in made["spec"]["replicatedJobs"]] == [
        ("rank", 2), ("simulator", 3),
    ]  # fmt: skip
