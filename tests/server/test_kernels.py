"""Which kernels are culled, which may start, and what a found one is: decided without any process."""

from __future__ import annotations

import asyncio
import os
from datetime import timedelta
from types import SimpleNamespace
from typing import Any

import pytest
from jupyter_client.kernelspec import KernelSpecManager
from jupyter_server._tz import utcnow
from tornado import web

from gateway.backends.places import user_name
from gateway.broker.link import KernelLink
from gateway.protocol.errors import ElasticError
from gateway.protocol.model import KernelState
from gateway.server.kernels import ElasticMappingKernelManager
from tests.doubles.fake_supervisor import FakeSupervisor


def manager(**settings: Any) -> ElasticMappingKernelManager:
    found = ElasticMappingKernelManager(**settings)
    found.ended = []

    async def end(kernel_id: str) -> None:
        found.ended.append(kernel_id)

    found.shutdown_kernel = end
    return found


def kernel(idle: float = 100.0, **fields: Any) -> Any:
    spec = SimpleNamespace(metadata=fields.pop("metadata", {}))
    known = {"pending": False, "working": False, "execution_state": "idle", "user": "", "kernel_spec": spec, "kept": False}
    said: list[str] = []

    async def notify(text: str, last: bool) -> None:
        said.append(text)

    known |= {"kernel_id": "k1", "kernel_name": "", "ends_at": None, "ends_in": None, "notify": notify, "said": said}
    return SimpleNamespace(idle_for=idle, **(known | fields))


@pytest.mark.parametrize(
    ("one", "culled"),
    [
        (kernel(idle=100), True),
        (kernel(idle=10), False),
        (kernel(working=True), False),
        (kernel(execution_state="busy"), False),
        (kernel(execution_state="starting"), False),
        (kernel(pending=True), False),
        (kernel(kept=True), False),
        (kernel(execution_state="dead"), True),
        (kernel(metadata={"cull_idle_timeout": 1000}), False),
        (kernel(idle=10, metadata={"cull_idle_timeout": 5}), True),
        (kernel(metadata={"cull_idle_timeout": 0}), False),
    ],
)
def test_only_a_kernel_that_does_nothing_for_long_enough_is_culled(one, culled):
    found = manager(cull_idle_timeout=60, cull_warning=0)
    found._kernels["k1"] = one
    asyncio.run(found.cull_kernels())
    assert found.ended == (["k1"] if culled else [])


def test_a_kernel_that_is_about_to_end_is_told_and_has_the_time_that_it_was_told():
    found = manager(cull_idle_timeout=60, cull_warning=20)
    one = found._kernels["k1"] = kernel(idle=45)
    asyncio.run(found.cull_kernels())
    assert found.ended == [] and "will be ended in 20 s" in one.said[0]
    one.idle_for, one.ends_in = 64, 1  # looked at late: what it was told holds
    asyncio.run(found.cull_kernels())
    assert found.ended == []
    one.ends_in = -1
    asyncio.run(found.cull_kernels())
    assert found.ended == ["k1"] and len(one.said) == 2 and "was ended" in one.said[1]


@pytest.mark.parametrize("changed", [{"idle_for": 1}, {"working": True}, {"kept": True}])
def test_a_kernel_that_was_told_and_works_again_is_told_that_it_goes_on(changed):
    found = manager(cull_idle_timeout=60, cull_warning=20)
    one = found._kernels["k1"] = kernel(idle=45, ends_at=9.0, ends_in=5)
    vars(one).update(changed)
    asyncio.run(found.cull_kernels())
    assert (found.ended, one.ends_at, len(one.said)) == ([], None, 1)
    assert "goes on" in one.said[0]


def test_a_cell_that_comes_as_its_kernel_is_ended_keeps_it():
    found = manager(cull_idle_timeout=60, cull_warning=20)
    one = found._kernels["k1"] = kernel(ends_in=-1)

    async def notify(text: str, last: bool) -> None:
        one.working = True

    one.notify = notify
    asyncio.run(found.cull_kernels())
    assert found.ended == []


@pytest.mark.parametrize("connected", [True, False])
@pytest.mark.case("C03")
def test_an_open_tab_keeps_a_kernel_only_where_the_administrator_says_so(connected):
    found = manager(cull_idle_timeout=60, cull_connected=connected, cull_warning=0)
    found._kernels["k1"] = kernel()
    found._kernel_connections["k1"] = 2
    asyncio.run(found.cull_kernels())
    assert found.ended == (["k1"] if connected else [])


