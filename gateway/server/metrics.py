"""What ``/metrics`` says of kernels and GPUs: read from one snapshot as it is scraped.

It must never count by itself: a number that somebody else holds can't disagree with them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from prometheus_client import REGISTRY, CollectorRegistry
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.registry import Collector

from ..backends.base import Warm
from ..burst.record import RUNNING, WAITING
from ..leases.meter import EXECUTED, HELD, RESERVED
from ..leases.tally import Histogram, Tally
from ..protocol.model import Phase

BURST_STATES = (WAITING, RUNNING)
STATES = ("starting", "idle", "busy", "restarting", "unknown", "dead")

DOCUMENTED = {
    "elastic_kernels": "Kernels by execution state.",
    "elastic_kernel_connections": "Websockets of browsers and other clients.",
    "elastic_gpus": "GPUs that this gateway leases, by whether a kernel holds them.",
    "elastic_leases": "Leases by phase.",
    "elastic_leases_executing": "Leases whose kernel runs something that may use its GPU.",
    "elastic_gpus_waited_for": "GPUs that the kernels in the queue wait for.",
    "elastic_queue_length": "Kernels that wait for a GPU.",
    "elastic_parked_bytes": "Bytes of CUDA state that lie in host memory.",
    "elastic_warm_kernels": "Started kernels that wait for somebody, by profile.",
    "elastic_warm_claims": "Starts of kernels of profiles that have warm ones, by profile and by whether one was there (hit, miss).",
    "elastic_wait_seconds": "How long cells waited until a GPU was granted, since the gateway started, by flavor.",
    "elastic_attach_seconds": "How long a granted GPU took until it was usable, likewise.",
    "elastic_parks": "Kernels told to give their GPU up since the gateway started, by why (idle, reclaimed, asked, max_hold, drained).",
    "elastic_parks_refused": "Of these, those that kept it, by their reason.",
    "elastic_waits_denied": "Waits for a GPU that ended with an error since the gateway started, by its reason.",
    "elastic_kernel_starts": "Starts of kernels since the gateway started, by kernelspec and result (ok, failed).",
    "elastic_gpu_seconds_held": "GPU-seconds leased since the usage file was begun, by user, flavor and kernelspec.",
    "elastic_gpu_seconds_executed": "GPU-seconds in which something ran on leased GPUs, likewise.",
    "elastic_gpu_seconds_saved": "GPU-seconds for which kernels had no lease and would have had with GPUs for life, likewise.",
    "elastic_bursts": "Cells on many workers, by state (waiting, running).",
    "elastic_burst_ranks": "Workers that such cells have now, by engine; one of several processes counts as so many.",
    "elastic_policy_refused": "1 while the policy file as it is doesn't count, or a change of the policy can't be kept; else 0.",
    "elastic_generation": "This broker's generation; it grows with each restart.",
}


class ElasticMetrics(Collector):
    """Registered while a gateway serves. ``kernels``, ``snapshot``, ``warm``, ``usage``, ``bursts`` and ``refused`` are called once a
    scrape; ``tally`` is the lease book's, ``starts`` counts by kernelspec and result."""

    def __init__(
        self, kernels: Callable[[], list[dict[str, Any]]], snapshot: Callable[[], dict[str, Any]],
        warm: Callable[[], Mapping[str, Warm]], usage: Callable[[], Mapping[tuple[str, str, str, str], float]],
        tally: Tally, starts: Mapping[tuple[str, str], int], bursts: Callable[[], list[dict[str, Any]]], refused: Callable[[], bool],
    ) -> None:  # fmt: skip
        self._kernels, self._snapshot, self._warm, self._usage = kernels, snapshot, warm, usage
        self._tally, self._starts = tally, starts
        self._bursts, self._refused = bursts, refused

    def register(self, registry: CollectorRegistry = REGISTRY) -> Callable[[], None]:
        """Returns what unregisters it."""
        registry.register(self)
        return lambda: registry.unregister(self)

    def describe(self) -> Iterator[Metric]:
        """Names only: nothing is asked before the first scrape."""
        yield from (GaugeMetricFamily(name, text) for name, text in DOCUMENTED.items())

    def collect(self) -> Iterator[Metric]:
        kernels, gpu = self._kernels(), self._snapshot()
        leases, queue = gpu["leases"], gpu["queue"]
        states = Counter(kernel["execution_state"] for kernel in kernels)
        yield _by("elastic_kernels", "state", {**dict.fromkeys(STATES, 0), **states})
        yield _one("elastic_kernel_connections", sum(kernel["connections"] for kernel in kernels))
        held = {uuid for lease in leases for uuid in lease["gpus"]}
        yield _by("elastic_gpus", "held", {"yes": len(held), "no": sum(each["uuid"] not in held for each in gpu["gpus"])})
        phases = Counter(str(lease["phase"]) for lease in leases)
        yield _by("elastic_leases", "phase", {**dict.fromkeys(map(str, Phase), 0), **phases})
        yield _one("elastic_leases_executing", sum(bool(lease["executing"]) for lease in leases))
        yield _one("elastic_gpus_waited_for", sum(each["count"] for each in queue))
        yield _one("elastic_queue_length", len(queue))
        yield _one("elastic_parked_bytes", sum(lease["parked_bytes"] for lease in leases))
        warm = self._warm()
        yield _by("elastic_warm_kernels", "profile", {profile: each.ready for profile, each in warm.items()})
        claims = GaugeMetricFamily("elastic_warm_claims", DOCUMENTED["elastic_warm_claims"], labels=["profile", "result"])
        for profile, each in warm.items():
            claims.add_metric([profile, "hit"], each.hits)
            claims.add_metric([profile, "miss"], each.misses)
        yield claims
        yield from _seconds(self._usage())
        yield _times("elastic_wait_seconds", self._tally.waits)
        yield _times("elastic_attach_seconds", self._tally.attaches)
        yield _counts("elastic_parks", ["why"], {(why,): count for why, count in self._tally.parks.items()})
        yield _counts("elastic_parks_refused", ["reason"], {(why,): count for why, count in self._tally.refused.items()})
        yield _counts("elastic_waits_denied", ["reason"], {(why,): count for why, count in self._tally.denied.items()})
        yield _counts("elastic_kernel_starts", ["kernelspec", "result"], self._starts)
        bursts = self._bursts()
        states = Counter(each["state"] for each in bursts)
        yield _by("elastic_bursts", "state", {state: states[state] for state in BURST_STATES})
        ranks: Counter[str] = Counter()
        for each in bursts:
            ranks[each["engine"]] += each["workers"] * each.get("procs", 1) if each["state"] == RUNNING else 0
        yield _by("elastic_burst_ranks", "engine", {"none": 0, **ranks})
        yield _one("elastic_policy_refused", int(self._refused()))
        yield _one("elastic_generation", gpu["generation"])


