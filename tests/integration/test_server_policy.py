"""The policy of a real gateway with real kernels: rules for some, from a file and by REST, and what a user over quota is told."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.integration.machine import Machine, until
from tests.integration.serving import GPU, Gateway, Kernel, end

RULES = "site: {idle_timeout: 120, min_hold: 0}\n"


@pytest.fixture
def policy_file(own_machine: Machine) -> Path:
    file = own_machine.root / "policy.yaml"
    file.write_text(RULES)
    return file


@pytest.fixture
def site(own_machine: Machine, policy_file: Path) -> Iterator[Gateway]:
    """Three simulated GPUs and a policy file."""
    gateway = Gateway(own_machine, "ElasticGateway.simulated_gpus=3", f"Leases.policy_file={policy_file}", "SimulatedGpu.park_seconds=0")
    yield gateway
    if gateway.process.poll() is None:
        end(gateway)


@pytest.mark.parametrize("signum", [signal.SIGKILL, signal.SIGTERM])
def test_a_patch_outlives_the_gateway_until_the_file_says_something_newer(site: Gateway, policy_file: Path, signum: int):
    with site.kernel(KERNEL_USERNAME="ana") as ana:
        ana.open().run(GPU + "1")
        assert site.call("PATCH", "/api/gpu/policy", json={"min_hold": 1, "users": {"ana": {"idle_timeout": 50}}}).ok
        site.stop(signum)
        site.start()
        until(lambda: ana.lease["phase"] == "HOLDING")
        held = holds(site, ana, "idle_timeout")
        assert (held["value"], held["level"], held["source"][:21]) == (50.0, "user", "changed while running")
        shown = site.call("GET", "/api/gpu/policy").json()
        assert (shown["min_hold"], shown["unkept"], len(shown["changes"])) == (1.0, "", 2)
        policy_file.write_text("site: {idle_timeout: 120, min_hold: 2}\n")
        until(lambda: holds(site, ana, "min_hold")["value"] == 2.0)
        assert holds(site, ana, "idle_timeout")["value"] == 50.0


def holds(gateway: Gateway, kernel: Kernel, setting: str) -> dict:
    return gateway.call("GET", f"/api/gpu/policy?kernel={kernel.id}").json()["settings"][setting]


def idle_seconds(gateway: Gateway, kernel: Kernel) -> float | None:
    lease = kernel.lease
    return None if lease["idle_since"] is None else seconds(lease["ends_by"]) - seconds(lease["idle_since"])


def seconds(moment: str) -> float:
    from datetime import datetime

    return datetime.fromisoformat(moment).timestamp()


@pytest.mark.parametrize("way", ["file", "patch"])
def test_a_users_timeout_changed_while_cells_run_takes_hold_at_its_next_idle_and_on_nobody_else(
    site: Gateway, policy_file: Path, way: str
):  # fmt: skip
    with site.kernel(KERNEL_USERNAME="ana") as ana, site.kernel(KERNEL_USERNAME="bo") as bo:
        browsers = {kernel.id: kernel.open() for kernel in (ana, bo)}
        running = {kernel.id: browsers[kernel.id].begin(GPU + "import time; time.sleep(4); x = 41") for kernel in (ana, bo)}
        until(lambda: ana.lease["executing"] and bo.lease["executing"])
        if way == "file":
            policy_file.write_text(RULES + "users: {ana: {idle_timeout: 5}}\n")
        else:
            assert site.call("PATCH", "/api/gpu/policy", json={"users": {"ana": {"idle_timeout": 5}}}).ok
        until(lambda: holds(site, ana, "idle_timeout")["value"] == 5.0)
        assert ana.lease["executing"] and bo.lease["executing"]
        for kernel in (ana, bo):
            assert browsers[kernel.id].finish(running[kernel.id]).status == "ok"
        until(lambda: idle_seconds(site, bo) is not None)
        assert idle_seconds(site, bo) == pytest.approx(120, abs=0.01)
        until(lambda: ana.lease["phase"] == "PARKED")
        assert bo.lease["phase"] == "HOLDING"
        told = holds(site, ana, "idle_timeout")
        assert (told["level"], told["name"]) == ("user", "ana")
        assert told["source"].startswith(f"{policy_file}, line 2" if way == "file" else "changed while running")
        assert [each["value"] for each in told["over"]] == [120.0]
        assert browsers[ana.id].run(GPU + "print(x + 1)").out == "42\n"


def test_a_bad_file_is_refused_with_line_and_reason_and_the_old_rules_stay(site: Gateway, policy_file: Path):
    policy_file.write_text("site:\n  idle_timeout: soon\n")
    until(lambda: site.call("GET", "/api/gpu/policy").json()["file"]["error"])
    rules = site.call("GET", "/api/gpu/policy").json()
    assert 'line 2: idle_timeout can\'t be "soon"' in rules["file"]["error"]
    assert (rules["idle_timeout"], rules["min_hold"]) == (120.0, 0.0)
    assert "line 2: idle_timeout" in site.log
    folder = policy_file.parent / "new"
    folder.mkdir()
    (folder / "policy.yaml").write_text("site: {idle_timeout: 33}\n")
    (policy_file.parent / "link").symlink_to(folder / "policy.yaml")
    os.replace(policy_file.parent / "link", policy_file)
    until(lambda: site.call("GET", "/api/gpu/policy").json()["idle_timeout"] == 33.0)
    assert site.call("GET", "/api/gpu/policy").json()["file"]["error"] == ""


def test_a_user_over_quota_is_told_what_why_and_until_when(site: Gateway, policy_file: Path):
    policy_file.write_text(RULES + "groups:\n  students: {members: [ana], gpus_per_user: 1, min_hold: 6}\n")
    until(lambda: site.call("GET", "/api/gpu/policy").json()["groups"])
    with site.kernel(KERNEL_USERNAME="ana", JPY_SESSION_NAME="first.ipynb") as first, site.kernel(KERNEL_USERNAME="ana") as second:
        holder, waiter = first.open(), second.open()
        running = holder.begin(GPU + "import time; time.sleep(3)")
        until(lambda: first.lease["executing"])
        cell = waiter.begin(GPU + "print('mine')")

        def says(*words: str):
            waiter.wait(
                lambda m: (
                    m["parent"] == cell
                    and m["type"] in ("display_data", "update_display_data")
                    and all(word in str(m["content"]["data"]) for word in words)
                )
            )

        says("you hold 1 GPU and may hold 1 (gpus_per_user of group students)", "has to become idle first", "first.ipynb")
        until(lambda: [each["kernel_id"] for each in site.gpu()["queue"]] == [second.id])
        assert "gpus_per_user of group students" in site.gpu()["queue"][0]["quota"]
        assert len({uuid for lease in site.gpu()["leases"] for uuid in lease["gpus"]}) == 1  # two of three are free
        assert holder.finish(running).status == "ok"
        says("gives its own up first", "about")  # until its minimum hold is over
        assert waiter.finish(cell).out == "mine\n"
        until(lambda: first.lease["phase"] == "PARKED")
    with site.kernel(KERNEL_USERNAME="ana", KERNEL_GPUS="2") as big:
        refused = big.open().run(GPU + "1")
        assert refused.status == "error"
        assert "one user may hold 1 at a time here" in refused.evalue and "group students" in refused.evalue


def test_the_policy_of_no_kernel_is_not_found(site: Gateway):
    assert site.call("GET", "/api/gpu/policy?kernel=1-2-3-4-5").status_code == 404
