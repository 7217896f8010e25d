"""A real Prometheus at a real gateway: each panel of the dashboard and each alert rule has something to say."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.integration.machine import Machine, until
from tests.integration.serving import GPU, Gateway, end
from tests.prometheus.server import DASHBOARD, Prometheus, scraping

ON_KUBERNETES_ALONE = ("elastic_warm_",)  # a gateway of one machine keeps no kernels warm
VARIABLES = {"$namespace": ".*", "$__rate_interval": "10s", "$__range": "1m"}


def panels() -> Iterator[tuple[str, str]]:
    """``(title, expression)`` of each query, as Grafana would send it."""
    for panel in json.loads(DASHBOARD.read_text())["panels"]:
        for target in panel.get("targets", ()):
            expression = target["expr"].replace("[1h]", "[10s]")  # so long nobody wants to wait here
            for name, value in VARIABLES.items():
                expression = expression.replace(name, value)
            yield panel["title"], expression


@pytest.fixture(scope="module")
def watched(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Gateway, Prometheus]]:
    """Two users at one GPU: cells that run, wait, take the GPU back, and ask for what there isn't; a kernel that doesn't start."""
    import tempfile

    machine = Machine(Path(tempfile.mkdtemp(prefix="eg", dir="/tmp")))
    gateway: Gateway | None = None
    try:
        machine.kernelspec("dies", {"display_name": "dies", "language": "python", "argv": ["python", "-c", "raise SystemExit(1)"]})
        gateway = Gateway(machine, "ElasticGateway.simulated_gpus=1", "SimulatedGpu.park_seconds=0.05", "Leases.min_hold=0")
        with scraping(gateway, tmp_path_factory.mktemp("prometheus")) as prometheus:
            until(lambda: prometheus.ask("elastic_generation"))
            with gateway.kernel(KERNEL_USERNAME="ana") as ana, gateway.kernel(KERNEL_USERNAME="bo") as bo:
                browsers = [ana.open(), bo.open()]
                gateway.kernel("dies")
                for _ in range(3):
                    for browser in browsers:
                        assert browser.run(GPU + "import time; time.sleep(1.2)").status == "ok"
                with gateway.kernel(KERNEL_GPUS="3") as greedy:
                    assert greedy.open().run(GPU + "1").status == "error"
                mark = prometheus.value("timestamp(elastic_generation)")
                until(lambda: prometheus.value("timestamp(elastic_generation)") > mark + 1)
                yield gateway, prometheus
    finally:
        if gateway is not None and gateway.process.poll() is None:
            end(gateway)
        machine.clean()


def test_prometheus_reads_every_metric_and_finds_it_sound(watched: tuple[Gateway, Prometheus]):
    _, prometheus = watched
    [target] = prometheus.get("targets")["activeTargets"]
    assert (target["health"], target["lastError"]) == ("up", "")


@pytest.mark.parametrize(("title", "expression"), list(panels()))
def test_each_query_of_the_dashboard_returns_data(watched: tuple[Gateway, Prometheus], title: str, expression: str):
    _, prometheus = watched
    series = prometheus.ask(expression)
    if not any(name in expression for name in ON_KUBERNETES_ALONE):
        assert series, f"{title}: nothing"


def test_each_alert_rule_can_be_evaluated_and_none_fires_while_all_is_well(watched: tuple[Gateway, Prometheus]):
    _, prometheus = watched

    def rules() -> list[dict[str, Any]]:
        found = [rule for group in prometheus.get("rules")["groups"] for rule in group["rules"]]
        return found if all(rule["health"] != "unknown" for rule in found) else []

    found = until(rules)
    assert {(rule["health"], rule.get("lastError", "")) for rule in found} == {("ok", "")}
    assert [rule["name"] for rule in found if rule["state"] == "firing"] == []


def test_what_prometheus_has_is_what_usage_says(watched: tuple[Gateway, Prometheus]):
    gateway, prometheus = watched
    for user in ("ana", "bo"):
        row = next(each for each in gateway.call("GET", "/api/gpu/usage").json()["rows"] if each["user"] == user)
        assert prometheus.value(f'elastic_gpu_seconds_executed_total{{user="{user}"}}') == pytest.approx(
            row["gpu_seconds_executed"], abs=0.01
        )


def test_the_dashboard_shows_every_metric_there_is():
    from gateway.server.metrics import DOCUMENTED

    text = DASHBOARD.read_text()
    assert [name for name in DOCUMENTED if name not in text] == []
