"""The demo's gateway and JupyterLab: started, watched, and ended once standard input closes, with all that they started.

Standard input is a pipe from ``demo``: it closes when that process ends, also when it is killed. Secrets go by files of mode
0600. This must never touch a gateway, a kernel or a setting of the user's own.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import secrets
import select
import shutil
import signal
import subprocess
import sys
import sysconfig
import tempfile
import time
from collections.abc import Iterator
from importlib import resources
from pathlib import Path
from typing import Any
from urllib.parse import quote

from jupyter_core.paths import jupyter_runtime_dir

from ..backends.local import LocalMachine
from ..burst.launchers import local as bursts
from ..protocol.errors import ElasticError, LaunchError
from ..settings import ElasticGateway, LocalBackend, SimulatedGpu
from . import show
from .client import GatewayClient

NOTEBOOK = "elastic-gpus.ipynb"
NOTEBOOKS = {NOTEBOOK: "example.ipynb", "second-kernel.ipynb": "example_second.ipynb"}  # each with its file beside this one
SIMULATED = 2
IDLE_TIMEOUT = 15.0  # seconds; short enough to watch a release
STARTING = 60.0  # seconds that a server may take to answer
ENDING = 15.0  # seconds that each step of the end may take before it is forced


class Server:
    """One of the two, a process group of its own, with a log."""

    def __init__(self, name: str, log: Path, module: str, *args: str, cwd: Path, env: dict[str, str]) -> None:
        self.name, self.log = name, log
        with log.open("wb") as out:
            self.process = subprocess.Popen(
                [sys.executable, "-P", "-m", module, *args], cwd=cwd, stdin=subprocess.DEVNULL, stdout=out, stderr=out, env=env,
                start_new_session=True,
            )  # fmt: skip

    def running(self) -> bool:
        return self.process.poll() is None

    def address(self) -> GatewayClient:
        """Once it answers. Raises ``LaunchError`` with the end of its log."""
        info = Path(jupyter_runtime_dir()) / f"jpserver-{self.process.pid}.json"
        end = time.monotonic() + STARTING
        while self.running() and time.monotonic() < end and not wants_end(0.1):
            with contextlib.suppress(OSError, ValueError, ElasticError):
                said = json.loads(info.read_text())
                client = GatewayClient(said["url"], said["token"])
                client.get("/api/status" if self.name == "JupyterLab" else "/api/gpu")
                return client
        raise LaunchError(f"{self.name} did not start. The end of its log:\n{self.log.read_text(errors='replace')[-3000:]}")

    def end(self, signum: int = signal.SIGTERM) -> None:
        """Ask, and force after a while."""
        with contextlib.suppress(ProcessLookupError):
            self.process.send_signal(signum)
        try:
            self.process.wait(ENDING)
        except subprocess.TimeoutExpired:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self.process.pid, signal.SIGKILL)
            self.process.wait()


def main(wish: dict[str, Any]) -> int:
    """0 after a wished end, 1 when something could not start or ended by itself; then its log is shown."""
    with scratch(wish["folder"]) as (private, notebooks):
        local = LocalBackend(runtime_dir=str(private / "k"))
        simulated = how_many(wish["simulated_gpus"], local)
        gateway = lab = None
        try:
            env = {**os.environ, "JUPYTER_CONFIG_PATH": str(private)}
            with step("Starting the gateway"):
                config = f"--config={gateway_config(private, simulated)}"
                gateway = Server("The gateway", private / "gateway.log", "gateway.cli", config, cwd=private, env=env)
                entrance = gateway.address()
            with step("Starting JupyterLab"):
                lab = Server(
                    "JupyterLab", private / "lab.log", "jupyterlab", f"--gateway-url={entrance.url}",
                    f"--config={lab_config(private, notebooks)}", cwd=notebooks, env=lab_env(),
                )  # fmt: skip
                page = lab.address()
            print(
                WELCOME.format(gpus=describe(simulated), address=f"{page.url}/lab/tree/{quote(NOTEBOOK)}?token={token(private)}"),
                flush=True,
            )
            while gateway.running() and lab.running() and not wants_end(0.5):
                pass
            for server in (gateway, lab):
                if not server.running():
                    raise LaunchError(f"{server.name} has ended. The end of its log:\n{server.log.read_text(errors='replace')[-3000:]}")
        except ElasticError as exc:
            if not wants_end(0):
                print(f"jupyter elastic-gateway demo: {exc}", file=sys.stderr, flush=True)
                return 1
        finally:
            if lab is not None:
                lab.end()
            if gateway is not None:
                with contextlib.suppress(ElasticError, UnboundLocalError):
                    entrance.request("POST", "/api/shutdown", {"kernels": True}, seconds=ENDING)
                gateway.end()
            asyncio.run(end_kernels(local))
    return 0


WELCOME = """
{gpus}
Open this address in a browser:

    {address}

