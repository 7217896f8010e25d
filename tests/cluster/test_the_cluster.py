"""The cluster that other tests stand on does what a Kubernetes does, and leaves nothing behind.

NetworkPolicy isn't enforced by its network (the bridge plugin knows none), so nothing is asserted about it.
"""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import pytest

from .cluster import Cluster, OwnCluster
from .images import KERNEL, build_image

ASK = """
import sys, time, urllib.request
for url in sys.argv[1:]:
    while True:
        try:
            print(urllib.request.urlopen(url, timeout=5).status)
            break
        except OSError:
            time.sleep(0.1)
"""


def pod(name: str, *command: str, image: str = KERNEL, node: str | None = None, limits: dict[str, str] | None = None) -> dict[str, Any]:
    """A pod that may do as little as the strictest policy allows."""
    container = {
        "name": "main",
        "image": image,
        "imagePullPolicy": "Never",
        "command": list(command),
        "resources": {"limits": limits or {}},
        "securityContext": {"allowPrivilegeEscalation": False, "readOnlyRootFilesystem": True, "capabilities": {"drop": ["ALL"]}},
    }
    spec = {
        "containers": [container],
        "restartPolicy": "Never",
        "terminationGracePeriodSeconds": 0,
        "automountServiceAccountToken": False,
        "securityContext": {"runAsNonRoot": True, "seccompProfile": {"type": "RuntimeDefault"}},
        **({"nodeSelector": {"kubernetes.io/hostname": node}} if node else {}),
    }
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": spec}


def wait(cluster: Cluster, namespace: str, what: str, condition: str, seconds: int = 60) -> None:
    cluster.kubectl("wait", what, f"--for={condition}", "-n", namespace, f"--timeout={seconds}s")


def test_both_nodes_are_ready(cluster):
    nodes = cluster.get("nodes")["items"]
    ready = [condition["status"] for node in nodes for condition in node["status"]["conditions"] if condition["type"] == "Ready"]
    assert ready == ["True"] * len(nodes) and (len(nodes) == 2 or not isinstance(cluster, OwnCluster))


def test_a_pod_of_the_kernel_image_runs_and_can_be_asked_for_logs_and_for_commands(cluster, namespace):
    code = "import ipykernel, time; print('kernel', ipykernel.__name__, flush=True); time.sleep(600)"
    cluster.apply(pod("kernel", "python3", "-c", code), namespace=namespace)
    wait(cluster, namespace, "pod/kernel", "condition=Ready")
    assert "kernel ipykernel" in cluster.kubectl("logs", "-f", "--tail=1", "kernel", "-n", namespace, "--limit-bytes=17")
    assert cluster.kubectl("exec", "kernel", "-n", namespace, "--", "python3", "-c", "import zmq; print(6 * 7)").strip() == "42"


def test_this_machine_reaches_pods_and_services(cluster, namespace):
    if not isinstance(cluster, OwnCluster):
        pytest.skip("where a foreign cluster's pods can be reached from isn't ours to say; unset KUBECONFIG for a cluster of our own")
    server = pod("server", "python3", "-m", "http.server", "8000", "-d", "/usr/share", node=cluster.node(2).name)
    server["metadata"]["labels"] = {"app": "server"}
    server["spec"]["containers"][0]["readinessProbe"] = {"httpGet": {"port": 8000, "path": "/"}, "periodSeconds": 1}
    service = {
        "apiVersion": "v1", "kind": "Service", "metadata": {"name": "server"},
        "spec": {"selector": {"app": "server"}, "ports": [{"port": 80, "targetPort": 8000}]},
    }  # fmt: skip
    cluster.apply(server, service, namespace=namespace)
    wait(cluster, namespace, "pod/server", "condition=Ready")
    pod_address = cluster.get("pod", "server", "-n", namespace)["status"]["podIP"]
    service_address = cluster.get("service", "server", "-n", namespace)["spec"]["clusterIP"]
    urls = f"http://{pod_address}:8000/", f"http://{service_address}/"
    assert subprocess.run([sys.executable, "-c", ASK, *urls], capture_output=True, text=True, timeout=30).stdout.split() == ["200", "200"]
    cluster.apply(pod("client", "python3", "-c", ASK, *urls, node=cluster.node(1).name), namespace=namespace)
    wait(cluster, namespace, "pod/client", "jsonpath={.status.phase}=Succeeded")