def test_a_kernel_that_can_not_be_culled_keeps_no_other():
    found = manager(cull_idle_timeout=60, cull_warning=0)

    async def end(kernel_id: str) -> None:
        if kernel_id == "k1":
            raise RuntimeError("no")
        found.ended.append(kernel_id)

    found.shutdown_kernel = end
    found._kernels |= {"k1": kernel(), "k2": kernel()}
    asyncio.run(found.cull_kernels())
    assert found.ended == ["k2"]


@pytest.mark.parametrize(
    ("settings", "user", "allowed"),
    [
        ({}, "ada", True),
        ({"max_kernels": 3}, "ada", True),
        ({"max_kernels": 2}, "cyd", False),
        ({"max_kernels": 0}, "cyd", False),
        ({"max_kernels_per_user": 1}, "ada", False),
        ({"max_kernels_per_user": 1}, "cyd", True),
        ({"max_kernels_per_user": 0}, "cyd", False),
    ],
)
def test_limits_count_what_is_there_and_what_starts(settings, user, allowed):
    found = manager(**settings)
    found._kernels |= {"k1": kernel(user="ada"), "k2": kernel(user="bob", pending=True)}
    if allowed:
        found._check_limits(user)
    else:
        with pytest.raises(ElasticError) as refused:
            found._check_limits(user)
        assert refused.value.reason == "kernel_limit"


def test_an_unknown_kernel_is_a_404():
    with pytest.raises(web.HTTPError) as missing:
        asyncio.run(ElasticMappingKernelManager().interrupt_kernel("k1"))
    assert missing.value.status_code == 404


def test_an_unknown_kernelspec_is_told_with_those_there_are():
    with pytest.raises(ElasticError, match="python3") as missing:
        asyncio.run(ElasticMappingKernelManager(kernel_spec_manager=KernelSpecManager()).start_kernel(kernel_name="nonesuch"))
    assert missing.value.reason == "no_such_kernelspec"


def test_the_working_folder_is_the_clients_own_where_it_exists_here(tmp_path):
    found = ElasticMappingKernelManager(root_dir=str(tmp_path))
    (tmp_path / "a").mkdir()
    assert found._folder("a/b", {}) == str(tmp_path / "a")
    assert found._folder(None, {"KERNEL_WORKING_DIR": str(tmp_path)}) == str(tmp_path)
    assert found._folder("a", {"KERNEL_WORKING_DIR": "/not/here"}) == str(tmp_path / "a")
    assert found._folder("a", {"KERNEL_WORKING_DIR": "{{ 7*7 }}"}) == str(tmp_path / "a")


def adopted(tell: Any, **state: Any) -> None:
    """Run ``tell(manager, kernel, supervisor)`` with a kernel found again in that state."""

    async def story() -> None:
        supervisor = FakeSupervisor(kernel_id="11111111-2222-3333-4444-555555555555", owner="gateway").listen()
        supervisor.connection |= {f"{name}_port": 1 for name in ("shell", "iopub", "stdin", "control", "hb")}
        supervisor.state = KernelState(**{"kernel_id": supervisor.kernel_id, "alive": True, "ready": True, "starts": 1, **state})
        link = KernelLink(supervisor)
        await link.open(["owner"])
        found = ElasticMappingKernelManager(connection_dir=os.environ["JUPYTER_RUNTIME_DIR"])
        found.elastic_broker = SimpleNamespace(links={supervisor.kernel_id: link}, owner="gateway", backend=None)
        found.adopt(link)
        await tell(found, found.get_kernel(supervisor.kernel_id), supervisor)
        found.detach_all()
        link.close()

    asyncio.run(asyncio.wait_for(story(), 30))


def test_a_kernel_found_again_is_as_its_supervisor_says():
    async def tell(found, kernel, supervisor):
        model = found.kernel_model(supervisor.kernel_id)
        assert (model["execution_state"], model["name"], model["connections"]) == ("busy", "elastic-python", 0)
        assert (utcnow() - kernel.last_activity).total_seconds() == pytest.approx(3600, abs=60)
        assert (kernel.user, kernel.pending, kernel.working) == ("ada", False, True)
        assert os.stat(kernel.connection_file).st_mode & 0o777 == 0o600

    adopted(tell, execution_state="busy", idle_seconds=3600.0, in_flight=1)


def test_a_kernel_whose_user_was_not_named_belongs_to_no_user_of_that_name():
    for said, whose in ((True, "ada"), (False, ""), (None, "ada")):
        supervisor = FakeSupervisor()
        supervisor.metadata = {} if said is None else {"named": said}
        assert supervisor.whose_name == whose
    assert FakeSupervisor(user=user_name()).whose_name == "", "an older gateway's, which may have been anybody's"


