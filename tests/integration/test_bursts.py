"""``%%distributed`` in a real kernel behind a real gateway, its workers real processes of this machine."""

from __future__ import annotations

import os
import re
import textwrap

import pytest

from gateway.backends.processes import started
from tests.integration.machine import until
from tests.wheels import wheel


def distributed(body: str, words: str = "-w 2 -e none") -> str:
    return f"%%distributed {words}\n{textwrap.dedent(body)}"


def traceback(browser, msg_id: str) -> str:
    error = next(m for m in browser.messages if m["type"] == "error" and m["parent"] == msg_id)
    return re.sub(r"\x1b\[[0-9;]*m", "", "\n".join(error["content"]["traceback"]))


def status(browser, msg_id: str) -> str:
    """The line that tells how it goes, as it was last."""
    shown = [m["content"]["data"] for m in browser.messages if m["type"] == "update_display_data" and m["parent"] == msg_id]
    return shown[-1]["text/plain"]


def test_a_cell_runs_on_two_workers_and_a_variable_comes_home(browser):
    browser.run("base = 40")
    cell = browser.run(distributed("result = base + WORLD_SIZE\nprint('hello from', RANK)\nresult * 2"))
    assert cell.status == "ok", cell
    assert sorted(cell.out.splitlines()) == ["[0] hello from 0", "[1] hello from 1"]
    assert {"text/plain": "84"} in cell.data
    assert browser.run("print(result)").out == "42\n"


def test_a_rank_may_be_through_long_before_the_others(browser):
    cell = browser.run(distributed("import time\ntime.sleep(1.5 * (RANK == 0))\nlate = 'here'"))
    assert cell.status == "ok", cell
    assert browser.run("print(late)").out == "here\n"


def test_a_rank_that_stumbles_after_its_cell_is_through_costs_nothing(browser):
    cell = browser.run(distributed("import atexit, os\natexit.register(os._exit, 5)\nkept = RANK"))
    assert cell.status == "ok", cell
    assert browser.run("print(kept)").out == "0\n"


def test_files_that_a_rank_makes_are_open_to_whom_the_gateway_lets_them_be(browser):
    ours = os.umask(0o777)
    os.umask(ours)
    assert browser.run(distributed("import os\nprint(oct(os.umask(0o777)))", "-w 1 -e none")).out == f"{oct(ours)}\n"


def test_modules_beside_the_notebook_can_be_imported_and_taken_along(browser):
    browser.run("import pathlib; pathlib.Path('beside_the_notebook.py').write_text('VALUE = 5')")
    assert browser.run(distributed("import beside_the_notebook\nprint(beside_the_notebook.VALUE)", "-w 1 -e none")).out == "5\n"
    browser.run("import beside_the_notebook")
    assert browser.run(distributed("print(beside_the_notebook.VALUE + 1)", "-w 1 -e none")).out == "6\n"


def test_results_of_several_ranks_come_as_lists(browser):
    assert browser.run(distributed("mine = RANK * 10", "-w 2 -e none --ranks all")).status == "ok"
    assert browser.run("print(mine)").out == "[0, 10]\n"


def test_a_cell_that_runs_longer_than_it_may_is_ended(browser):
    cell = browser.run(distributed("import time\ntime.sleep(600)", "-w 2 -e none --timeout 1s"))
    assert (cell.ename, "as long as --timeout lets it" in cell.evalue) == ("BurstFailed", True)


def test_a_dry_run_lists_what_would_be_taken_along_and_starts_nothing(gateway, browser):
    browser.run("wide = list(range(1000))")
    before = len(gateway.call("GET", "/api/bursts").json()["bursts"])
    assert "wide " in browser.run(distributed("print(len(wide))", "-w 2 -e none --dry-run")).out
    assert len(gateway.call("GET", "/api/bursts").json()["bursts"]) == before