Ctrl-C ends everything."""


@contextlib.contextmanager
def step(what: str) -> Iterator[None]:
    """Says what is being done, and how that went."""
    print(f"{what} ... ", end="", flush=True)
    begun = time.monotonic()
    try:
        yield
    except BaseException:
        print("failed.", flush=True)
        raise
    print(f"it answers after {show.span(time.monotonic() - begun)}.", flush=True)


def describe(simulated: int | None) -> str:
    gpus = "this machine's GPUs" if simulated is None else show.count(simulated, "simulated GPU")
    return f"JupyterLab is connected to a gateway that leases {gpus}."


def how_many(wished: int | None, local: LocalBackend) -> int | None:
    """How many GPUs to simulate; None: the driver finds real ones."""
    if wished is not None:
        return wished
    machine = LocalMachine(ElasticGateway(), local, SimulatedGpu())
    try:
        return None if asyncio.run(machine.claim("demo")).gpus else SIMULATED
    finally:
        machine.unclaim()


@contextlib.contextmanager
def scratch(folder: str | None) -> Iterator[tuple[Path, Path]]:
    """``(private folder, folder of the notebook)``; what is temporary is gone afterwards."""
    private = Path(tempfile.mkdtemp(prefix="elastic-demo-", dir="/tmp"))  # short, as sockets will lie below
    try:
        notebooks = Path(folder).expanduser().absolute() if folder else private / "notebooks"
        notebooks.mkdir(parents=True, exist_ok=True)
        for name, source in NOTEBOOKS.items():
            if not (notebooks / name).exists():
                (notebooks / name).write_text(example(source), encoding="utf-8")
        yield private, notebooks
    finally:
        shutil.rmtree(private, ignore_errors=True)


def example(source: str) -> str:
    """A notebook as JupyterLab itself would save it here: it has nothing to change in one that was only opened."""
    notebook = json.loads((resources.files(__package__) / source).read_text(encoding="utf-8"))
    notebook["metadata"]["language_info"]["version"] = sys.version.split()[0]
    return json.dumps(notebook, indent=1, ensure_ascii=False) + "\n"


def lab_env() -> dict[str, str]:
    """Our own, in which ``jupyter`` is the one that this program belongs to, also in JupyterLab's terminals."""
    return {**os.environ, "PATH": os.pathsep.join([sysconfig.get_path("scripts"), os.environ.get("PATH", os.defpath)])}


def gateway_config(private: Path, simulated: int | None) -> Path:
    """The gateway's own file; and beside it what kernels need that start kernels themselves, as a papermill run would."""
    shared = f"c = get_config()\nc.LocalBackend.runtime_dir = {str(private / 'k')!r}\nc.ElasticGateway.simulated_gpus = {simulated}\n"
    (private / "jupyter_elastic_gateway_config.py").write_text(shared)
    return secret_file(
        private / "gateway_config.py",
        f"""{shared}
c.ElasticGateway.name = "demo"
c.Leases.idle_timeout = {IDLE_TIMEOUT}
c.LocalBackend.inherited_env = {[*LocalBackend().inherited_env, "JUPYTER_CONFIG_PATH"]}
c.ServerApp.ip = "127.0.0.1"
c.ServerApp.port = 0
c.ServerApp.allow_root = True
c.IdentityProvider.token = {token(private)!r}
""",
    )


def lab_config(private: Path, notebooks: Path) -> Path:
    """The Lab server's own file, and settings that keep its first page quiet."""
    quiet = private / "settings" / "@jupyterlab" / "apputils-extension"
    quiet.mkdir(parents=True)
    (quiet / "notification.jupyterlab-settings").write_text('{"fetchNews": "false", "checkForUpdates": false}')
    return secret_file(
        private / "lab_config.py",
        f"""c = get_config()
c.GatewayClient.auth_token = {token(private)!r}
c.IdentityProvider.token = {token(private)!r}
c.ServerApp.ip = "127.0.0.1"
c.ServerApp.root_dir = {str(notebooks)!r}
c.ServerApp.open_browser = False
c.ServerApp.terminado_settings = {{"shell_command": [{(os.environ.get("SHELL") or "sh")!r}]}}
c.ServerApp.allow_root = True
c.LabApp.user_settings_dir = {str(private / "settings")!r}
c.LabApp.workspaces_dir = {str(private / "workspaces")!r}
""",
    )


def token(private: Path) -> str:
    """One for the gateway and the Lab server, made at the first call."""
    file = private / "token"
    if not file.exists():
        secret_file(file, secrets.token_hex(24))
    return file.read_text()


def secret_file(path: Path, text: str) -> Path:
    with open(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as file:
        file.write(text)
    return path


async def end_kernels(local: LocalBackend) -> None:
    """What a gateway that was killed has left behind, and cells with ``--detach``, which outlive gateway and kernel."""
    machine = LocalMachine(ElasticGateway(), local, SimulatedGpu())
    for supervisor in await machine.find():
        await supervisor.end(2)
    folders = list(machine.places.bursts.iterdir())
    for folder in folders:
        bursts.cancel(folder)
    end = time.monotonic() + ENDING
    while any(map(bursts.alive, folders)) and time.monotonic() < end:
        await asyncio.sleep(0.05)


def wants_end(seconds: float) -> bool:
    """Wait so long for standard input to close."""
    readable, _, _ = select.select([sys.stdin], [], [], seconds)
    return bool(readable)


if __name__ == "__main__":
    sys.exit(main(json.loads(sys.argv[1])))