def test_a_kernel_that_an_earlier_gateway_was_ending_is_ended():
    async def tell(found, kernel, supervisor):
        asked = []
        found.finish_end = asked.append
        supervisor.ending, kernel._found = True, False
        supervisor.tell(hold_for=9.0)
        await kernel.link.until(lambda state: state.lease.hold_for == 9.0)
        assert asked == [supervisor.kernel_id]

    adopted(tell, execution_state="idle")


def test_that_a_kernel_is_to_be_ended_is_noted_before_anything_else():
    async def story() -> None:
        found, told = ElasticMappingKernelManager(), []

        async def shutdown_kernel(now: bool) -> None:
            told.append("asked")

        backend = SimpleNamespace(end_begins=told.append)
        found.elastic_broker = SimpleNamespace(owner="gateway", backend=backend)
        found.tell = lambda *args, **fields: None
        found._kernel_connections["k1"] = 0
        found._kernels["k1"] = SimpleNamespace(shutdown_kernel=shutdown_kernel, culled=False, farewell="")
        await found.shutdown_kernel("k1")
        assert told == ["k1", "asked"]

    asyncio.run(story())


def test_a_kernel_found_dead_stays_dead_and_says_why():
    async def tell(found, kernel, supervisor):
        assert found.kernel_model(supervisor.kernel_id)["reason"] == "it fell"
        assert kernel.dead

    adopted(tell, execution_state="dead", alive=False, ready=False, reason="it fell")


def test_a_change_of_state_is_seen_without_asking():
    async def tell(found, kernel, supervisor):
        supervisor.state.execution_state = "busy"
        supervisor.tell(executing=True)
        await kernel.link.until(lambda state: state.execution_state == "busy")
        assert kernel.execution_state == "busy"
        assert kernel.working

    adopted(tell, execution_state="idle")


def test_a_clock_that_jumps_culls_no_kernel(monkeypatch):
    async def tell(found, kernel, supervisor):
        found.cull_idle_timeout = 1800
        monkeypatch.setattr("gateway.server.kernel.utcnow", lambda: utcnow() + timedelta(hours=9))
        monkeypatch.setattr("gateway.server.kernels.utcnow", lambda: utcnow() + timedelta(hours=9))
        await found.cull_kernels()
        assert kernel.kernel_id in found and kernel.idle_for == pytest.approx(60, abs=30) and not kernel.kept

    adopted(tell, execution_state="idle", idle_seconds=60.0)


def test_how_a_process_ended_that_a_restart_was_asked_for_is_no_reason_to_tell():
    async def tell(found, kernel, supervisor):
        kernel.shutting_down = True
        supervisor.state.alive, supervisor.state.reason = False, "The kernel was killed by SIGTERM."
        supervisor.tell(executing=False)
        await kernel.link.until(lambda state: not state.alive)
        assert "reason" not in found.kernel_model(supervisor.kernel_id)

    adopted(tell, execution_state="idle")


def test_a_supervisor_that_is_lost_leaves_a_dead_kernel_with_its_reason():
    async def tell(found, kernel, supervisor):
        supervisor.die()
        while not kernel.dead:
            await asyncio.sleep(0.01)
        assert kernel.obituary[0] == "SupervisorLost"
        assert found.kernel_model(supervisor.kernel_id)["execution_state"] == "dead"

    adopted(tell, execution_state="idle")


def test_an_interrupt_goes_to_the_supervisor():
    async def tell(found, kernel, supervisor):
        await found.interrupt_kernel(supervisor.kernel_id)
        assert [call["signum"] for call in supervisor.calls if call["do"] == "signal"] == [2]

    adopted(tell, execution_state="busy")


def test_a_kernel_that_is_being_ended_is_nobodys_find_and_one_that_was_never_reached_is():
    async def story() -> None:
        found = ElasticMappingKernelManager()
        ended = asyncio.Event()

        async def shutdown_kernel(now: bool) -> None:
            await ended.wait()

        found._kernels["k1"] = SimpleNamespace(shutdown_kernel=shutdown_kernel, dead=False, link=None, culled=False, farewell="")
        found._kernel_connections["k1"] = 0
        assert not found.misses("k1"), "it is here"
        ending = asyncio.create_task(found.shutdown_kernel("k1"))
        await asyncio.sleep(0)
        assert "k1" not in found
        assert not found.misses("k1"), "it is on its way out"
        ended.set()
        await ending
        assert found.misses("k1"), "it was not ended after all, if its supervisor answers now"
        found._kernels["k1"] = SimpleNamespace(dead=True, link=None, close_websockets=lambda *args: None)
        assert found.misses("k1"), "given up without having been reached"
        assert "k1" not in found

    asyncio.run(story())
