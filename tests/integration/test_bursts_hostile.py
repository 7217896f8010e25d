"""Cells that do on their workers what no cell should: it costs themselves what it must, and nobody else anything."""

from __future__ import annotations

import json
import os
import signal
import textwrap
from pathlib import Path

import pytest

from gateway.backends.processes import started
from tests.integration.machine import until

QUIET = "import os, subprocess\nquiet = dict.fromkeys(('stdin', 'stdout', 'stderr'), subprocess.DEVNULL)\n"


def alone(body: str, words: str = "") -> str:
    return f"%%distributed -w 1 -e none {words}\n{textwrap.dedent(body)}"


def burst(gateway, name: str) -> dict:
    return gateway.call("GET", f"/api/bursts/{name}").json()


def test_what_can_t_be_displayed_costs_its_own_format_alone(browser):
    body = """
        class Odd:
            def __repr__(self): raise ValueError("no text")
            def _repr_html_(self): return object()
            def _repr_png_(self): return memoryview(b"png")
            def _repr_json_(self): return {(1, 2): float("nan"), "half": "\\ud800"}
        class Bundle:
            def _repr_mimebundle_(self, **_): return {"image/jpeg": b"jpeg"}
        class NoBundle:
            def _repr_mimebundle_(self, **_): return 5
        display(Odd(), Bundle(), NoBundle())
        Odd()
    """
    cell = browser.run(alone(body))
    assert cell.status == "ok", cell
    odd, bundle, nothing, last = cell.data[1:5] if "burst-" in str(cell.data[0]) else cell.data[:4]
    assert odd["image/png"] == "cG5n" and odd["application/json"] == {"(1, 2)": "nan", "half": "?"}
    assert "no text" in odd["text/plain"] and "no text" in last["text/plain"]
    assert bundle["image/jpeg"] == "anBlZw==" and "NoBundle" in nothing["text/plain"]


def test_what_threads_display_at_the_same_time_comes_whole(browser):
    body = """
        import threading
        class Wide:
            def __init__(self, word): self.word = word
            def _repr_html_(self): return self.word * 500_000
        threads = [threading.Thread(target=lambda word=word: [display(Wide(word)) for _ in range(5)]) for word in "abcd"]
        [thread.start() for thread in threads]
        [thread.join() for thread in threads]
        del threads
    """
    shown = sorted(data["text/html"] for data in browser.run(alone(body)).data if "text/html" in data)
    assert shown == [word * 500_000 for word in "abcd" for _ in range(5)]


def test_what_is_printed_and_displayed_comes_in_that_order(browser):
    running = browser.begin(alone("for at in range(200):\n    display(at)\n    print(at)"))
    assert browser.finish(running).status == "ok"
    told = [message["content"] for message in browser.messages if message["parent"] == running]
    shown = "".join(content.get("text", "") or f"{content.get('data', {}).get('text/plain', '')} " for content in told)
    assert "".join(f"{at} {at}\n" for at in range(200)) in shown


def test_a_program_reads_a_long_event_whole_and_from_any_place_what_comes_after(gateway, browser):
    browser.run(alone("class Wide:\n    def _repr_html_(self): return 'x' * 3_000_000\ndisplay(Wide())", "--name wide"))

    def events(since):
        response = gateway.call("GET", f"/api/bursts/wide/events?since={since}")
        assert response.status_code == 200, response.text
        return response.json()

    first = events(0)
    then = events(first["next"])
    assert [event["t"] for event in first["events"] + then["events"]][-2:] == ["show", "end"]
    assert [event["t"] for event in events(first["next"] + 5)["events"]] == ["end"]
    assert events(999_999_999_999_999)["events"] == []
    assert gateway.call("POST", "/api/bursts/wide/scale", data=b"\xff").status_code == 400


@pytest.mark.parametrize("closed", ["sys.stdout = sys.stderr = None", "sys.stdout.close()", "import os; os.close(1); os.close(2)"])
def test_a_cell_that_takes_its_output_away_is_heard_all_the_same(browser, closed):
    assert browser.run(alone(f"import sys\n{closed}\nmade = {closed!r}")).status == "ok"
    assert browser.run("print(made)").out == f"{closed}\n"


