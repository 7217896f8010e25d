"""A real Prometheus that scrapes a gateway every second, and what it is asked."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest
import requests

from tests.integration.machine import PATIENCE, until
from tests.integration.serving import Gateway, free_port

FILES = Path(__file__).parents[2] / "charts/elastic-gateway/files"
ALERTS, DASHBOARD = FILES / "alerts.yaml", FILES / "dashboard.json"


def binary(name: str) -> str:
    """Its path; skips the test where there is none."""
    path = shutil.which(name, path=os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", "")]))
    if path is None:
        pytest.skip(f"no {name} on this machine; `apt-get install prometheus` brings it")
    return path


class Prometheus:
    def __init__(self, url: str) -> None:
        self.url = url

    def get(self, path: str, **params: str) -> dict[str, Any]:
        answer = requests.get(f"{self.url}/api/v1/{path}", params=params, timeout=PATIENCE).json()
        assert answer["status"] == "success", (path, params, answer)
        return answer["data"]

    def ask(self, expression: str) -> list[dict[str, Any]]:
        """The series of an instant query."""
        return self.get("query", query=expression)["result"]

    def value(self, expression: str) -> float:
        [series] = self.ask(expression)
        return float(series["value"][1])


@contextmanager
def scraping(gateway: Gateway, folder: Path) -> Iterator[Prometheus]:
    """With the chart's alert rules, and the gateway's token in a file as the chart has it."""
    program, port = binary("prometheus"), free_port()
    (folder / "token").write_text(gateway.token)
    job = {
        "job_name": "elastic", "scrape_interval": "1s", "scrape_timeout": "1s", "metrics_path": "/metrics",
        "authorization": {"type": "Bearer", "credentials_file": str(folder / "token")},
        "static_configs": [{"targets": [f"127.0.0.1:{gateway.port}"]}],
    }  # fmt: skip
    config = {"global": {"evaluation_interval": "1s"}, "rule_files": [str(ALERTS)], "scrape_configs": [job]}
    (folder / "prometheus.yml").write_text(json.dumps(config))
    places = f"--storage.tsdb.path={folder / 'data'}", f"--web.listen-address=127.0.0.1:{port}"
    argv = [program, f"--config.file={folder / 'prometheus.yml'}", *places]
    with (folder / "prometheus.log").open("wb") as log:
        process = subprocess.Popen(argv, stdout=log, stderr=log, cwd=folder)
    try:
        url = f"http://127.0.0.1:{port}"
        until(lambda: process.poll() is not None or ready(url))
        assert process.poll() is None, (folder / "prometheus.log").read_text()[-2000:]
        yield Prometheus(url)
    finally:
        process.terminate()
        process.wait(PATIENCE)


def ready(url: str) -> bool:
    with suppress(requests.ConnectionError):
        return requests.get(f"{url}/-/ready", timeout=PATIENCE).ok
    return False