def test_a_launcher_of_a_cluster_is_refused_on_one_machine_and_one_that_nobody_has_by_those_there_are(browser):
    for words in ("-w 2 -e none -l jobset", "-w 2 -e none -l jobset --dry-run"):
        assert "-l jobset is for a cluster" in browser.run(distributed("print(1)", words)).err
    assert "'trainjob'" in browser.run(distributed("print(1)", "-l slurm")).err
    assert browser.run(distributed("print('ran', RANK)", "-w 1 -e none -l local")).out == "ran 0\n"


def test_what_a_rank_displays_is_displayed(browser):
    cell = browser.run(distributed("from IPython.display import display, HTML\ndisplay(HTML('<b>hi</b>'))", "-w 2 -e none --show 0"))
    assert "<b>hi</b>" in [data.get("text/html") for data in cell.data]


def test_what_is_captured_is_not_shown(browser):
    cell = browser.run(
        "%%capture caught\n" + distributed("import sys\nprint('out')\nprint('err', file=sys.stderr)\ndisplay(42)", "-w 1 -e none")
    )
    assert (cell.status, cell.out, cell.err, cell.data) == ("ok", "", "", []), cell
    seen = "caught.stdout, caught.stderr, [each.data for each in caught.outputs if 'burst' not in str(each.data)]"
    assert browser.run(f"print({seen})").out == "out\n err\n [{'text/plain': '42'}]\n"


def test_what_a_cell_changes_is_changed_in_place(browser):
    browser.run("history = [1]\nalias = history")
    cell = browser.run(distributed("history.append(RANK + 2)"))
    assert cell.status == "ok", cell
    assert browser.run("print(alias, alias is history)").out == "[1, 2] True\n"


@pytest.mark.case("D04")
def test_the_real_exception_of_a_rank_is_raised_and_the_others_are_ended(browser):
    body = "import time\nprint('before', RANK, flush=True)\ntime.sleep(1)\nif RANK == 1:\n    raise ValueError('qa-boom')\ntime.sleep(600)"
    running, queued = browser.begin(distributed(body)), browser.begin("print('must not run')")
    cell = browser.finish(running)
    assert (cell.status, cell.ename, cell.evalue) == ("error", "ValueError", "qa-boom")
    assert "qa-boom" in traceback(browser, running)
    assert "raise ValueError('qa-boom')" in traceback(browser, running)
    assert "run_cell_magic" not in traceback(browser, running)
    assert "failed on rank 1 after" in status(browser, running)
    assert cell.out.count("before") == 2
    reply = browser.wait(lambda m: m["type"] == "execute_reply" and m["parent"] == queued)
    assert reply["content"]["status"] == "aborted"
    assert browser.run(distributed("print('again', RANK)")).out.count("again") == 2


def test_a_rank_that_is_ended_while_it_tells_of_its_own_failure_adds_nothing_to_what_is_shown(browser, tmp_path):
    body = f"""
        import pathlib, time
        telling = pathlib.Path({str(tmp_path / "telling")!r})
        class Slow(Exception):
            def __reduce__(self):
                telling.touch()
                time.sleep(60)
        if RANK == 0:
            raise Slow()
        while not telling.exists():
            time.sleep(0.01)
        raise ValueError('first')
    """
    cell = browser.run(distributed(body))
    assert (cell.ename, cell.evalue, cell.err) == ("ValueError", "first", ""), cell


def test_what_cant_be_taken_along_is_told_in_one_sentence(browser):
    browser.run("import threading\nlock = threading.Lock()")
    running = browser.begin(distributed("print(lock)"))
    assert browser.finish(running).ename == "CaptureError"
    assert re.fullmatch(r"CaptureError: lock \(_thread.lock\) can't be sent .*", traceback(browser, running))


def test_a_rank_that_just_exits_is_told_with_its_code(browser):
    cell = browser.run(distributed("import os, time\nif RANK == 1:\n    os._exit(3)\ntime.sleep(600)"))
    assert cell.ename == "BurstFailed"
    assert "rank 1 ended with exit code 3" in cell.evalue


