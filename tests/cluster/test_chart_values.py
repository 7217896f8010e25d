"""What values of the chart become: Helm refuses what can't be meant, in words that say what to do, and gives no right that isn't needed."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from typing import Any

import pytest
import yaml

from gateway.backends.kubernetes import names
from tests.cluster.cluster import Cluster, CommandFailed
from tests.cluster.reach import World
from tests.cluster.release import CHART

GPU = {"profiles": {"gpu": {"image": "i", "gpu_resource": "nvidia.com/gpu"}}}
HOME = [{"name": "home", "mount_path": "/a", "persistentVolumeClaim": {"claimName": "home-{user}"}}]
TWICE = [{"name": "home", "mount_path": path, "emptyDir": {}} for path in ("/a", "/b")]
Render = Callable[..., str]


@pytest.fixture
def render(cluster: Cluster) -> Render:
    """``helm template`` with values; the manifests as text."""

    def rendered(values: dict[str, Any] | None = None, *args: str) -> str:
        told = ("--kube-version", "1.34.0", "--values", "-", *args)  # a Helm built from source doesn't know what is current
        return cluster.helm("template", "mine", str(CHART), "--namespace", "here", *told, stdin=json.dumps(values or {}))

    return rendered


def config(text: str) -> dict[str, Any]:
    """The gateway's configuration file in the manifests."""
    lines = text.partition("jupyter_elastic_gateway_config.json: |\n")[2].partition("\n---")[0]
    return dict(json.loads(lines))


def test_lint_has_nothing_to_say(cluster: Cluster) -> None:
    told = cluster.helm("lint", "--strict", str(CHART), "--kube-version", "1.34.0")
    assert not re.search("WARNING|ERROR", told), told


@pytest.mark.parametrize(
    ("values", "said"),
    [
        ({"image": {"repo": "x"}}, "additional properties 'repo' not allowed"),
        ({"leases": {"idle_timeout": "soon"}}, "/leases/idle_timeout"),
        ({"leases": {"idle_timout": 3}}, "'idle_timout' not allowed"),
        ({"profiles": {"default": {"cpus": "1"}}}, "'cpus' not allowed"),
        ({"profiles": {"default": {"memory": "much"}}}, "/profiles/default/memory"),
        ({"profiles": {"gpu": {"gpu_resource": "nvidia.com/gpu"}}}, "missing property 'image'"),
        ({"profiles": {"home": {"image": "i", "volumes": [{"name": "a", "mount_path": "/a", "hostPath": {"path": "/"}}]}}}, "'hostPath'"),
        ({"profiles": {"home": {"image": "i", "volumes": [{"name": "My_Home", "mount_path": "/a", "emptyDir": {}}]}}}, "/volumes/0/name"),
        (
            {"profiles": {"home": {"image": "i", "volumes": [{"name": "elastic-code", "mount_path": "/a", "emptyDir": {}}]}}},
            "/volumes/0/name",
        ),
        ({"profiles": {"home": {"image": "i", "volumes": [{"name": "a", "mount_path": "/opt/elastic", "emptyDir": {}}]}}}, "/mount_path"),
        ({"profiles": {"home": {"image": "i", "volumes": TWICE}}}, 'two volumes "home"'),
        ({"profiles": {"home": {"image": "i", "volumes": HOME, "warm": 1}}}, "no volume of one user's own"),
        ({"profiles": {"gpu": {**GPU["profiles"]["gpu"], "gpu_sees": "life", "warm": 1}}}, "no GPU for life"),
        ({"profiles": {"gpu": {**GPU["profiles"]["gpu"], "gpu_sees": "claim"}}}, "profiles.gpu.gpu_claim is missing"),
        ({"profiles": {"gpu": {"image": "i", "gpu_resource": "gpu"}}}, "/profiles/gpu/gpu_resource"),
        ({"profiles": {"gpu": {"image": "i", "labels": {"team": "a b"}}}}, "/profiles/gpu/labels/team"),
        ({"runAsUser": 0}, "/runAsUser"),
        ({"bursts": {"kinds": ["slurm"]}}, "/bursts/kinds/0"),
        ({"kernels": {"defaultProfile": "other"}}, 'kernels.defaultProfile is "other", and profiles has: default'),
        ({"kernelspecs": {"r": {"displayName": "R", "profile": "other"}}}, 'kernelspecs.r.profile is "other", and profiles has: default'),
        ({"token": {"value": "a", "existingSecret": "b"}}, "leave one out"),
        ({"config": {"IdentityProvider": {"token": "a"}}}, "use the value token"),
        ({"config": {"KubernetesBackend": {"namespace": "a"}}}, "use the value kernels.namespace"),
        ({"config": {"Leases": {"min_hold": 1}}}, "use the value leases"),
    ],
)
def test_a_value_that_can_not_be_meant_is_refused(render: Render, values: dict[str, Any], said: str) -> None:
    with pytest.raises(CommandFailed, match=re.escape(said)):
        render(values)


