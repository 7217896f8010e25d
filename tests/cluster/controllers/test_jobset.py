"""Bursts as JobSets and TrainJobs, run by the real controllers."""

from __future__ import annotations

import json

import pytest

from gateway.backends.kubernetes import names
from tests.cluster.controllers.conftest import left
from tests.cluster.release import Release
from tests.cluster.rig import PodGateway
from tests.cluster.test_bursts import distributed
from tests.integration.machine import until
from tests.integration.test_burst_roles import LEARNING, NOTEBOOK

pytestmark = [pytest.mark.controllers, pytest.mark.timeout(500)]
CONTROLLERS = {"jobset": "jobset", "trainjob": "trainer"}  # and the fixture that installs it
MEETING = """
import os, socket, time
place = (os.environ["MASTER_ADDR"], 29555)
if RANK == 0:
    with socket.create_server(("", place[1])) as server:
        peer, _ = server.accept()
        result = [base, WORLD_SIZE, peer.recv(100).decode()]
else:
    for _ in range(600):
        try:
            peer = socket.create_connection(place)
            break
        except OSError:
            time.sleep(0.1)
    peer.sendall(f"from rank {RANK}".encode())
history.append(RANK)
print("here", RANK)
"""


@pytest.fixture(params=CONTROLLERS)
def kind(request: pytest.FixtureRequest) -> str:
    request.getfixturevalue(CONTROLLERS[request.param])
    return str(request.param)


def test_ranks_reach_one_another_and_what_they_make_comes_home(others: PodGateway, kind: str) -> None:
    with others.kernel("default", KERNEL_USERNAME="ada") as kernel:
        browser = kernel.open()
        browser.run("base = 40\nhistory = [1]\nalias = history")
        cell = browser.begin(distributed(MEETING, f"-w 2 -e none -l {kind}"))
        found = until(lambda: others.cluster.get(f"{kind}s", "-n", others.namespace)["items"], 120)
        assert [each["metadata"]["labels"][names.KERNEL] for each in found] == [names.slug(kernel.id, 63)]
        done = browser.finish(cell, 120)
        assert (done.status, sorted(done.out.splitlines())) == ("ok", ["[0] here 0", "[1] here 1"]), (done, others.log)
        assert browser.run("print(result, alias)").out == "[40, 2, 'from rank 1'] [1, 0]\n"
        until(lambda: left(others) == [])


def test_pods_of_several_ranks_go_on_counting_from_one_to_the_next(others: PodGateway, kind: str) -> None:
    with others.kernel("default", KERNEL_USERNAME="ada") as kernel:
        browser = kernel.open()
        body = "import socket\nplace, host = (RANK, WORLD_SIZE, LOCAL_RANK), socket.gethostname()"
        cell = browser.run(distributed(body, f"-w 2 -e none --procs 2 --ranks all -l {kind}"), 120)
        assert cell.status == "ok", (cell, others.log)
        assert browser.run("print(place)").out == "[(0, 4, 0), (1, 4, 1), (2, 4, 0), (3, 4, 1)]\n"
        assert browser.run("print(host[0] == host[1] != host[2] == host[3])").out == "True\n"
        until(lambda: left(others) == [])


def test_a_failure_is_raised_in_the_cell_and_the_stop_button_ends_it(others: PodGateway, kind: str) -> None:
    with others.kernel("default") as kernel:
        browser = kernel.open()
        body = "import time\nprint('begun', RANK, flush=True)\nif RANK == 1:\n    raise ValueError('boom')\ntime.sleep(600)"
        failed = browser.run(distributed(body, f"-w 2 -e none -l {kind}"), 120)
        assert (failed.status, failed.ename, failed.evalue) == ("error", "ValueError", "boom"), (failed, others.log)
        until(lambda: left(others) == [])
        gone = browser.run(distributed("import os, time\nif RANK == 1: os._exit(3)\ntime.sleep(600)", f"-w 2 -e none -l {kind}"), 120)
        assert gone.evalue.startswith("The process of rank 1 ended with exit code 3"), gone
        until(lambda: left(others) == [])
        cell = browser.begin(distributed("import time\nprint('begun', RANK, flush=True)\ntime.sleep(600)", f"-w 2 -e none -l {kind}"))
        browser.wait(lambda m: m["parent"] == cell and m["type"] == "stream" and "begun 1" in json.dumps(m["content"]))
        kernel.call("POST", "/interrupt")
        assert browser.finish(cell).ename == "KeyboardInterrupt"
        until(lambda: left(others) == [])


