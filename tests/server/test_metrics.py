from prometheus_client import CollectorRegistry, generate_latest

from gateway.backends.base import Warm
from gateway.leases.tally import Tally
from gateway.server.metrics import DOCUMENTED, ElasticMetrics

SNAPSHOT = {
    "gpus": [{"uuid": "a"}, {"uuid": "b"}],
    "leases": [
        {"phase": "HOLDING", "gpus": ["a"], "executing": True, "parked_bytes": 0},
        {"phase": "PARKED", "gpus": [], "executing": False, "parked_bytes": 7},
    ],
    "queue": [{"count": 2}],
    "generation": 4,
}
USAGE = {
    ("held", "ana", "a100", "torch"): 40.0,
    ("executed", "ana", "a100", "torch"): 30.0,
    ("reserved", "ana", "a100", "torch"): 100.0,
}


def scrape(kernels, snapshot):
    tally = Tally()
    for seconds in (0.2, 5, 99999):
        tally.waits["a100"].add(seconds)
    tally.attaches["a100"].add(0.5)
    tally.parks["reclaimed"] += 2
    tally.refused["does_not_fit"] += 1
    tally.denied["queue_timeout"] += 1
    registry = CollectorRegistry()
    ElasticMetrics(
        lambda: kernels,
        lambda: snapshot,
        lambda: {"small": Warm(2, 5, 1)},
        lambda: USAGE,
        tally,
        {("torch", "ok"): 3, ("torch", "failed"): 1},
        lambda: [{"state": state, "engine": "torch", "workers": count} for state, count in (("running", 4), ("running", 2), ("ended", 9))],
        lambda: True,
    ).register(registry)
    return generate_latest(registry).decode()


def test_each_number_comes_from_one_snapshot():
    text = scrape([{"execution_state": "busy", "connections": 2}, {"execution_state": "idle", "connections": 0}], SNAPSHOT)
    for line in (
        'elastic_kernels{state="busy"} 1.0',
        'elastic_kernels{state="dead"} 0.0',
        "elastic_kernel_connections 2.0",
        'elastic_gpus{held="yes"} 1.0',
        'elastic_gpus{held="no"} 1.0',
        'elastic_leases{phase="PARKED"} 1.0',
        'elastic_leases{phase="WAITING"} 0.0',
        "elastic_leases_executing 1.0",
        "elastic_gpus_waited_for 2.0",
        "elastic_queue_length 1.0",
        "elastic_parked_bytes 7.0",
        'elastic_warm_kernels{profile="small"} 2.0',
        'elastic_warm_claims{profile="small",result="hit"} 5.0',
        'elastic_warm_claims{profile="small",result="miss"} 1.0',
        'elastic_gpu_seconds_held_total{flavor="a100",kernelspec="torch",user="ana"} 40.0',
        'elastic_gpu_seconds_executed_total{flavor="a100",kernelspec="torch",user="ana"} 30.0',
        'elastic_gpu_seconds_saved_total{flavor="a100",kernelspec="torch",user="ana"} 60.0',
        'elastic_wait_seconds_bucket{flavor="a100",le="0.1"} 0.0',
        'elastic_wait_seconds_bucket{flavor="a100",le="10.0"} 2.0',
        'elastic_wait_seconds_bucket{flavor="a100",le="+Inf"} 3.0',
        'elastic_attach_seconds_sum{flavor="a100"} 0.5',
        'elastic_parks_total{why="reclaimed"} 2.0',
        'elastic_parks_refused_total{reason="does_not_fit"} 1.0',
        'elastic_waits_denied_total{reason="queue_timeout"} 1.0',
        'elastic_kernel_starts_total{kernelspec="torch",result="failed"} 1.0',
        'elastic_bursts{state="running"} 2.0',
        'elastic_bursts{state="waiting"} 0.0',
        'elastic_burst_ranks{engine="torch"} 6.0',
        "elastic_policy_refused 1.0",
        "elastic_generation 4.0",
    ):
        assert line in text


def test_every_metric_is_documented():
    text = scrape([], {"gpus": [], "leases": [], "queue": [], "generation": 1})
    told = {line.split()[2] for line in text.splitlines() if line.startswith("# TYPE")}
    assert {name.removesuffix("_total") for name in told} == set(DOCUMENTED)


def test_what_is_registered_can_be_taken_back():
    registry = CollectorRegistry()
    for _ in range(2):
        ElasticMetrics(list, lambda: SNAPSHOT, dict, dict, Tally(), {}, list, bool).register(registry)()