def test_without_a_profile_that_leases_there_is_no_right_beyond_the_namespace(render: Render) -> None:
    assert "kind: ClusterRole" not in render()
    assert "kind: ClusterRole" not in render({"profiles": {"life": {**GPU["profiles"]["gpu"], "gpu_sees": "life"}}})
    assert "kind: ClusterRole" not in render({**GPU, "rbac": {"cluster": False}})


def test_without_bursts_there_are_no_rights_for_them_and_nobody_listens(render: Render) -> None:
    assert "resources: [jobs]" in render() and "containerPort: 8889" in render()
    text = render({"bursts": {"enabled": False}})
    assert not re.search(r"jobs|networkpolicies\]|services\]|8889", text)
    assert config(text)["Bursts"] == {"most_workers": 0}


@pytest.mark.parametrize(("foreign", "resources"), [(True, ["nodes", "pods"]), (False, ["nodes"])])
def test_pods_of_others_are_read_only_where_they_count(render: Render, foreign: bool, resources: list[str]) -> None:
    text = render({**GPU, "foreignPods": foreign})
    role = next(each for each in text.split("\n---") if "kind: ClusterRole\n" in each)
    assert re.findall(r"resources: \[(\w+)\]", role) == resources
    assert set(re.findall(r"verbs: \[(.*)\]", role)) == {"list, watch"}
    assert config(text)["KubernetesBackend"]["foreign_pods"] is foreign


def test_what_reads_numbers_is_made_only_where_it_is_wanted_and_never_holds_the_token(render: Render) -> None:
    assert not re.search("ServiceMonitor|PrometheusRule|grafana", render())
    made = {each: {"enabled": True} for each in ("scrape", "alerts", "dashboard")}
    text = render({"metrics": made, "token": {"value": "hush-hush"}})
    objects = {each["kind"]: each for each in yaml.safe_load_all(text) if each and each["kind"] != "ConfigMap"}
    [endpoint] = objects["ServiceMonitor"]["spec"]["endpoints"]
    assert endpoint["authorization"]["credentials"] == {"name": "mine-elastic-gateway-token", "key": "token"}
    assert objects["PrometheusRule"]["spec"] == yaml.safe_load((CHART / "files/alerts.yaml").read_text())
    [board] = [each for each in yaml.safe_load_all(text) if each and each["metadata"]["name"].endswith("-dashboard")]
    assert board["metadata"]["labels"]["grafana_dashboard"] == "1"
    assert json.loads(board["data"]["elastic-gateway.json"]) == json.loads((CHART / "files/dashboard.json").read_text())
    assert text.count("hush-hush") == text.count("token: hush-hush") <= 1, "in the Secret alone"
    own = render({"metrics": {"scrape": {"enabled": True, "tokenSecret": "readers", "tokenSecretKey": "prometheus"}}})
    assert "name: readers\n          key: prometheus" in own


def test_none_means_the_settings_none_and_further_settings_are_passed_through(render: Render) -> None:
    values = {"leases": {"idle_timeout": "none", "min_hold": 2.5}, "config": {"KubernetesBackend": {"launch_timeout": 300}}}
    found = config(render({**values, "simulatedGpus": 0}))
    assert found["Leases"] == {"idle_timeout": None, "min_hold": 2.5, "policy_file": "/etc/elastic-gateway/policy/policy.yaml"}
    assert found["KubernetesBackend"]["launch_timeout"] == 300
    assert found["KubernetesBackend"]["namespace"] == "here"
    assert found["ElasticGateway"]["simulated_gpus"] == 0


