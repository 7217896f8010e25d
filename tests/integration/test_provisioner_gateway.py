"""Kernels of a gateway: owned by name, adopted by the next one; and a gateway that meets the on-demand broker."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Callable, Coroutine
from typing import Any

import pytest
from jupyter_client.asynchronous import AsyncKernelClient
from jupyter_client.manager import AsyncKernelManager
from traitlets.config import Configurable

from gateway.broker.broker import Broker
from gateway.broker.client import request
from gateway.protocol.errors import BrokerUnavailable
from gateway.provisioner import ElasticProvisioner
from gateway.settings import machine_config
from tests.integration.machine import Machine, kernel, machine, run, until

__all__ = ["machine"]

GPU_CELL = "%%gpu\nimport os; print(os.environ.get('CUDA_VISIBLE_DEVICES'))"


class Gateway(Configurable):
    """What the server's mapping kernel manager is to a kernel manager."""

    elastic_broker: Broker


async def gateway(name: str = "lab") -> Gateway:
    found = Gateway(config=machine_config())
    found.elastic_broker = Broker(found, name)
    await found.elastic_broker.start()
    return found


async def started_kernel(parent: Gateway, **kwargs: Any) -> tuple[AsyncKernelManager, AsyncKernelClient]:
    manager = AsyncKernelManager(kernel_name="elastic", parent=parent)
    await manager.start_kernel(**kwargs)
    client = manager.client()
    client.start_channels()
    await client.wait_for_ready(timeout=60)
    return manager, client


async def cell(client: AsyncKernelClient, code: str) -> str:
    printed: list[str] = []

    def heard(message: dict[str, Any]) -> None:
        if message["msg_type"] == "stream":
            printed.append(message["content"]["text"])

    reply = await client.execute_interactive(code, timeout=60, output_hook=heard)
    assert reply["content"]["status"] == "ok", reply["content"]
    return "".join(printed).strip()


def story(tells: Callable[[], Coroutine[Any, Any, None]]) -> None:
    asyncio.run(asyncio.wait_for(tells(), 100))


