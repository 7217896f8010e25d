"""Bursts that a program creates over HTTP for a real kernel: as if the kernel had, but for variables, and though it is busy."""

from __future__ import annotations

import os

import pytest

from tests.integration.machine import until
from tests.integration.serving import Gateway
from tests.integration.test_bursts import traceback


@pytest.fixture(scope="module")
def kernel(gateway):
    with gateway.kernel(KERNEL_USERNAME="ada", KERNEL_MARK="here") as found:
        yield found


@pytest.fixture(scope="module")
def browser(kernel):
    found = kernel.open()
    found.run("print('it has started')")
    return found


def post(gateway: Gateway, kernel, code: str, **fields):
    return gateway.call("POST", "/api/bursts", json={"kernel_id": kernel.id, "code": code, **fields})


def ended(gateway: Gateway, name: str) -> dict:
    def look():
        found = gateway.call("GET", f"/api/bursts/{name}").json()
        return found if found.get("state") == "ended" else None

    return until(look)


def printed(gateway: Gateway, name: str) -> str:
    return "".join(event["text"] for event in gateway.call("GET", f"/api/bursts/{name}/events").json()["events"] if event["t"] == "out")


def test_a_cell_is_run_for_a_busy_kernel_and_its_result_comes_home_when_asked_for(gateway, kernel, browser, tmp_path):
    busy = browser.begin(f"import os, time\nwhile not os.path.exists({str(tmp_path / 'go')!r}): time.sleep(0.05)")
    until(lambda: kernel.state == "busy")
    code = "import os\nprint(os.environ['KERNEL_MARK'], RANK)\nmade = {'ranks': WORLD_SIZE, 'folder': os.getcwd()}"
    answer = post(gateway, kernel, code, workers=2, name="posted")
    assert answer.status_code == 201, answer.text
    shown = answer.json()
    assert answer.headers["Location"] == f"/api/bursts/{shown['id']}"
    assert {name: shown[name] for name in ("name", "user", "kernel_id", "engine", "workers", "gpus", "detach")} == {
        "name": "posted", "user": "ada", "kernel_id": kernel.id, "engine": "none", "workers": 2, "gpus": 0, "detach": True,
    }  # fmt: skip
    assert "access" not in shown
    assert "folder" not in shown
    assert (ended(gateway, "posted")["outcome"], sorted(printed(gateway, "posted").splitlines())) == ("ok", ["here 0", "here 1"])
    assert gateway.call("GET", "/api/bursts/posted/result/0").headers["X-Sizes"]
    assert kernel.state == "busy"
    (tmp_path / "go").touch()
    assert browser.finish(busy).status == "ok"
    assert browser.run("%burst result posted").status == "ok"
    assert browser.run("print(made == {'ranks': 2, 'folder': os.getcwd()})").out == "True\n"


def test_what_it_raises_is_raised_in_the_kernel_that_looks(gateway, kernel, browser):
    assert post(gateway, kernel, "def bad():\n    raise ValueError('boom')\nbad()", workers=1, name="raises").status_code == 201
    assert ended(gateway, "raises")["message"].startswith("Rank 0 failed: ValueError: boom")
    begun = browser.begin("%burst attach raises")
    cell = browser.finish(begun)
    assert (cell.ename, cell.evalue) == ("ValueError", "boom")
    assert "raise ValueError('boom')" in traceback(browser, begun)
    assert "`%burst attach raises` shows what came before" in browser.run("%burst result raises").evalue


def test_what_is_no_python_is_told_by_its_line(gateway, kernel, browser):
    assert post(gateway, kernel, "a = 1\nb = = 2", workers=1, name="wrong").status_code == 201
    assert "SyntaxError" in ended(gateway, "wrong")["message"]
    assert "b = = 2" in str(gateway.call("GET", "/api/bursts/wrong/events").json()["events"])