def _one(name: str, value: float) -> GaugeMetricFamily:
    return GaugeMetricFamily(name, DOCUMENTED[name], value=value)


def _by(name: str, label: str, values: dict[str, int]) -> GaugeMetricFamily:
    family = GaugeMetricFamily(name, DOCUMENTED[name], labels=[label])
    for value, count in values.items():
        family.add_metric([value], count)
    return family


def _seconds(usage: Mapping[tuple[str, str, str, str], float]) -> Iterator[CounterMetricFamily]:
    saved = Counter({key[1:]: seconds for key, seconds in usage.items() if key[0] == RESERVED})
    saved.subtract({key[1:]: seconds for key, seconds in usage.items() if key[0] == HELD})
    by_kind = {kind: {key[1:]: seconds for key, seconds in usage.items() if key[0] == kind} for kind in (HELD, EXECUTED)}
    for kind, values in {**by_kind, "saved": saved}.items():
        name = f"elastic_gpu_seconds_{kind}"
        family = CounterMetricFamily(name, DOCUMENTED[name], labels=["user", "flavor", "kernelspec"])
        for labels, seconds in values.items():
            family.add_metric(labels, max(0.0, seconds))
        yield family


def _times(name: str, by_flavor: Mapping[str, Histogram]) -> HistogramMetricFamily:
    family = HistogramMetricFamily(name, DOCUMENTED[name], labels=["flavor"])
    for flavor, histogram in by_flavor.items():
        family.add_metric([flavor], histogram.buckets(), histogram.total)
    return family


def _counts(name: str, labels: list[str], values: Mapping[tuple[str, ...], int]) -> CounterMetricFamily:
    family = CounterMetricFamily(name, DOCUMENTED[name], labels=labels)
    for key, count in values.items():
        family.add_metric(key, count)
    return family
