"""jupyter_client's entry: starts, restarts, signals and ends a kernel through its supervisor.

Inside a gateway it uses the gateway's broker and backend; anywhere else (papermill, nbclient, a script, a plain Jupyter server) the
process's own line to whatever broker there is. It must never put a gateway's environment into a kernel, nor end a kernel that
nobody asked to end.
"""

from __future__ import annotations

import asyncio
import ipaddress
import logging
import math
import os
import re
import signal
import sys
import uuid
from collections.abc import Coroutine
from pathlib import Path
from typing import Any, TypeVar

import zmq
from jupyter_client.connect import KernelConnectionInfo
from jupyter_client.provisioning import KernelProvisionerBase
from traitlets import Unicode
from traitlets.config import Config

from .backends import make_backend
from .backends.base import Backend, Supervisor
from .backends.places import user_name
from .backends.processes import started
from .backends.wishes import gpu_count, launch_limit
from .broker.broker import Broker
from .broker.link import KernelLink
from .broker.outside import Outside, outside
from .protocol.errors import ElasticError, LaunchError, LaunchTimeout, SupervisorLost
from .protocol.model import Spec
from .settings import Count, ElasticGateway, KubernetesBackend, Launching, LocalBackend, SimulatedGpu, machine_config

log = logging.getLogger(__name__)

T = TypeVar("T")

CHANNELS = ("shell", "iopub", "stdin", "control", "hb")
SIGNATURE = "hmac-sha256"

_FIELD = re.compile(r"\{([A-Za-z0-9_]+)\}")