def test_lines_of_ipython_are_read_where_the_workers_are(gateway, kernel, browser):
    code = "!echo from a shell\nhome = %pwd\nprint(home)\nawaited = await __import__('asyncio').sleep(0, 'top')\nprint(awaited)"
    assert post(gateway, kernel, code, workers=1, name="ipythons").status_code == 201
    assert ended(gateway, "ipythons")["outcome"] == "ok", printed(gateway, "ipythons")
    out = printed(gateway, "ipythons")
    assert "from a shell\n" in out
    assert "top\n" in out


def test_it_may_give_back_what_it_is_told_to_from_all_ranks(gateway, kernel, browser):
    answer = post(gateway, kernel, "a, b = RANK, -RANK", ranks="all", out=["a"], name="both")
    assert answer.status_code == 201, answer.text
    ended(gateway, "both")
    assert browser.run("b = 'mine'\n%burst result both").status == "ok"
    assert browser.run("print(a, b)").out == "[0, 1] mine\n"


def test_modules_beside_the_notebook_can_be_imported(gateway, kernel, browser):
    browser.run("import pathlib; pathlib.Path('beside_it.py').write_text('VALUE = 5')")
    assert post(gateway, kernel, "import beside_it\nprint(beside_it.VALUE)", workers=1, name="beside").status_code == 201
    assert (ended(gateway, "beside")["outcome"], printed(gateway, "beside")) == ("ok", "5\n")


def test_its_gpus_are_leased_as_ever_and_without_any_it_sees_none(gateway, kernel, browser):
    code = "import os\nprint(os.environ['CUDA_VISIBLE_DEVICES'] or 'none')"
    for name, fields in (("leases", {"gpus": 1}), ("leases-not", {})):
        assert post(gateway, kernel, code, workers=1, name=name, **fields).status_code == 201
        assert ended(gateway, name)["outcome"] == "ok"
    assert printed(gateway, "leases").startswith("GPU-")
    assert printed(gateway, "leases-not") == "none\n"
    assert post(gateway, kernel, code, workers=9, gpus=1, name="too-many").status_code == 201  # as with a cell, its end says so
    assert "9 GPUs" in ended(gateway, "too-many")["message"]


def test_one_that_is_not_detached_ends_with_its_kernel(gateway):
    with gateway.kernel(KERNEL_USERNAME="ada") as other:
        other.open().run("1")
        for name, detach in (("goes", False), ("stays", True)):
            assert post(gateway, other, "import time; time.sleep(600)", workers=1, name=name, detach=detach).status_code == 201
    assert ended(gateway, "goes")["outcome"] == "cancelled"
    assert gateway.call("GET", "/api/bursts/stays").json()["state"] == "running"
    assert gateway.call("DELETE", "/api/bursts/stays").status_code == 202
    assert ended(gateway, "stays")["outcome"] == "cancelled"


def test_an_elastic_one_can_be_scaled(gateway, kernel, browser, tmp_path):
    code = (
        "import pathlib\nfrom gateway import elastic\nstate = elastic.State()\nfor step in state.range('step', 10**9):\n"
        f"    if pathlib.Path({str(tmp_path / 'go')!r}).exists() and WORLD_SIZE == 2: break\n    state.commit()\n"
        "print('left with', WORLD_SIZE)"
    )
    assert post(gateway, kernel, code, workers=1, most=2, name="elastic").json()["most"] == 2
    assert gateway.call("POST", "/api/bursts/elastic/scale", json={"workers": 2}).status_code == 202
    (tmp_path / "go").touch()
    assert ended(gateway, "elastic")["outcome"] == "ok"
    assert "left with 2\n" in printed(gateway, "elastic")


