"""Each alert rule of the chart fires when it should and not before, by Prometheus's own ``promtool``, in its virtual time."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.prometheus.server import ALERTS, binary

UP = {"elastic_generation": "7x120"}
WAITS = 'elastic_wait_seconds_bucket{{flavor="a100",le="{}"}}'
STARTS = 'elastic_kernel_starts_total{{kernelspec="torch",result="{}"}}'


def waits(slow: int) -> dict[str, str]:
    """A hundred waits a minute, so many of them longer than ten minutes."""
    counts = {"10.0": 100 - slow, "600.0": 100 - slow, "1800.0": 100, "+Inf": 100}
    return {WAITS.format(bound): f"0+{count}x120" for bound, count in counts.items()}


CASES: dict[str, tuple[dict[str, str], dict[str, str], str]] = {  # series with which it fires, with which not, and when
    "ElasticGatewayDown": ({"elastic_generation": "7x10 _x60"}, {"elastic_generation": "7x10 _x3 7x60"}, "30m"),
    "ElasticGatewayRestarts": ({"elastic_generation": "7+1x30"}, {"elastic_generation": "7x20 8x90"}, "20m"),
    "ElasticGpuWaitsAreLong": (waits(10), waits(2), "60m"),
    "ElasticGpusFreeThoughWaitedFor": (
        {"elastic_queue_length": "2x60", 'elastic_gpus{held="no"}': "1x60"},
        {"elastic_queue_length": "2x10 0x2 2x60", 'elastic_gpus{held="no"}': "1x120"}, "20m",
    ),
    "ElasticKernelsDontStart": (
        {STARTS.format("failed"): "0+2x60", STARTS.format("ok"): "0+2x60"},
        {STARTS.format("failed"): "0+2x60", STARTS.format("ok"): "0+20x60"}, "30m",
    ),
    "ElasticKernelsDontAnswer": ({'elastic_kernels{state="unknown"}': "3x60"}, {'elastic_kernels{state="unknown"}': "3x5 0x60"}, "30m"),
    "ElasticParksRefused": (
        {'elastic_parks_refused_total{reason="does_not_fit"}': "0+1x90"},
        {'elastic_parks_refused_total{reason="executing"}': "0+9x90"}, "60m",
    ),
    "ElasticPolicyRefused": ({"elastic_policy_refused": "1x30"}, {"elastic_policy_refused": "0x30"}, "10m"),
}  # fmt: skip


def alerts() -> dict[str, dict[str, Any]]:
    return {rule["alert"]: rule for group in yaml.safe_load(ALERTS.read_text())["groups"] for rule in group["rules"]}


def firing(folder: Path, name: str, series: dict[str, str], at: str, expected: list[dict[str, Any]]) -> subprocess.CompletedProcess[str]:
    """What ``promtool test rules`` says of it."""
    story = {
        "interval": "1m",
        "input_series": [{"series": each, "values": values} for each, values in series.items()],
        "alert_rule_test": [{"eval_time": at, "alertname": name, "exp_alerts": expected}],
    }
    file = folder / "test.yaml"
    file.write_text(json.dumps({"rule_files": [str(ALERTS)], "evaluation_interval": "1m", "tests": [story]}))
    return subprocess.run([binary("promtool"), "test", "rules", str(file)], capture_output=True, text=True, check=False)


def test_the_rules_are_well_formed_and_each_has_a_case_here():
    done = subprocess.run([binary("promtool"), "check", "rules", str(ALERTS)], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert set(alerts()) == set(CASES)


@pytest.mark.parametrize("name", CASES)
def test_an_alert_fires_when_it_should(tmp_path: Path, name: str):
    series, _, at = CASES[name]
    done = firing(tmp_path, name, series if name == "ElasticGatewayDown" else UP | series, at, [])
    assert done.returncode == 1, "nothing fired"
    assert f'alertname="{name}"' in (done.stdout + done.stderr).replace("\\", "")


@pytest.mark.parametrize("name", CASES)
def test_an_alert_does_not_fire_where_all_is_well(tmp_path: Path, name: str):
    _, series, at = CASES[name]
    done = firing(tmp_path, name, UP | series, at, [])
    assert done.returncode == 0, done.stdout + done.stderr


def test_each_alert_says_how_bad_it_is_and_what_to_do_next():
    for name, rule in alerts().items():
        assert rule["labels"]["severity"] in ("info", "warning", "critical"), name
        assert len(rule["annotations"]["summary"]) > 20 and len(rule["annotations"]["description"]) > 40, name