def test_a_child_that_a_cell_forks_tells_nothing_of_the_rank(browser):
    body = """
        import os
        child = os.fork()
        if not child:
            raise ValueError('of the child')
        os.waitpid(child, 0)
        mine = 1
    """
    cell = browser.run(alone(body))
    assert cell.status == "ok", cell
    assert "ValueError: of the child" in cell.err
    assert browser.run("print(mine)").out == "1\n"


def test_a_long_message_of_an_exception_comes_home_and_stands_nowhere_else(gateway, browser):
    cell = browser.run(alone("raise ValueError('x' * 5_000_000)", "--name talkative"))
    assert (cell.ename, len(cell.evalue)) == ("ValueError", 5_000_000)
    shown = burst(gateway, "talkative")
    assert shown["outcome"] == "error" and len(shown["message"]) < 5000


def test_a_result_that_ends_whoever_packs_or_loads_it_costs_itself_alone(browser):
    body = """
        import sys
        class Packs:
            def __reduce__(self): sys.exit("packed")
        class Loads:
            def __reduce__(self): return sys.exit, ("loaded",)
        packs, loads, kept = Packs(), Loads(), "kept"
    """
    cell = browser.run(alone(body, "--out packs,loads,kept"))
    assert cell.status == "ok", cell
    assert "packs stayed in the ranks" in cell.err and "loads stayed in the ranks" in cell.err
    assert browser.run("print(kept)").out == "kept\n"


def test_what_a_cell_starts_ends_with_it_also_where_it_bears_no_mark(browser, tmp_path):
    body = f"""
        {QUIET.splitlines()[0]}
        {QUIET.splitlines()[1]}
        subprocess.run(["setsid", "sh", "-c", "env -i setsid sh -c 'echo $$ > {tmp_path}/left; exec sleep 600' &"], **quiet)
        while not os.path.exists("{tmp_path}/left") or not open("{tmp_path}/left").read(): pass
        del quiet
    """
    assert browser.run(alone(body)).status == "ok"
    assert not started(int((tmp_path / "left").read_text()))


def test_whoever_kills_the_agent_leaves_nothing_of_its_burst_running(gateway, gateway_machine, browser, tmp_path):
    body = f"""
        {QUIET.splitlines()[0]}
        {QUIET.splitlines()[1]}
        left = subprocess.Popen(["sleep", "600"], start_new_session=True, **quiet)
        open("{tmp_path}/left.new", "w").write(str(left.pid))
        os.rename("{tmp_path}/left.new", "{tmp_path}/left")
        left.wait()
    """
    running = browser.begin(alone(body, "-g 1 --name orphaned"))
    until((tmp_path / "left").exists)
    folder = Path(gateway_machine.places.bursts, burst(gateway, "orphaned")["id"])
    os.kill(json.loads((folder / "agent.json").read_text())["pid"], signal.SIGKILL)
    assert "What ran the workers was killed" in browser.finish(running).evalue
    assert not started(int((tmp_path / "left").read_text()))
    assert burst(gateway, "orphaned")["outcome"] == "lost"


def test_a_cell_that_removes_its_own_folder_is_over_for_everybody(gateway, browser):
    body = "import os, shutil\nshutil.rmtree(os.path.dirname(os.environ['ELASTIC_BURST']))\n"
    cell = browser.run(alone(body, "-g 1 --name homeless"))
    assert cell.ename == "BurstFailed", cell
    assert burst(gateway, "homeless")["state"] == "ended"
    assert browser.run(alone("print('next')", "-g 1")).out == "next\n"
    assert browser.run(alone("import os\nos.unlink(os.environ['ELASTIC_BURST'])\nmade = 2")).status == "ok"


def test_a_program_cancels_one_that_still_waits(gateway, kernel, browser):
    with gateway.kernel(KERNEL_USERNAME="bob") as other:
        holder = other.open()
        holder.begin("%%gpu\nimport time\nwhile True: time.sleep(0.1)")
        until(lambda: other.lease["executing"])
        wanted = {"kernel_id": kernel.id, "code": "1", "workers": 1, "gpus": 1, "name": "waits"}
        assert gateway.call("POST", "/api/bursts", json=wanted).json()["state"] == "waiting"
        assert gateway.call("DELETE", "/api/bursts/waits").status_code == 202
        assert burst(gateway, "waits")["outcome"] == "cancelled" and gateway.gpu()["queue"] == []
        assert gateway.call("DELETE", "/api/bursts/waits").status_code == 204