def test_why_no_pods_come_is_told_and_with_its_kernel_all_of_it_goes(others: PodGateway, kind: str) -> None:
    with others.kernel("default") as kernel:
        browser = kernel.open()
        browser.run("1")
        quota = {"apiVersion": "v1", "kind": "ResourceQuota", "metadata": {"name": "few"}, "spec": {"hard": {"pods": "2"}}}
        others.cluster.apply(quota, namespace=others.namespace)
        until(lambda: others.cluster.get("quota", "few", "-n", others.namespace).get("status", {}).get("hard"))
        cell = browser.begin(distributed("print(RANK)", f"-w 2 -e none -l {kind}"))
        browser.wait(lambda m: m["parent"] == cell and "exceeded quota" in json.dumps(m["content"]))
    until(lambda: left(others) == [])


@pytest.mark.usefixtures("trainer")
def test_trainer_keeps_the_runtime_of_a_trainjob_while_that_needs_it(others: PodGateway) -> None:
    with others.kernel("default") as kernel:
        browser = kernel.open()
        cell = browser.begin(distributed("import time\nprint('begun', RANK, flush=True)\ntime.sleep(600)", "-w 1 -e none -l trainjob"))
        browser.wait(lambda m: m["parent"] == cell and "begun 0" in json.dumps(m["content"]))
        [runtime] = others.cluster.get("trainingruntimes", "-n", others.namespace)["items"]
        assert runtime["metadata"]["finalizers"] == ["trainer.kubeflow.org/resource-in-use"], "it could write it"
        kernel.call("POST", "/interrupt")
        assert browser.finish(cell).ename == "KeyboardInterrupt"
        until(lambda: left(others) == [])


@pytest.mark.usefixtures("jobset")
def test_roles_are_jobs_of_one_jobset_and_simulators_end_with_their_learner(others: PodGateway) -> None:
    with others.kernel("default", KERNEL_USERNAME="ada") as kernel:
        browser = kernel.open()
        browser.run(NOTEBOOK)
        cell = browser.begin(LEARNING.format(workers=1, roles="--role simulator=2 -l jobset"))
        [jobset] = until(lambda: others.cluster.get("jobsets", "-n", others.namespace)["items"])
        assert [job["name"] for job in jobset["spec"]["replicatedJobs"]] == ["rank", "simulator"]
        done = browser.finish(cell, 200)
        assert done.status == "ok", (done, others.log[-3000:])
        assert "[0] learned from [0, 1]" in done.out and "[simulator 1] simulator 1 of 2" in done.out
        assert browser.run("print(shortest)").out == "6\n"
        until(lambda: left(others) == [])
        failed = browser.run(
            "%%distributed -w 1 -e none --role simulator=1 -l jobset\nimport time\n"
            "if ROLE == 'simulator':\n    raise LookupError('no such world')\ntime.sleep(600)",
            200,
        )
        assert (failed.ename, failed.evalue) == ("LookupError", "no such world"), failed
        until(lambda: left(others) == [])


@pytest.mark.usefixtures("jobset")
def test_the_chart_gives_the_rights_for_jobsets_where_the_admin_says_so_and_not_else(release: Release) -> None:
    words = "-w 2 -e none -l jobset"
    service = release.cluster.get("service", "elastic-gateway", "-n", release.namespace)["spec"]["clusterIP"]
    with release.kernel("elastic") as kernel:
        refused = kernel.open().run(distributed("print('ran', RANK)", words), 120)
        assert "bursts.kinds" in refused.err, refused
    asked = ("auth", "can-i", "create", "jobsets.jobset.x-k8s.io", "-n", release.kernels)
    account = f"--as=system:serviceaccount:{release.namespace}:elastic-gateway"
    with pytest.raises(Exception, match="no"):
        release.cluster.kubectl(*asked, account)
    release.upgrade(bursts={"kinds": ["jobset"], "address": f"https://{service}:8889"})  # as the tests' cluster has no DNS
    release.connect()
    assert release.cluster.kubectl(*asked, account) == "yes\n"
    with release.kernel("elastic") as kernel:
        done = kernel.open().run(distributed("print('ran', RANK)", words), 120)
        assert (done.status, done.out.count("ran")) == ("ok", 2), (done, release.log)
    until(lambda: release.cluster.get("jobsets", "-n", release.kernels)["items"] == [])