class ElasticProvisioner(KernelProvisionerBase):
    """One kernel. The traits come from the kernelspec: ``metadata.kernel_provisioner.config``."""

    gpus = Count(1, help="GPUs of one lease, all or none. Default 1. 0: the kernel never asks for one and its cells never wait.").tag(
        config=True
    )

    max_gpus = Count(
        None,
        allow_none=True,
        help="The most GPUs that KERNEL_GPUS may ask for. None, the default: whatever the machine has. 0: only for none.",
    ).tag(config=True)

    profile = Unicode(
        "",
        help="""On Kubernetes, the profile of the kernel's pods (KubernetesBackend.profiles). "", the default:
        KubernetesBackend.default_profile.""",
    ).tag(config=True)

    cwd = Unicode(None, allow_none=True, help="The kernel's working folder, once it has been started.")

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.launch_limit: tuple[float, str] = (math.inf, "")  # seconds, and the setting that they come from
        self._supervisor: Supervisor | None = None
        self._link: KernelLink | None = None
        self._ending: asyncio.Future[None] | None = None  # the end of its supervisor, while it lasts
        self._running = False
        self._known_env: dict[str, str] = {}  # what an adopted kernel was started with
        self._outside: Outside | None = None
        self._own_backend: Backend | None = None
        self._machine: Config | None = None

    # where we are

    @property
    def _broker(self) -> Broker | None:
        """The gateway's broker, None where this process is no gateway."""
        return getattr(getattr(self.parent, "parent", None), "elastic_broker", None)

    @property
    def _backend(self) -> Backend:
        if self._broker is not None:
            return self._broker.backend
        if self._own_backend is None:
            self._own_backend = make_backend(self._settings)
        return self._own_backend

    @property
    def _settings(self) -> Config:
        """A server's own configuration; elsewhere the machine's, with what the process itself has set on top."""
        if self._broker is not None:
            return self.config
        if self._machine is None:
            self._machine = machine_config()
            self._machine.merge(self.config)
        return self._machine

    @property
    def _launching(self) -> Launching:
        return (KubernetesBackend if self._backend.remote else LocalBackend)(config=self._settings)

    async def _on_lines_loop(self, work: Coroutine[Any, Any, T]) -> T:
        """Await ``work`` where the kernel's line lives."""
        return await (work if self._outside is None else self._outside.run(work))

    # what jupyter_client asks

    @property
    def has_process(self) -> bool:
        return self._running

    async def poll(self) -> int | None:
        link = self._link
        if link is None:
            return 0
        if link.gone:
            return -signal.SIGKILL if link.state.exit_code is None else link.state.exit_code
        return None if link.state.alive else link.state.exit_code or 0

    async def wait(self) -> int | None:
        while (code := await self.poll()) is None:
            await asyncio.sleep(0.05)
        self._running = False
        return code

    async def send_signal(self, signum: int) -> None:
        if self._link is None or signum == 0 or not self._link.state.alive:
            return
        try:
            await self._call("signal", signum=int(signum))
        except SupervisorLost as exc:  # it has ended meanwhile: nothing is left to signal
            log.info("signal %d for kernel %s came too late: %s", signum, self.kernel_id, exc)

    async def terminate(self, restart: bool = False) -> None:
        await self.send_signal(signal.SIGTERM)

    async def kill(self, restart: bool = False) -> None:
        await self.send_signal(signal.SIGKILL)

    async def cleanup(self, restart: bool = False) -> None:
        """For good: supervisor and all. On a restart the supervisor stays."""
        if restart:
            return
        supervisor, self._supervisor = self._supervisor, None
        link, self._link = self._link, None
        self._running = False
        if self._broker is not None and self.kernel_id is not None:
            self._backend.withdraw(self.kernel_id)
        if supervisor is not None:
            grace = LocalBackend(config=self._settings).shutdown_grace
            self._ending = asyncio.ensure_future(self._on_lines_loop(self._end(supervisor, link, grace)))
        ending = self._ending
        if ending is not None:
            try:
                await asyncio.shield(ending)  # who asked may be cancelled, as a start is by a deletion, which then waits here in its turn
            finally:
                if ending.done():
                    self._ending = None

    async def pre_launch(self, **kwargs: Any) -> dict[str, Any]:
        """``cmd`` (with ``{connection_file}`` left to the supervisor), ``env`` (None: as before) and ``cwd``. In a gateway it returns once
        it is the kernel's turn to start. Raises ``BadRequest``, ``LaunchError``."""
        env = kwargs.pop("env", None)
        kwargs.pop("transport_encryption", None)  # jupyter_client has put it into the manager
        extra = kwargs.pop("extra_arguments", None) or []
        cwd = os.fspath(kwargs.pop("cwd", None) or os.getcwd())
        cmd = self._command(extra, {"cwd": cwd, "env": env, **kwargs})
        adopted = self._link if env is None and self._broker is not None else None
        as_before = adopted is not None and not adopted.gone  # its supervisor knows it
        if adopted is not None and adopted.gone:
            env = self._remembered(adopted)
        result = await super().pre_launch(cmd=cmd, cwd=cwd, env=self._base_env(env), **kwargs)
        self.launch_limit = launch_limit(result["env"], self._launching)
        if as_before:
            result["cmd"] = result["env"] = None
        else:
            gpu_count(result["env"], self.gpus, self.max_gpus)  # a bad wish is told before anything is started
            self._encrypt()
            if self._broker is not None:
                await self._backend.turn(self._spec(result["cmd"], result["env"], cwd), self._told)
        return result

    async def template(self) -> Spec:
        """What a kernel of this kernelspec is started with before anybody has asked for it."""
        cwd = os.getcwd()
        made = await super().pre_launch(cmd=self._command([], {"cwd": cwd}), cwd=cwd, env=self._base_env({}))
        return self._spec(made["cmd"], made["env"], cwd)

    async def launch_kernel(self, cmd: list[str], **kwargs: Any) -> KernelConnectionInfo:
        """Start the kernel, under its living supervisor where there is one. In a gateway it returns once the supervisor listens,
        elsewhere once the kernel answers. Raises ``LaunchError`` with the kernel's last words, ``LaunchTimeout``."""
        env, cwd = kwargs.get("env"), kwargs["cwd"]
        self.cwd = cwd
        if self._link is not None and not self._link.gone:
            await self._respawn(cmd, env, cwd)
        else:
            await self._start(cmd, env or {}, cwd)
        self._running = True
        assert self._supervisor is not None
        self.connection_info = connection_info(self._supervisor)
        return self.connection_info

    async def get_provisioner_info(self) -> dict[str, Any]:
        """What ``load_provisioner_info`` needs in another process."""
        info = await super().get_provisioner_info()
        return {**info, "place": self._supervisor.place if self._supervisor else ""}

    async def load_provisioner_info(self, provisioner_info: dict[str, Any]) -> None:
        """Take over a running kernel. Raises ``SupervisorLost``."""
        await super().load_provisioner_info(provisioner_info)
        supervisor = await self._backend.at(provisioner_info["place"])
        if self._broker is not None:
            self._link = await self._broker.dial(supervisor)
        else:
            self._outside = outside(self._backend)
            self._link = await self._outside.run(self._outside.dial(supervisor))
        self._take(supervisor)

    def resolve_path(self, path: str) -> str | None:
        """Where a path in a notebook's output leads; None where it leads nowhere, or to another machine's files."""
        if self._backend.remote:
            return None
        found = Path(self.cwd or ".", Path(path).expanduser()).resolve()
        return found.as_posix() if found.exists() else None

    # what a gateway asks

    def adopt(self, link: KernelLink) -> None:
        """Take over a running kernel on a line that the gateway's broker has opened."""
        self._link = link
        self._take(link.supervisor)

    async def learn(self) -> None:
        """Ask an adopted kernel's supervisor what it was started with, for a restart after the supervisor's own death."""
        try:
            self._known_env = dict((await self._call("environment")).get("env") or {})
        except ElasticError as exc:  # an older one, or one that is just ending
            log.info("kernel %s doesn't say what it was started with: %s", self.kernel_id, exc)

    # starting

    async def _start(self, cmd: list[str], env: dict[str, str], cwd: str) -> None:
        if not self._backend.remote and not await asyncio.to_thread(os.path.isdir, cwd):
            raise LaunchError(f"The kernel's working folder {cwd} isn't there: make it, or start the kernel in another.")
        spec = self._spec(cmd, env, cwd)
        broker = self._broker
        if broker is not None:
            self._supervisor = await self._backend.start(spec, self._told)
            try:
                self._link = await broker.dial(self._supervisor)
            except BaseException:
                await asyncio.shield(self._end(self._supervisor, None, 0.5))
                raise
            return
        self._outside = outside(self._backend)
        await self._limited(self._start_outside(self._outside, spec))

    async def _start_outside(self, place: Outside, spec: Spec) -> None:
        broker = asyncio.ensure_future(place.broker_ready() if spec.gpus else asyncio.sleep(0))
        try:
            self._supervisor = await self._backend.start(spec)
            self._link = await place.dial(self._supervisor)
            if spec.gpus:
                await broker
                await place.register(self._supervisor)
            await _up(self._link)
        except BaseException:
            broker.cancel()
            supervisor, self._supervisor = self._supervisor, None
            link, self._link = self._link, None
            if supervisor is not None:
                await self._end(supervisor, link, 0.5)
            raise

    def _told(self, text: str) -> None:
        """What keeps the kernel from starting, while it does."""
        log.info("kernel %s waits: %s", self.kernel_id, text) if text else log.info("kernel %s waits no more", self.kernel_id)
        waits = getattr(self.parent, "waits", None)
        if waits is not None:
            waits(text)

    async def _respawn(self, cmd: list[str] | None, env: dict[str, str] | None, cwd: str) -> None:
        async def again() -> None:
            link = self._link
            assert link is not None
            starts = link.state.starts
            remote = self._backend.remote  # its pod knows better what it was started with
            await link.call("respawn", **({"argv": None, "env": None, "cwd": None} if remote else {"argv": cmd, "env": env, "cwd": cwd}))
            await link.until(lambda state: state.starts > starts)
            if self._outside is not None:
                await _up(link)

        await (again() if self._outside is None else self._limited(again()))

    async def _limited(self, work: Coroutine[Any, Any, None]) -> None:
        seconds, setting = self.launch_limit
        try:
            async with asyncio.timeout(seconds if math.isfinite(seconds) else None):
                await self._on_lines_loop(work)
        except TimeoutError:
            raise LaunchTimeout(f"The kernel has not answered within its launch timeout of {seconds:g} seconds ({setting}).") from None

    async def _end(self, supervisor: Supervisor, link: KernelLink | None, grace: float) -> None:
        broker = self._broker
        if broker is not None:
            broker.leave(supervisor.kernel_id)
        elif self._outside is not None:
            self._outside.forget(supervisor.kernel_id)
        if link is not None:
            link.close()
        try:
            await supervisor.end(grace)
        finally:
            if broker is not None:
                broker.remove(supervisor.kernel_id)  # only now: its GPU is empty

    async def _call(self, do: str, **fields: Any) -> dict[str, Any]:
        assert self._link is not None
        return await self._on_lines_loop(self._link.call(do, **fields))

    def _take(self, supervisor: Supervisor) -> None:
        self._supervisor = supervisor
        self.kernel_id, self.cwd = supervisor.kernel_id, supervisor.metadata.get("launch", {}).get("cwd")
        self.connection_info = connection_info(supervisor)
        self._running = True

    # what it is started with

    def _spec(self, cmd: list[str], env: dict[str, str], cwd: str) -> Spec:
        config, km, broker = self._settings, self.parent, self._broker
        local, gateway, simulated = LocalBackend(config=config), ElasticGateway(config=config), SimulatedGpu(config=config)
        owner = broker.owner if broker is not None else ""
        session = getattr(km, "session", None)
        if session is not None and session.key and session.signature_scheme != SIGNATURE:
            raise LaunchError(f"Session.signature_scheme is {session.signature_scheme!r}: elastic kernels sign with {SIGNATURE!r} alone.")
        kernel_spec = self.kernel_spec
        tcp = km is None or km.transport == "tcp"
        return Spec(
            kernel_id=self.kernel_id or str(uuid.uuid4()),
            argv=cmd,
            env=env,
            cwd=cwd,
            key=session.key.decode() if session is not None else uuid.uuid4().hex,
            user=env.get("KERNEL_USERNAME") or user_name(),
            name=km.kernel_name if km is not None else "",
            display=os.path.basename(env.get("JPY_SESSION_NAME", "")),
            language=(kernel_spec.language or "").lower(),
            interrupt_mode=kernel_spec.interrupt_mode,
            kernel_transport=local.kernel_transport,
            gpus=gpu_count(env, self.gpus, self.max_gpus),
            owner=owner,
            owner_pid=None if owner else os.getpid(),
            owner_started=None if owner else started(os.getpid()),
            ip=km.ip if tcp and km is not None else "127.0.0.1",
            ports={name: port for name in CHANNELS if tcp and (port := getattr(km, f"{name}_port", 0)) > 0},
            curve_publickey=_text(getattr(km, "curve_publickey", None)),
            curve_secretkey=_text(getattr(km, "curve_secretkey", None)),
            journal_bytes=local.journal_bytes,
            window_bytes=local.window_bytes,
            session_seconds=local.session_seconds,
            stall_seconds=local.stall_seconds,
            notice_after=local.notice_after,
            simulated=None if gateway.simulated_gpus is None else simulated.costs(),  # a broker that grants knows better
            metadata={
                "launch": {"cwd": cwd},
                "named": bool(env.get("KERNEL_USERNAME")),
                **({"profile": self.profile} if self.profile else {}),
            },
        )

    def _command(self, extra: list[str], launch_args: dict[str, Any]) -> list[str]:
        """The kernelspec's command with all its fields but the connection file, as jupyter_client fills them."""
        cmd = [*self.kernel_spec.argv, *extra]
        if (
            not self._backend.remote
            and cmd
            and cmd[0] in {"python", f"python{sys.version_info[0]}", f"python{sys.version_info[0]}.{sys.version_info[1]}"}
        ):
            cmd[0] = sys.executable
        fields = {"prefix": sys.prefix, "resource_dir": self.kernel_spec.resource_dir, "kernel_id": self.kernel_id}
        fields |= {name: value for name, value in launch_args.items() if isinstance(value, str)}
        fields.pop("connection_file", None)
        return [_FIELD.sub(lambda match: str(fields.get(match[1], match[0])), arg) for arg in cmd]

    def _remembered(self, link: KernelLink) -> dict[str, str]:
        """What is known of an adopted kernel whose supervisor has ended, and with it what its request brought."""
        supervisor, count = link.supervisor, link.state.lease.count
        known = {"KERNEL_USERNAME": supervisor.whose_name, "JPY_SESSION_NAME": supervisor.display, "KERNEL_GPUS": str(count)}
        told = {name: value for name, value in known.items() if value and (name != "KERNEL_GPUS" or count != self.gpus)}
        return {**self._known_env, **told}

    def _base_env(self, given: dict[str, str] | None) -> dict[str, str]:
        if self._broker is None:
            return dict(os.environ if given is None else given)
        if self._backend.remote:
            return dict(given or {})
        names = LocalBackend(config=self._settings).inherited_env
        return {**{name: os.environ[name] for name in names if name in os.environ}, **(given or {})}

    def _encrypt(self) -> None:
        """CurveZMQ keys for the plain ports, kept over restarts: where asked for, and wherever they can be reached from elsewhere."""
        km = self.parent
        if km is None or km.transport != "tcp" or km.curve_publickey is not None:
            return
        if km.transport_encryption == "disabled" and _is_loopback(km.ip):
            return
        if not zmq.has("curve"):
            raise LaunchError(f"The kernel's ports on {km.ip} must be encrypted, and this libzmq can't: install one with CurveZMQ.")
        km.curve_publickey, km.curve_secretkey = zmq.curve_keypair()


def connection_info(supervisor: Supervisor) -> KernelConnectionInfo:
    """As jupyter_client wants it: the key as bytes."""
    return {**supervisor.connection, "key": supervisor.key.encode()}


async def _up(link: KernelLink) -> None:
    """Until the kernel answers. Raises ``LaunchError`` with its last words where it dies first."""
    try:
        state = await link.until(lambda state: state.ready or not state.alive)
    except SupervisorLost as exc:
        raise LaunchError(f"The kernel's supervisor died as the kernel came up: {exc}") from exc
    if not state.ready:
        raise LaunchError(f"The kernel died as it came up. {state.reason}")


def _is_loopback(ip: str) -> bool:
    try:
        return ipaddress.ip_address(ip).is_loopback
    except ValueError:
        return ip == "localhost"


def _text(key: bytes | None) -> str | None:
    return None if key is None else key.decode()