def test_a_gpu_of_a_device_plugin_is_accounted_for_by_the_scheduler_and_told_to_its_pod(cluster, namespace):
    node, gpu = cluster.node(1), f"example.com/{namespace}"
    wanting = {"limits": {gpu: "1"}}
    with node.devices(gpu, ["GPU-a"]) as plugin:
        cluster.apply(pod("first", "sh", "-c", "echo $NVIDIA_VISIBLE_DEVICES; sleep 600", **wanting), namespace=namespace)
        wait(cluster, namespace, "pod/first", "condition=Ready")
        assert cluster.get("pod", "first", "-n", namespace)["spec"]["nodeName"] == node.name
        assert cluster.kubectl("logs", "first", "-n", namespace) == "GPU-a\n"
        assert plugin.given == [["GPU-a"]]

        cluster.apply(pod("second", "sleep", "600", **wanting), namespace=namespace)
        wait(cluster, namespace, "pod/second", "condition=PodScheduled=false")
        conditions = cluster.get("pod", "second", "-n", namespace)["status"]["conditions"]
        assert f"Insufficient {gpu}" in next(each for each in conditions if each["type"] == "PodScheduled")["message"]

        cluster.kubectl("delete", "pod", "first", "-n", namespace)
        wait(cluster, namespace, "pod/second", "condition=Ready")


def test_helm_installs_a_chart(cluster, namespace, tmp_path):
    (tmp_path / "Chart.yaml").write_text("apiVersion: v2\nname: small\nversion: 1.0.0\n")
    (tmp_path / "templates").mkdir()
    template = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: small}\ndata: {key: {{ .Values.key }}}\n"
    (tmp_path / "templates/map.yaml").write_text(template)
    cluster.helm("install", "small", str(tmp_path), "--namespace", namespace, "--set", "key=value", "--wait")
    assert cluster.get("configmap", "small", "-n", namespace)["data"] == {"key": "value"}


def test_a_pod_that_takes_too_much_memory_is_killed_for_it(cluster, namespace):
    hungry = pod("hungry", "python3", "-c", "x = bytearray(1 << 28)", limits={"memory": "64Mi"})
    cluster.apply(hungry, namespace=namespace)
    wait(cluster, namespace, "pod/hungry", "jsonpath={.status.phase}=Failed")
    state = cluster.get("pod", "hungry", "-n", namespace)["status"]["containerStatuses"][0]["state"]
    assert state["terminated"]["reason"] == "OOMKilled"


def test_a_killed_node_is_noticed_and_comes_back(broken_cluster, namespace):
    node = broken_cluster.node(2)
    broken_cluster.apply(pod("lost", "sleep", "600", node=node.name), namespace=namespace)
    wait(broken_cluster, namespace, "pod/lost", "condition=Ready")
    node.kill()
    broken_cluster.kubectl("wait", f"node/{node.name}", "--for=condition=Ready=Unknown", "--timeout=60s")
    wait(broken_cluster, namespace, "pod/lost", "condition=Ready=false")
    node.start()
    broken_cluster.kubectl("wait", f"node/{node.name}", "--for=condition=Ready", "--timeout=60s")


def test_a_restart_of_the_api_server_keeps_the_data_and_the_pods(broken_cluster, namespace):
    broken_cluster.apply(pod("steady", "sleep", "600"), namespace=namespace)
    wait(broken_cluster, namespace, "pod/steady", "condition=Ready")
    before = broken_cluster.get("pod", "steady", "-n", namespace)["status"]["containerStatuses"][0]["containerID"]
    broken_cluster.stop_api()
    assert not broken_cluster.ready()
    broken_cluster.start_api()
    assert broken_cluster.get("pod", "steady", "-n", namespace)["status"]["containerStatuses"][0]["containerID"] == before


def test_an_image_built_on_the_base_runs(broken_cluster, namespace, tmp_path):
    (tmp_path / "hello.py").write_text("print('hello from the image')")
    (tmp_path / "Dockerfile").write_text("ARG BASE\nFROM ${BASE}\nCOPY hello.py /hello.py\nUSER 1000\n")
    tag = "localhost/elastic-gateway-hello:test"
    broken_cluster.import_image(build_image(tmp_path / "Dockerfile", tag))
    broken_cluster.apply(pod("hello", "python3", "/hello.py", image=tag), namespace=namespace)
    wait(broken_cluster, namespace, "pod/hello", "jsonpath={.status.phase}=Succeeded")
    assert broken_cluster.kubectl("logs", "hello", "-n", namespace) == "hello from the image\n"
