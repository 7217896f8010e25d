"""A real JupyterLab, connected by ``--gateway-url`` to a gateway, and notebooks in its folder."""

from __future__ import annotations

import os
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterable, Mapping
from pathlib import Path

import nbformat

from tests.browser.pages import SECONDS
from tests.lab.conftest import free_port

TOKEN = "browser-test-token"
COMMON = f'c = get_config()\nc.IdentityProvider.token = {TOKEN!r}\nc.ServerApp.ip = "127.0.0.1"\nc.ServerApp.allow_root = True\n'


class JupyterLab:
    """``gateway`` is an address, "" for none, ``token`` the gateway's; ``more``: lines of configuration, ``env``: variables."""

    module, page = "jupyterlab", "lab/workspaces/{name}/tree/{name}.ipynb"

    def __init__(self, root: Path, gateway: str, token: str = TOKEN, more: str = "", env: Mapping[str, str] | None = None) -> None:
        self.root, self.port = root, free_port()
        self.notebooks = root / "notebooks"
        self.notebooks.mkdir()
        (root / "lab_config.py").write_text(f"""{COMMON}
c.ServerApp.port = {self.port}
c.ServerApp.port_retries = 0
c.ServerApp.root_dir = {str(self.notebooks)!r}
c.ServerApp.open_browser = False
c.GatewayClient.auth_token = {token!r}
{more}
""")
        quiet = root / "settings" / "@jupyterlab" / "apputils-extension"
        quiet.mkdir(parents=True)
        (quiet / "notification.jupyterlab-settings").write_text('{"fetchNews": "false"}')
        self.process = start(root, "lab", self.module, *([f"--gateway-url={gateway}"] if gateway else []), env=env)
        answers(root, self.process, "lab", self.port)

    def new(self, name: str, cells: Iterable[str], kernel: str = "elastic-python", display: str = "Python (elastic GPU)") -> str:
        """The address of a new notebook."""
        spec = {"display_name": display, "language": "python", "name": kernel}
        sheet = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(cell) for cell in cells], metadata={"kernelspec": spec})
        nbformat.write(sheet, self.notebooks / f"{name}.ipynb")
        return f"http://127.0.0.1:{self.port}/{self.page.format(name=name)}?token={TOKEN}"

    def end(self) -> None:
        self.process.terminate()
        try:
            self.process.wait(SECONDS / 4)
        except subprocess.TimeoutExpired:  # Jupyter's own exit may wait for ever for a worker thread of a request that was cut off
            self.process.kill()
            self.process.wait()


class JupyterNotebook(JupyterLab):
    """Notebook 7, whose pages show one notebook each."""

    module, page = "notebook", "notebooks/{name}.ipynb"


def start(root: Path, name: str, module: str, *args: str, env: Mapping[str, str] | None = None) -> subprocess.Popen[bytes]:
    """A server with ``NAME_config.py`` and ``NAME.log`` in ``root``."""
    env = {**os.environ, "JUPYTERLAB_SETTINGS_DIR": str(root / "settings"), **(env or {})}
    with (root / f"{name}.log").open("ab") as log:
        command = [sys.executable, "-P", "-m", module, f"--config={root / f'{name}_config.py'}", *args]
        return subprocess.Popen(command, stdout=log, stderr=log, env=env)


def answers(root: Path, process: subprocess.Popen[bytes], name: str, port: int) -> None:
    """Returns when the server does."""
    for _ in range(SECONDS * 10):
        assert process.poll() is None, (root / f"{name}.log").read_text()
        try:
            urllib.request.urlopen(f"http://127.0.0.1:{port}/api").close()
            return
        except OSError:
            time.sleep(0.1)
    raise AssertionError(f"{name} doesn't answer")
