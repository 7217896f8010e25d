"""GPU time of a real gateway with real kernels: what `usage`, Prometheus and the kernels say is one thing, over kills too."""

from __future__ import annotations

import random
import re
import signal
import time

from tests.integration.machine import Machine, until
from tests.integration.serving import GPU, Gateway, end

NAP = GPU + "import time; t = time.time(); time.sleep({}); print(time.time() - t)"


def metric(gateway: Gateway, kind: str) -> dict[str, float]:
    text = gateway.call("GET", "/metrics").text
    found = re.findall(rf'^elastic_gpu_seconds_{kind}_total{{.*user="(\w+)"}} (\S+)$', text, re.MULTILINE)
    return {user: float(seconds) for user, seconds in found}


def usage(gateway: Gateway, by: str = "user") -> list[dict]:
    return gateway.call("GET", f"/api/gpu/usage?by={by}").json()["rows"]


def test_usage_prometheus_and_the_kernels_agree_over_kills_of_the_gateway(own_machine: Machine):
    chance = random.Random(3)
    gateway = Gateway(
        own_machine, "ElasticGateway.simulated_gpus=2", "SimulatedGpu.park_seconds=0.1", "Leases.idle_timeout=1",
        "Usage.prices={'simulated': 3600}",
    )  # fmt: skip
    try:
        kernels = {user: gateway.kernel(KERNEL_USERNAME=user) for user in ("ana", "bo")}
        browsers = {user: kernel.open() for user, kernel in kernels.items()}
        ran = dict.fromkeys(kernels, 0.0)
        for turn in range(8):
            for user in kernels:
                ran[user] += float(browsers[user].run(NAP.format(chance.choice([0.1, 0.5, 1.5]))).out)
            if turn in (2, 5):
                time.sleep(chance.choice([0.0, 1.5]))  # with a lease or without
                gateway.stop(signal.SIGKILL)
                gateway.start()
                browsers = {user: kernel.open() for user, kernel in kernels.items()}
        until(lambda: not any(lease["gpus"] for lease in gateway.gpu()["leases"]))
        rows = {row["user"]: row for row in usage(gateway)}
        for user, row in rows.items():
            assert abs(row["gpu_seconds_executed"] - ran[user]) < 1
            assert row["cells"] == 8
            assert row["gpu_seconds_held"] >= row["gpu_seconds_executed"]
            assert abs(row["cost"] - row["gpu_seconds_held"]) < 0.01
            for kind in ("held", "executed"):
                assert abs(metric(gateway, kind)[user] - row[f"gpu_seconds_{kind}"]) < 0.01
        cells = usage(gateway, "cell")
        assert len(cells) == 16
        assert abs(sum(cell["seconds"] for cell in cells) - sum(ran.values())) < 1.5
        assert metric(gateway, "saved")["ana"] > 0
    finally:
        end(gateway)