def test_the_token_stands_in_its_secret_alone(render: Render) -> None:
    text = render({"token": {"value": "opensesame"}})
    assert "opensesame" not in text
    assert text.count("b3BlbnNlc2FtZQ==") == 1
    assert "kind: Secret" not in render({"token": {"existingSecret": "mine", "existingSecretKey": "key"}})
    assert "{key: key, path: token}" in render({"token": {"existingSecret": "mine", "existingSecretKey": "key"}})


def test_every_option_renders(render: Render) -> None:
    text = render(
        {
            **GPU, "persistence": {"enabled": True, "storageClass": "fast"}, "imagePullSecrets": ["mine"], "priorityClassName": "high",
            "networkPolicy": {"from": [{"podSelector": {}}], "kernelEgress": [{"ports": [{"port": 53}]}]}, "podLabels": {"a": "b"},
            "service": {"type": "NodePort", "nodePort": 30000, "annotations": {"c": "d"}}, "nodeSelector": {"e": "f"},
            "podAnnotations": {"g": "h"}, "tolerations": [{"operator": "Exists"}], "affinity": {"podAffinity": {}},
            "serviceAccount": {"annotations": {"i": "j"}}, "config": {"ServerApp": {"base_url": "/jupyter/"}},
        }
    )  # fmt: skip
    assert text.count("path: /jupyter/api,") == 3
    assert config(text)["SessionManager"]["database_filepath"].startswith("/var/lib/elastic-gateway/")
    assert config(text)["ServerApp"]["base_url"] == "/jupyter/"


def test_rules_for_some_are_a_config_map_of_their_own_whose_change_restarts_nothing(render: Render) -> None:
    plain, ruled = render(), render({"policy": {"users": {"ana": {"idle_timeout": 5}}}})
    told = ruled.partition("policy.yaml: |\n")[2].partition("\n---")[0]
    assert told.split() == ["users:", "ana:", "idle_timeout:", "5"]
    assert "mountPath: /etc/elastic-gateway/policy, readOnly: true" in ruled
    checksums = [re.findall(r"checksum/config: (\w+)", text) for text in (plain, ruled)]
    assert checksums[0] == checksums[1] != []


def test_users_of_their_own_come_from_a_secret_that_is_mounted_and_never_copied(render: Render) -> None:
    text = render({"users": {"existingSecret": "mine"}})
    assert config(text)["ElasticIdentityProvider"] == {"users_file": "/etc/elastic-gateway/users/users.yaml"}
    assert "secretName: mine" in text
    assert "ElasticIdentityProvider" not in config(render())


def test_rights_for_other_kinds_of_a_burst_are_given_for_those_alone_that_are_switched_on(render: Render) -> None:
    groups = {"jobset": "jobset.x-k8s.io", "trainjob": "trainer.kubeflow.org", "volcano": "batch.volcano.sh"}
    for on in ([], ["jobset"], list(groups)):
        text = render({"bursts": {"kinds": on}})
        assert [name for name, group in groups.items() if f"apiGroups: [{group}]" in text] == on
        assert config(text)["KubernetesBackend"].get("job_kinds", []) == on


def test_a_cell_on_many_workers_reaches_no_more_than_its_notebook_may_but_its_other_workers(render: Render) -> None:
    def pod(role: str) -> dict[str, Any]:
        labels = names.labels("mine-elastic-gateway", role, "k", "ada") if role else {}
        return {"metadata": {"namespace": "here", "labels": labels}, "spec": {"containers": []}}

    kernel, rank, neighbour = pod(names.ROLE_KERNEL), pod(names.ROLE_RANK), pod("")
    for limited in (False, True):
        text = render({"networkPolicy": {"kernelEgress": [{"ports": [{"port": 53}]}] if limited else []}})
        world = World([each for each in yaml.safe_load_all(text) if each and each["kind"] == "NetworkPolicy"], {"here": {}})
        for port, open_to in ((53, True), (443, not limited)):
            assert [world.may_reach(each, neighbour, port) for each in (kernel, rank)] == [open_to, open_to]
        assert world.may_reach(rank, rank, 29500), "whose of them is said by each burst's own policy"
