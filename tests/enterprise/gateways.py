"""A real Enterprise Gateway whose kernels a real elastic gateway runs."""

from __future__ import annotations

import json
import os
import subprocess
import tempfile
from pathlib import Path

from tests.enterprise.venv import enterprise_python, ours_alone
from tests.integration.machine import until
from tests.integration.serving import Gateway, Kernel

CLASS = "gateway.enterprise.proxy.process_proxy.ElasticProcessProxy"


class Enterprise(Gateway):
    """``elastic``: the gateway that its kernelspecs name. It authenticates by the token of a front end that may name its users."""

    def __init__(self, elastic: Gateway, *settings: str) -> None:  # its kernelspec ``elastic`` is the elastic gateway's
        self.python, self.elastic = enterprise_python(), elastic
        self.root = Path(tempfile.mkdtemp(prefix="enterprise", dir=elastic.machine.root))
        self.packages = ours_alone(self.root)
        self.token_file = self.root / "token"
        self.token_file.write_text(f"{elastic.token}\n")
        self.kernelspec("elastic")
        super().__init__(elastic.machine, *settings, token="")
        self.log_file = self.root / "log"

    def kernelspec(self, name: str, **config: str) -> None:
        proxy = {
            "class_name": CLASS,
            "config": {"kernel_name": "elastic", "url": self.elastic.url, "token_file": str(self.token_file), **config},
        }
        spec = {"display_name": name, "language": "python", "argv": ["none"], "metadata": {"process_proxy": proxy}}
        folder = self.root / "share/kernels" / name
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "kernel.json").write_text(json.dumps(spec))

    def kernel(self, name: str = "elastic", **env: str) -> Kernel:
        return super().kernel(name, **{"KERNEL_USERNAME": "ada", **env})  # it starts none for root

    def start(self) -> subprocess.Popen[bytes]:
        self.log_file = self.root / "log"
        plain = {name: value for name, value in os.environ.items() if not name.startswith(("JUPYTER", "EG_", "KG_", "KERNEL_"))}
        own = {f"JUPYTER_{name}_DIR": str(self._folder(name.lower())) for name in ("CONFIG", "DATA", "RUNTIME")}
        env = {**plain, **own, "JUPYTER_PATH": str(self.root / "share"), "PYTHONPATH": str(self.packages), "SECRET_OF_EG": "hush"}
        argv = [str(self.python), "-m", "enterprise_gateway", "--ip=127.0.0.1", f"--port={self.port}", "--port_retries=0"]
        with self.log_file.open("ab") as log:
            self.process = subprocess.Popen(
                [*argv, *(f"--{setting}" for setting in self.settings)], env=env, cwd=self.root, stdin=subprocess.DEVNULL, stdout=log,
                stderr=log,
            )  # fmt: skip
        until(lambda: self.process.poll() is not None or self.answers())
        return self.process

    def _folder(self, name: str) -> Path:
        folder = self.root / name
        folder.mkdir(mode=0o700, exist_ok=True)
        return folder