@pytest.mark.case("D11")
def test_a_mistake_in_the_cell_is_found_before_a_worker_starts(gateway, browser):
    before = len(gateway.call("GET", "/api/bursts").json()["bursts"])
    for body in ("ok = 1\nx = (", "return 5", "if 1:\nx = 2"):
        running = browser.begin(distributed(body))
        assert browser.finish(running).ename in ("SyntaxError", "IndentationError"), body
        assert traceback(browser, running).lstrip().startswith("Cell In[")
        assert ".py" not in traceback(browser, running)
    assert len(gateway.call("GET", "/api/bursts").json()["bursts"]) == before


@pytest.mark.parametrize(
    ("words", "told"),
    [
        ("-w 0", "1 or more"),
        ("-w 8:2", "the least comes first, as in -w 2:8"),
        ("-w 2:x", "two as in -w 2:8"),
        ("-w 2:4 -e dask", "Workers of the engine dask keep their number"),
        ("--save-every soon", "--save-every needs a time such as"),
        ("-e nonsense", "the engines are none, torch, mpi, dask"),
        ("-w 2 --ranks 2", "of 2 ranks the last is rank 1"),
        ("--image x", "leave --image out"),
        ("--procs 2 -e dask", "Each worker of -e dask is one server of its own"),
        ("--procs 2 --role simulator=1", "leave --procs out"),
        ("-w 10 --procs 10", "100 processes are too many"),
        ("-w 2 --ranks ²", "--ranks needs numbers of ranks"),
        ("--in nowhere_to_be_found", "check the spelling"),
        ("-w 100", "Bursts.most_workers"),
    ],
)
def test_what_can_t_be_is_refused_with_what_can(browser, words, told):
    running = browser.begin(distributed("1", words if "-e" in words else f"{words} -e none"))
    assert browser.finish(running).status == "error"
    said = "".join(m["content"].get("text", "") for m in browser.messages if m["parent"] == running and m["type"] == "stream")
    assert told in said + str([m["content"] for m in browser.messages if m["parent"] == running])


@pytest.mark.case("D06")
def test_the_stop_button_ends_every_worker(kernel, browser, tmp_path):
    body = f"import os, time, pathlib\npathlib.Path({str(tmp_path)!r}, str(RANK)).write_text(str(os.getpid()))\ntime.sleep(600)"
    running = browser.begin(distributed(body))
    until(lambda: len(list(tmp_path.iterdir())) == 2 and all(path.read_text() for path in tmp_path.iterdir()))
    pids = [int(path.read_text()) for path in tmp_path.iterdir()]
    kernel.call("POST", "/interrupt")
    assert browser.finish(running).ename == "KeyboardInterrupt"
    until(lambda: not any(started(pid) for pid in pids))
    assert browser.run("print('goes on')").out == "goes on\n"


def test_the_stop_button_doesnt_wait_for_all_that_was_printed_before(kernel, browser, tmp_path):
    body = f"""
        import pathlib, time
        for _ in range(30_000):
            print('x' * 1000)
        pathlib.Path({str(tmp_path / "printed")!r}).touch()
        try:
            time.sleep(600)
        finally:
            print('cleaned up')
    """
    running = browser.begin(distributed(body, "-w 1 -e none --name flood"))
    until((tmp_path / "printed").exists)
    kernel.call("POST", "/interrupt")
    cell = browser.finish(running)
    assert (cell.ename, cell.out.splitlines()[-1]) == ("KeyboardInterrupt", "cleaned up")
    assert "`%burst logs flood` has them" in cell.err
    assert traceback(browser, running) == "KeyboardInterrupt"


@pytest.mark.case("D08")
def test_nothing_that_a_rank_has_started_outlives_its_burst(browser, tmp_path):
    body = f"""
        import subprocess
        quiet = dict.fromkeys(("stdin", "stdout", "stderr"), subprocess.DEVNULL)
        left = subprocess.Popen(["sleep", "600"], start_new_session=True, **quiet)
        open({str(tmp_path / "left")!r}, "w").write(str(left.pid))
        del left, quiet
    """
    assert browser.run(distributed(body, "-w 1 -e none")).status == "ok"
    until(lambda: not started(int((tmp_path / "left").read_text())))