def test_a_gateways_kernel_gets_none_of_the_gateways_environment(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SECRET_OF_THE_GATEWAY", "hush")

    async def tells() -> None:
        here = await gateway()
        manager, client = await started_kernel(here, env={"KERNEL_USERNAME": "o'neil"})
        assert await cell(client, "import os; print(os.environ.get('SECRET_OF_THE_GATEWAY'))") == "None"
        assert await cell(client, "print(os.environ['KERNEL_USERNAME'], os.environ['PATH'] != '')") == "o'neil True"
        assert here.elastic_broker.snapshot()["leases"][0]["user"] == "o'neil"
        client.stop_channels()
        await manager.shutdown_kernel()
        assert here.elastic_broker.links == {}
        assert machine.supervisors() == []
        await here.elastic_broker.stop()

    story(tells)


def test_a_kernel_outlives_its_gateway_and_the_next_one_takes_it_over(machine: Machine) -> None:
    async def tells() -> None:
        first = await gateway()
        old, client = await started_kernel(first)
        assert await cell(client, "x = 7") == ""
        assert await cell(client, GPU_CELL) == "GPU-SIM-0"
        await first.elastic_broker.stop()
        assert await cell(client, "print(x)") == "7"

        second = await gateway()
        [link] = second.elastic_broker.own()
        assert link.kernel_id == old.kernel_id
        assert second.elastic_broker.snapshot()["leases"][0]["phase"] == "HOLDING"
        provisioner = ElasticProvisioner(kernel_spec=old.kernel_spec, parent=AsyncKernelManager(kernel_name="elastic", parent=second))
        provisioner.adopt(link)
        assert provisioner.connection_info == old.provisioner.connection_info
        assert await provisioner.poll() is None

        # a restart without a word of what it was started with: its supervisor knows
        await provisioner.kill(restart=True)
        await provisioner.wait()
        await provisioner.cleanup(restart=True)
        kwargs = await provisioner.pre_launch(cwd="/tmp")
        await provisioner.launch_kernel(kwargs.pop("cmd"), **kwargs)
        assert await cell(client, "print('x' in dir())") == "False"
        assert await cell(client, GPU_CELL) == "GPU-SIM-0"
        client.stop_channels()
        await provisioner.cleanup()
        assert machine.supervisors() == []
        await second.elastic_broker.stop()

    story(tells)


def test_kernels_of_another_name_are_leased_to_but_not_taken_over(machine: Machine) -> None:
    async def tells() -> None:
        first = await gateway("one")
        _, client = await started_kernel(first)
        assert await cell(client, GPU_CELL) == "GPU-SIM-0"
        await first.elastic_broker.stop()
        second = await gateway("two")
        assert second.elastic_broker.own() == []
        _, other = await started_kernel(second)
        assert await cell(other, GPU_CELL) == "GPU-SIM-0"
        assert sorted(lease["phase"] for lease in second.elastic_broker.snapshot()["leases"]) == ["HOLDING", "PARKED"]
        for each in (client, other):
            each.stop_channels()
        await second.elastic_broker.stop()

    story(tells)


def test_a_second_gateway_on_one_folder_is_told_who_is_there(machine: Machine) -> None:
    async def tells() -> None:
        first = await gateway("one")
        with pytest.raises(BrokerUnavailable, match=r"gateway 'one' of .*LocalBackend\.runtime_dir"):
            await gateway("two")
        assert first.elastic_broker.running
        await first.elastic_broker.stop()

    story(tells)


def test_an_on_demand_broker_hands_over_to_a_gateway_and_another_one_follows_it(machine: Machine) -> None:
    with kernel() as (manager, client):
        assert run(client, GPU_CELL) == "GPU-SIM-0"
        old = machine.broker()
        assert old["kind"] == "broker"

        async def tells() -> None:
            here = await gateway()
            broker = here.elastic_broker
            assert broker.generation > old["generation"]
            assert broker.snapshot()["leases"][0]["phase"] == "HOLDING"
            _, other = await started_kernel(here)
            assert await cell(other, GPU_CELL) == "GPU-SIM-0"  # from the kernel of the process to the gateway's
            assert broker.book.kernels[manager.kernel_id].phase == "PARKED"
            assert await asyncio.to_thread(run, client, GPU_CELL) == "GPU-SIM-0"  # and back
            assert (await asyncio.to_thread(machine.broker))["kind"] == "gateway"
            other.stop_channels()
            await broker.stop()

        story(tells)
        until(lambda: not os.path.exists(f"/proc/{old['pid']}"))
        assert run(client, GPU_CELL) == "GPU-SIM-0"
        new = until(lambda: answer(machine))
        assert new["kind"] == "broker"
        assert new["generation"] > old["generation"] + 1
        assert len(request(machine.places, "list")["kernels"]) == 2


def test_a_new_kernel_registers_with_the_gateway_that_is_there(machine: Machine) -> None:
    async def tells() -> None:
        here = await gateway()

        def papermill() -> str:
            with kernel() as (_, client):
                return run(client, GPU_CELL)

        assert await asyncio.to_thread(papermill) == "GPU-SIM-0"
        while here.elastic_broker.links:  # until the broker has seen that it ended
            await asyncio.sleep(0.01)
        await here.elastic_broker.stop()

    story(tells)


def test_a_gateway_that_is_killed_leaves_leases_as_they_are(machine: Machine) -> None:
    code = """
import asyncio, sys
sys.path.insert(0, sys.argv[1])
from tests.integration.test_provisioner_gateway import GPU_CELL, cell, gateway, started_kernel
async def main():
    manager, client = await started_kernel(await gateway())
    print(await cell(client, GPU_CELL), flush=True)
    client.execute("%%gpu\\nprint('runs', flush=True); import time; time.sleep(2); done = True")
    while (await client.get_iopub_msg(timeout=60))["msg_type"] != "stream":
        pass
    print("runs", flush=True)
    await asyncio.sleep(600)
asyncio.run(main())
"""
    first = machine.run(code, str(__file__).rpartition("/tests/")[0])
    assert first.stdout is not None
    assert first.stdout.readline() == "GPU-SIM-0\n"
    assert first.stdout.readline() == "runs\n"
    first.send_signal(signal.SIGKILL)
    first.wait()

    async def tells() -> None:
        here = await gateway()
        [link] = here.elastic_broker.own()
        lease = here.elastic_broker.snapshot()["leases"][0]
        assert (lease["kernel_id"], lease["phase"], lease["gpus"]) == (link.kernel_id, "HOLDING", ["GPU-SIM-0"])
        client = AsyncKernelClient()
        client.load_connection_info({**link.supervisor.connection, "key": link.supervisor.key})
        client.start_channels()
        assert await cell(client, "print(done)") == "True"  # it was running, and has ended
        client.stop_channels()
        await here.elastic_broker.stop()

    story(tells)


def answer(machine: Machine) -> dict[str, Any] | None:
    try:
        return machine.broker()
    except BrokerUnavailable:
        return None