@pytest.mark.parametrize(
    ("fields", "told"),
    [
        ({"workers": 0}, "workers must be a whole number"),
        ({"workers": "2"}, "workers must be a whole number"),
        ({"workers": 3, "most": 2}, "most must be a whole number from 3"),
        ({"workers": 65}, "at most 64 here"),
        ({"engine": "spark"}, "There is no engine 'spark'"),
        ({"engine": 5}, "There is no engine '5'"),
        ({"engine": "dask", "most": 4}, "keep their number"),
        ({"gpus": -1}, "gpus must be a whole number"),
        ({"gpus": True}, "gpus must be a whole number"),
        ({"name": "a b"}, "The name of a burst"),
        ({"name": 7}, "The name of a burst"),
        ({"timeout_seconds": 0}, "timeout_seconds"),
        ({"timeout_seconds": "1h"}, "timeout_seconds"),
        ({"queue": "Q!"}, "The name of a queue"),
        ({"queue": "q"}, "no queue of a cluster"),
        ({"launcher": ["job"]}, "The name of a launcher"),
        ({"launcher": "jobset"}, "is for a cluster"),
        ({"roles": "simulator"}, "roles must be a list"),
        ({"roles": [{"name": "simulator"}]}, "A role has a name and a count"),
        ({"on_demand": True}, "no nodes to choose from"),
        ({"workers": {}, "ranks": [0]}, "ranks"),
        ({"code": ""}, "code must be the text of a cell"),
        ({"cell": "1"}, "There is no field 'cell'"),
    ],
)
def test_what_can_t_be_is_refused_with_the_field_and_leaves_nothing(gateway, kernel, browser, fields, told):
    before = len(gateway.call("GET", "/api/bursts").json()["bursts"])
    answer = post(gateway, kernel, **{"code": "1", **fields})
    assert answer.status_code == 400, answer.text
    assert told in answer.json()["message"]
    assert len(gateway.call("GET", "/api/bursts").json()["bursts"]) == before


def test_of_a_name_there_is_one_at_a_time(gateway, kernel, browser):
    sleeping = "import time; time.sleep(600)"
    assert post(gateway, kernel, sleeping, workers=1, name="once").status_code == 201
    assert "runs already" in post(gateway, kernel, sleeping, workers=1, name="once").json()["message"]
    gateway.call("DELETE", "/api/bursts/once")
    ended(gateway, "once")


def test_a_dry_run_starts_nothing(gateway, kernel, browser):
    before = gateway.call("GET", "/api/bursts").json()
    answer = post(gateway, kernel, "1", dry_run=True)
    assert (answer.status_code, answer.json()) == (200, {"manifests": []})  # on one machine it is made of processes
    assert post(gateway, kernel, "1", dry_run=True, engine="spark").status_code == 400
    assert gateway.call("GET", "/api/bursts").json() == before


def test_a_kernel_that_is_not_there_has_none(gateway):
    answer = gateway.call("POST", "/api/bursts", json={"kernel_id": "no-such-kernel", "code": "1"})
    assert (answer.status_code, answer.json()["reason"]) == (404, "no_such_kernel")


def test_on_somebody_elses_kernel_there_is_nothing_to_be_had_not_even_that_it_is_there(ana, bo, ops):
    with ana.kernel() as theirs:
        theirs.open().run("1")
        refused = post(bo, theirs, "print('as ana')")
        unknown = bo.call("POST", "/api/bursts", json={"kernel_id": "no-such-kernel", "code": "1"})
        assert (refused.status_code, refused.json()) == (unknown.status_code, unknown.json()) == (404, unknown.json())
        mine = post(ana, theirs, "print('mine')", workers=1, name="hers")
        assert (mine.status_code, mine.json()["user"]) == (201, "ana")
        by_admin = post(ops, theirs, "print('for her')", workers=1, name="by-admin")
        assert (by_admin.status_code, by_admin.json()["user"]) == (201, "ana")
        assert {each["name"] for each in ana.call("GET", "/api/bursts").json()["bursts"]} >= {"hers", "by-admin"}
        assert bo.call("GET", "/api/bursts").json()["bursts"] == []
        for name in ("hers", "by-admin"):
            assert ended(ana, name)["outcome"] == "ok"


def test_the_environment_of_the_gateway_is_not_theirs(gateway, kernel, browser):
    assert "SECRET_OF_THE_GATEWAY" not in os.environ
    code = "import os\nprint(sorted(name for name in os.environ if name in ('SECRET_OF_THE_GATEWAY', 'ELASTIC_SUPERVISOR')))"
    assert post(gateway, kernel, code, workers=1, name="clean").status_code == 201
    assert ended(gateway, "clean")["outcome"] == "ok"
    assert printed(gateway, "clean") == "[]\n"
