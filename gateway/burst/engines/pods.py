"""Which processes a pod of a burst runs, by engine. Pure.

A pod has one member of the burst: a server, or a worker, which may be several ranks. They meet at addresses of pods, which are known before
any of them begins: names would be unknown to the cluster's DNS for the first seconds of a pod.
"""

from __future__ import annotations

import shlex
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Any, NamedTuple

from ...protocol import burst
from ...protocol.burst import Process
from ...protocol.errors import BadRequest
from ...protocol.roles import WORKER, Role, members
from ..layout import layout
from ..record import Record
from . import dask, ray, tf_ps, torch
from .keys import CERTIFICATE, KEY, RAY_TOKEN
from .roles import told
from .spmd import python

# Each pod has all of its ports for itself.
PORT = 29400  # where ranks meet
MEMBER_PORT = 29500  # a member's own, for what its role speaks
TF_PORT = 2222
DASK_PORT = 8786
MPI_PORT = 29600
RAY_PORT = 6379
MPI_AGENT, MPI_HOSTS, HYDRA_HOSTS = "mpi-agent", "mpi-hosts", "hydra-hosts"  # files in each pod's folder
_WORKER = ["-m", "gateway.pod.burst.worker"]


class Shape(NamedTuple):
    """``pods``: how many there are; ``leads``: numbers of those whose end is the burst's; ``cells``: how many processes run the cell."""

    pods: int
    leads: frozenset[int]
    cells: int


@dataclass(frozen=True)
class Here:
    """One pod: its number and, by number, the addresses of all."""

    record: Record
    request: dict[str, Any]
    number: int
    addresses: Sequence[str]
    port: int = PORT  # where ranks meet

    def python(self, *argv: str) -> list[str]:
        return [*python(self.request), *argv]

    @property
    def first(self) -> int:
        """The first rank of this pod's worker."""
        return self.number * self.record.procs

    def rank(self, rank: int, world: int, local: int = 0, **env: str) -> Process:
        """One that runs the cell. ``local``: which of its pod's."""
        place = {"RANK": rank, "WORLD_SIZE": world, "LOCAL_RANK": local, "LOCAL_WORLD_SIZE": self.record.procs}
        said = {name: str(value) for name, value in place.items()}
        return Process(argv=self.python(*_WORKER), env={**said, **env}, name=f"rank {rank}", number=rank)


def shape(record: Record) -> Shape:
    """Raises ``BadRequest`` where the engine has no pods."""
    if record.engine not in IN_PODS:
        raise BadRequest(
            f"The engine {record.engine} runs on one machine; in pods, as here, there are {', '.join(IN_PODS)}: -e torch, say."
        )
    if record.elastic and record.engine not in COME_AND_GO:
        raise BadRequest(f"Workers of -e {record.engine} keep their number in pods: -w {record.least}, say.")
    if record.engine in ONE_CELL:
        if record.roles:
            raise BadRequest(f"In pods -e {record.engine} has no roles beside its workers in this version.")
        return Shape(record.workers, frozenset({0}), 1)
    found = members(layout(record))
    cells = record.procs * sum(each.role.runs_cell for each in found)
    return Shape(len(found), frozenset(each.number for each in found if each.role.leads), cells)


def called(record: Record, pod: int) -> str:
    """What one of its pods is called, for people."""
    if record.engine in ONE_CELL or not 0 <= pod < shape(record).pods:
        return f"{record.pod_called} {pod}"
    found = members(layout(record))
    same = found[pod].role is found[0].role
    return f"{record.pod_called} {pod}" if same else f"{found[pod].role.name} {found[pod].rank}"


def jobs(record: Record) -> tuple[Role, list[tuple[Role, int]]]:
    """The pods that are alike and come first, then those of each other role with the number of its first. Raises ``BadRequest``."""
    shape(record)
    if record.engine in ONE_CELL:
        return Role(WORKER, record.workers, record.gpus), []
    first, *others = layout(record)
    numbers = accumulate((role.count for role in others), initial=first.count)
    return first, list(zip(others, numbers, strict=False))


def processes(record: Record, request: dict[str, Any], number: int, addresses: Sequence[str]) -> list[Process]:
    """Of one pod. ``addresses``: of all, by number. ``{folder}`` in argv and env stands for the burst's folder there."""
    here = Here(record, request, number, addresses)
    if record.engine in ONE_CELL:
        return IN_PODS[record.engine](here)
    found = members(layout(record))
    member, first = found[number], found[0].role
    if member.role is first or not member.role.runs_cell:
        made = IN_PODS[record.engine](here)
    else:
        meeting = {"MASTER_ADDR": addresses[number - member.rank], "MASTER_PORT": str(PORT)}
        made = [here.rank(member.rank, member.role.count, **meeting, **{burst.FIRST_VARIABLE: str(number - member.rank)})]
        made[0].name = f"{member.role.name} {member.rank}"
    told(made, found, [f"{address}:{MEMBER_PORT}" for address in addresses], member)
    return made


def of_worker(record: Record, request: dict[str, Any], worker: int, addresses: Sequence[str], port: int = PORT) -> list[Process]:
    """Of one whose like come and go."""
    return IN_PODS[record.engine](Here(record, request, worker, addresses, port))