def test_every_line_of_every_rank_is_whole_and_in_order(browser):
    body = """
        import os, sys
        for i in range(3000): print('L%d:%d:end' % (RANK, i))
        print('W' + 'w' * 100000 + 'W')
        print('to err', RANK, file=sys.stderr)
        os.system('echo shell %d' % RANK)
        sys.stdout.write('tail%d' % RANK)
    """
    cell = browser.run(distributed(body))
    for rank in range(2):
        assert [line for line in cell.out.splitlines() if line.startswith(f"[{rank}] L")] == [
            f"[{rank}] L{rank}:{number}:end" for number in range(3000)
        ]
        assert f"[{rank}] tail{rank}\n" in cell.out
        assert f"[{rank}] shell {rank}\n" in cell.out
        assert f"[{rank}] to err {rank}\n" in cell.err
    assert cell.out.count("W" + "w" * 100000 + "W") == 2
    assert browser.run("print('next')").out == "next\n"


def test_a_detached_cell_returns_at_once_and_its_output_lands_in_it(browser, tmp_path):
    go = tmp_path / "go"
    body = f"import time, pathlib\nwhile not pathlib.Path({str(go)!r}).exists(): time.sleep(0.05)\nprint('late', RANK)\nfound = 7"
    asking = browser.begin(distributed(body, "-w 2 -e none --detach --name behind"))
    assert browser.finish(asking).status == "ok"
    other = browser.run("print('another cell')")
    assert other.out == "another cell\n"
    go.touch()
    browser.wait(lambda m: m["parent"] == asking and "late 1" in m["content"].get("text", ""))
    until(lambda: re.search(r"^behind .* ok ", browser.run("%burst ls").out, re.MULTILINE))
    assert browser.run("%burst result behind").status == "ok"
    assert browser.run("print(found)").out == "7\n"
    assert "late 0" in browser.run("%burst logs behind -r 0").out


def test_rest_lists_bursts_and_hands_out_their_events_and_bytes(gateway, browser):
    browser.run(distributed("answer = 42\nprint('told')", "-w 1 -e none --name rested"))
    burst = next(each for each in gateway.call("GET", "/api/bursts").json()["bursts"] if each["name"] == "rested")
    assert (burst["state"], burst["outcome"], burst["user"], burst["workers"]) == ("ended", "ok", "ada", 1)
    events = gateway.call("GET", f"/api/bursts/{burst['id']}/events?since=0").json()
    assert [event["text"] for event in events["events"] if event["t"] == "out"] == ["told\n"]
    assert events["events"][-1]["t"] == "end"
    assert gateway.call("GET", f"/api/bursts/{burst['id']}/events?since={events['next']}").json()["events"] == []
    result = gateway.call("GET", f"/api/bursts/{burst['id']}/result/0")
    assert len(result.content) >= sum(map(int, result.headers["X-Sizes"].split(",")))
    assert gateway.call("POST", f"/api/bursts/{burst['id']}/scale", json={"workers": 3}).status_code == 400
    assert gateway.call("DELETE", f"/api/bursts/{burst['id']}").status_code == 204
    assert gateway.call("GET", f"/api/bursts/{burst['id']}").status_code == 404
    assert gateway.call("GET", "/api/bursts", headers={}).status_code in (401, 403)


def test_a_kernel_lends_its_gpu_to_its_burst_and_has_it_again_after(gateway, kernel, browser):
    mine = browser.run("%%gpu\nimport os; print(os.environ['CUDA_VISIBLE_DEVICES'])").out.strip()
    body = "import os\nprint(os.environ['CUDA_VISIBLE_DEVICES'])  # on cuda"
    assert browser.run(distributed(body, "-w 1 -e none")).out.strip() == mine
    assert browser.run("%%gpu\nprint('back')").out == "back\n"
    assert browser.run(distributed("import os\nprint(repr(os.environ['CUDA_VISIBLE_DEVICES']))", "-w 1 -g 0 -e none")).out == "''\n"


