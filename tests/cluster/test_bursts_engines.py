"""Engines and roles across pods: Dask with a worker in each, and a learner with simulators in pods of their own."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from gateway.backends.kubernetes import manifests, names
from tests.cluster.cluster import Cluster
from tests.cluster.rig import PodGateway
from tests.integration.frameworks import python_with
from tests.integration.machine import Machine, until
from tests.integration.test_burst_engines import needs_dask, needs_mpi
from tests.integration.test_burst_roles import LEARNING, NOTEBOOK
from tests.integration.test_burst_tensorflow import LOOP

pytestmark = [
    pytest.mark.skipif(sys.version_info[:2] != (3, 11), reason="the image has Python 3.11, and so must this: its packages are mounted"),
    pytest.mark.timeout(500),
]  # fmt: skip
ENVIRONMENT = "/opt/env"
PACKAGES = f"{ENVIRONMENT}/lib/python3.11/site-packages"


@pytest.fixture
def pods(
    cluster: Cluster, namespace: str, gateway_image: str, pod_machine: Machine, request: pytest.FixtureRequest
) -> Iterator[PodGateway]:  # fmt: skip
    """A gateway whose kernels and ranks see the packages and programs of this environment, or of one with the framework that is named."""
    site = Path(sys.prefix) if not hasattr(request, "param") else Path(python_with(request.param)).parents[1]
    mounted = {"name": "site", "mount_path": ENVIRONMENT, "read_only": True, "hostPath": {"path": str(site)}}
    env = {
        "PYTHONPATH": f"{manifests.CODE}/{manifests.CODE_KEY}:{PACKAGES}", "LD_LIBRARY_PATH": f"{ENVIRONMENT}/lib",
        "PATH": f"/usr/local/bin:/usr/bin:/bin:{ENVIRONMENT}/bin",
    }  # fmt: skip
    fields = {"volumes": [mounted], "env": env, "cpu": "100m", "memory": "2Gi", "overrides": {"KERNEL_MEMORY": "3Gi"}}
    gateway = PodGateway(pod_machine, cluster, namespace, more={"default": fields})
    yield gateway
    gateway.end()


def test_a_learner_learns_from_simulators_in_pods_of_their_own_and_they_end_with_it(pods: PodGateway) -> None:
    with pods.kernel("default", KERNEL_USERNAME="ada") as kernel:
        browser = kernel.open()
        browser.run(NOTEBOOK, 120)
        running = browser.begin(LEARNING.format(workers=1, roles="--role simulator=2,memory=777Mi --name rl"))
        ranks = until(lambda: len(found := pods.pods(names.ROLE_RANK)) == 3 and found)
        sizes = sorted(pod["spec"]["containers"][0]["resources"]["limits"]["memory"] for pod in ranks)
        assert sizes.count(str(777 << 20)) == 2, sizes
        cell = browser.finish(running, 240)
        assert cell.status == "ok", (cell, pods.log[-3000:])
        assert "[0] learned from [0, 1]" in cell.out and "[simulator 1] simulator 1 of 2" in cell.out
        assert browser.run("print(shortest)").out == "6\n"
        too_much = browser.run("%%distributed -w 1 -e none --role simulator=1,memory=4Gi\nprint(1)")
        assert "The role simulator can't be had: KERNEL_MEMORY" in too_much.err, too_much
        failed = browser.run(
            "%%distributed -w 1 -e none --role simulator=1\nimport time\n"
            "if ROLE == 'simulator':\n    raise LookupError('no such world')\ntime.sleep(600)",
            240,
        )
        assert (failed.ename, failed.evalue) == ("LookupError", "no such world"), failed
        until(lambda: pods.pods(names.ROLE_RANK) == [])


@needs_mpi
def test_mpi_ranks_in_pods_speak_with_one_another_without_any_ssh(pods: PodGateway) -> None:
    with pods.kernel("default", KERNEL_USERNAME="ada") as kernel:
        browser = kernel.open()
        browser.run("x = 1", 120)
        cell = browser.run(
            "%%distributed -w 2 -e mpi\nfrom mpi4py import MPI\nimport socket\ntotal = MPI.COMM_WORLD.allreduce(RANK + 1)\n"
            "hosts = MPI.COMM_WORLD.gather(socket.gethostname())\nprint(WORLD_SIZE, MPI.COMM_WORLD.rank)",
            240,
        )
        assert (cell.status, cell.out) == ("ok", "2 0\n"), (cell, pods.log[-3000:])
        assert browser.run("print(total, len(set(hosts)))").out == "3 2\n"
        failed = browser.run(
            "%%distributed -w 2 -e mpi\nfrom mpi4py import MPI\n"
            "if RANK == 1:\n    raise LookupError('one of two')\nMPI.COMM_WORLD.barrier()",
            240,
        )
        assert (failed.ename, failed.evalue) == ("LookupError", "one of two"), failed
        several = browser.run(
            "%%distributed -w 2 -e mpi --procs 2\nfrom mpi4py import MPI\nimport os, socket\n"
            "places = MPI.COMM_WORLD.gather((RANK, LOCAL_RANK, os.environ['LOCAL_WORLD_SIZE'], socket.gethostname()))",
            240,
        )
        assert several.status == "ok", (several, pods.log[-3000:])
        assert browser.run("print([place[:3] for place in places])").out == "[(0, 0, '2'), (1, 1, '2'), (2, 0, '2'), (3, 1, '2')]\n"
        assert browser.run("print(places[0][3] == places[1][3] != places[2][3] == places[3][3])").out == "True\n"
        until(lambda: pods.pods(names.ROLE_RANK) == [])


@needs_dask
def test_a_cell_is_the_client_of_a_dask_cluster_whose_workers_are_pods(pods: PodGateway) -> None:
    with pods.kernel("default", KERNEL_USERNAME="ada") as kernel:
        browser = kernel.open()
        browser.run("def double(x):\n    return 2 * x\ndef where(x):\n    import socket\n    return socket.gethostname()", 120)
        cell = browser.run(
            "%%distributed -w 2 -e dask\nfrom distributed import Client\nwith Client() as client:\n"
            "    print(client.scheduler.address[:3], len(client.scheduler_info()['workers']))\n"
            "    doubled = sum(client.gather(client.map(double, range(10))))\n"
            "    hosts = set(client.run(where, 0).values())",
            240,
        )
        assert (cell.status, cell.out) == ("ok", "tls 2\n"), (cell, pods.log[-3000:])
        assert browser.run("print(doubled, len(hosts))").out == "90 2\n"
        until(lambda: pods.pods(names.ROLE_RANK) == [])


@pytest.mark.slow
@pytest.mark.parametrize("pods", ["tensorflow-cpu>=2.20"], indirect=True)
def test_a_chief_trains_a_variable_of_a_parameter_server_in_another_pod(pods: PodGateway) -> None:
    with pods.kernel("default", KERNEL_USERNAME="ada") as kernel:
        browser = kernel.open()
        browser.run("start = 0.5", 120)
        cell = browser.run(LOOP.replace("-w 2", "-w 1"), 400)
        assert cell.status == "ok" and "trained" in cell.out, (cell, pods.log[-3000:])
        assert browser.run("print(dict(sorted(shape.items())))").out == "{'chief': 1, 'ps': 1, 'worker': 1}\n"
        assert "job:ps" in browser.run("print(where)").out
        assert abs(float(browser.run("print(weight)").out) - 3) < 0.1
        until(lambda: pods.pods(names.ROLE_RANK) == [])


@pytest.mark.slow
@pytest.mark.parametrize("pods", ["ray>=2.52"], indirect=True)
def test_a_cell_drives_a_ray_cluster_whose_nodes_are_pods(pods: PodGateway) -> None:
    with pods.kernel("default", KERNEL_USERNAME="ada") as kernel:
        browser = kernel.open()
        browser.run("def where(x):\n    import socket, time\n    time.sleep(1)\n    return socket.gethostname()", 120)
        cell = browser.run(
            "%%distributed -w 2 -e ray\nimport ray\nray.init(logging_level='ERROR')\nnodes = len(ray.nodes())\n"
            "there = ray.remote(num_cpus=1)(where)\nhosts = len(set(ray.get([there.remote(x) for x in range(4)])))\nprint('driven')",
            400,
        )
        assert cell.status == "ok" and "driven" in cell.out, (cell, pods.log[-3000:])
        assert browser.run("print(nodes, hosts)").out == "2 2\n"
        until(lambda: pods.pods(names.ROLE_RANK) == [])