def files(record: Record, addresses: Sequence[str], request: dict[str, Any]) -> dict[str, str]:
    """What a pod's folder has to have beside keys: name and text."""
    if record.engine != "mpi":
        return {}
    agent = shlex.join([*python(request), "-m", "gateway.pod.burst.mpi_door", "call"])
    return {
        MPI_HOSTS: "".join(f"{address} slots={record.procs}\n" for address in addresses),
        HYDRA_HOSTS: "".join(f"{address}:{record.procs}\n" for address in addresses),
        MPI_AGENT: f'#!/bin/sh\nhere=$(dirname "$0")\nexec {agent} "$here" {MPI_PORT} "$@"\n',
    }


def _none(here: Here) -> list[Process]:
    meeting = {"MASTER_ADDR": here.addresses[0], "MASTER_PORT": str(here.port)}
    return [here.rank(here.first + local, here.record.ranks, local, **meeting) for local in range(here.record.procs)]


def _torch(here: Here) -> list[Process]:
    where = torch.nodes(here.record, here.number, here.addresses[0], here.port)
    name = f"torchrun of {here.record.pod_called} {here.number}"
    return [torch.torchrun(here.request, name, where, here.record.procs, number=here.first)]


def _tf_ps(here: Here) -> list[Process]:
    found = tf_ps.cluster(here.record)
    addresses = {each.number: f"{here.addresses[each.number]}:{TF_PORT}" for each in found}
    return [tf_ps.process(here.request, found, addresses, found[here.number])]


def _dask(here: Here) -> list[Process]:
    """A worker each; rank 0's pod has the scheduler and the cell, too."""
    scheduler, tls = f"tls://{here.addresses[0]}:{DASK_PORT}", "DASK_DISTRIBUTED__COMM__TLS__"
    keys = {f"{tls}{who}__{what}": f"{{folder}}/{file}" for who in ("CLIENT", "SCHEDULER", "WORKER")
            for what, file in (("CERT", CERTIFICATE), ("KEY", KEY))}  # fmt: skip
    env = {"DASK_DISTRIBUTED__COMM__REQUIRE_ENCRYPTION": "True", f"{tls}CA_FILE": f"{{folder}}/{CERTIFICATE}", **keys}
    member = here.python("-m", "gateway.pod.burst.dask_member")
    made = [Process(argv=[*member, "worker", scheduler], env=env, name=f"Dask worker {here.number}", ranks=0)]
    if here.number == 0:
        start = [*member, "scheduler", str(DASK_PORT), str(here.record.workers), f"{{folder}}/{dask.READY}"]
        cell = here.rank(0, 1, DASK_SCHEDULER_ADDRESS=scheduler, **env)
        cell.after = dask.READY
        made += [Process(argv=start, env=env, name="the Dask scheduler", ranks=0), cell]
    return made


def _ray(here: Here) -> list[Process]:
    """A node each, with a CPU and the pod's GPUs; rank 0's pod has the head and the cell, too."""
    ip, first = here.addresses[here.number], f"{here.addresses[0]}:{RAY_PORT}"
    env = {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN_PATH": f"{{folder}}/{RAY_TOKEN}", "RAY_ADDRESS": first}
    node, size = here.python("-m", "gateway.pod.burst.ray_cluster", "{folder}"), ["1", str(here.record.gpus)]
    if here.number:
        return [Process(argv=[*node, "worker", ip, first, *size], env=env, name=f"Ray node {here.number}", ranks=0)]
    head = ["head", ip, str(RAY_PORT), *size, str(RAY_PORT + 1), str(here.record.workers), ray.READY]
    cell = here.rank(0, 1, **env)
    cell.after = ray.READY
    return [Process(argv=[*node, *head], env=env, name="the Ray head", ranks=0), cell]


def _mpi(here: Here) -> list[Process]:
    """mpirun in rank 0's pod starts the others' ranks through a door in each, in place of ssh."""
    agent, hosts = f"{{folder}}/{MPI_AGENT}", f"{{folder}}/{MPI_HOSTS}"
    door = here.python("-m", "gateway.pod.burst.mpi_door")
    if here.number:
        name = f"the door of {here.record.pod_called} {here.number}"
        return [Process(argv=[*door, "serve", "{folder}", str(MPI_PORT)], name=name, ranks=here.record.procs)]
    env = {
        "PRTE_MCA_plm_ssh_agent": agent, "PRTE_MCA_prte_default_hostfile": hosts,  # Open MPI 5
        "OMPI_MCA_plm_rsh_agent": agent, "OMPI_MCA_orte_default_hostfile": hosts,  # Open MPI 4
        "PRTE_MCA_rmaps_default_mapping_policy": "slot", "OMPI_MCA_rmaps_base_mapping_policy": "slot",  # one pod after the other
        "HYDRA_LAUNCHER": "ssh", "HYDRA_LAUNCHER_EXEC": agent, "HYDRA_HOST_FILE": f"{{folder}}/{HYDRA_HOSTS}",  # MPICH
    }  # fmt: skip
    argv = [*door, "run", "-np", str(here.record.ranks), *here.python(*_WORKER)]
    return [Process(argv=argv, env=env, name="mpirun", ranks=here.record.procs)]


IN_PODS: dict[str, Callable[[Here], list[Process]]] = {
    "none": _none, "torch": _torch, "mpi": _mpi, "dask": _dask, "ray": _ray, "tf-ps": _tf_ps,
}  # fmt: skip
COME_AND_GO = ("none", "torch")  # whose workers may
ONE_CELL = ("dask", "ray")  # a worker of the engine's own in each pod, and the cell in the first of them