def test_a_burst_waits_for_all_its_gpus_says_for_what_and_can_be_stopped(gateway, kernel, browser):
    with gateway.kernel(KERNEL_USERNAME="bob") as other:
        holder = other.open()
        busy = holder.begin("%%gpu\nimport time\nwhile True: time.sleep(0.1)")
        until(lambda: other.lease["executing"])
        waiting = browser.begin(distributed("print('ran')", "-w 1 -g 1 -e none"))
        browser.wait(lambda m: m["parent"] == waiting and "waits for 1 GPU, place 1 of 1; held by bob" in str(m["content"].get("data")))
        kernel.call("POST", "/interrupt")
        assert browser.finish(waiting).ename == "KeyboardInterrupt"
        until(lambda: gateway.gpu()["queue"] == [])
        unwanted = browser.begin(distributed("print('ran')", "-w 1 -g 1 -e none --name unwanted"))
        browser.wait(lambda m: m["parent"] == unwanted and "waits for" in str(m["content"].get("data")))
        assert gateway.call("DELETE", "/api/bursts/unwanted").status_code == 202
        assert browser.finish(unwanted).evalue == "It was cancelled while it waited for GPUs."
        again = browser.begin(distributed("print('ran')", "-w 1 -g 1 -e none"))
        browser.wait(lambda m: m["parent"] == again and "waits for" in str(m["content"].get("data")))
        other.call("POST", "/interrupt")
        holder.finish(busy)
        assert browser.finish(again).out == "ran\n"


def test_a_burst_that_waits_leaves_the_queue_when_its_kernel_ends(gateway):
    with gateway.kernel(KERNEL_USERNAME="bob") as other, gateway.kernel(KERNEL_USERNAME="eve") as asking:
        holder, browser = other.open(), asking.open()
        holder.begin("%%gpu\nimport time\nwhile True: time.sleep(0.1)")
        until(lambda: other.lease["executing"])
        browser.begin(distributed("1", "-w 1 -g 1 -e none"))
        until(lambda: [each["user"] for each in gateway.gpu()["queue"]] == ["eve"])
        assert asking.call("DELETE").ok
        until(lambda: gateway.gpu()["queue"] == [])


def test_more_gpus_than_there_are_is_refused_at_once(browser):
    cell = browser.run(distributed("1", "-w 2 -g 1 -e none"))
    assert cell.ename == "BurstFailed"
    assert "2 GPUs" in cell.evalue


def test_a_kernel_of_nobody_by_name_has_bursts_too(gateway):
    with gateway.kernel() as kernel:
        browser = kernel.open()
        cell = browser.run(distributed("made = RANK", "-w 1 -e none --name anonymous"))
        assert cell.status == "ok", cell
        assert browser.run("%burst result anonymous\nprint(made)").out == "anonymous has brought home made.\n0\n"


def test_a_queue_of_a_cluster_is_refused_on_one_machine(browser):
    assert "leave --queue out" in browser.run(distributed("print(1)", "-w 2 -e none --queue q")).err


def test_pip_installs_for_the_workers_alone(browser, tmp_path):
    wheel(tmp_path, "tiny", "1.5")
    browser.run(f"import os\nos.environ.update(PIP_NO_INDEX='1', PIP_FIND_LINKS={str(tmp_path)!r})")
    cell = browser.run(distributed("import tiny\nhas = tiny.VERSION", "-w 2 -e none --pip tiny==1.5"))
    assert cell.status == "ok", cell
    assert browser.run("print(has)").out == "1.5\n"
    assert browser.run("import tiny").ename == "ModuleNotFoundError"
    failed = browser.run(distributed("print('never')", "-w 2 -e none --pip nosuch"))
    assert (failed.ename, failed.out) == ("BurstFailed", ""), failed
    assert "No matching distribution found for nosuch" in failed.evalue
    assert "--pip takes a package" in browser.run(distributed("print('never')", "--pip=--index-url=https://example.org")).err
