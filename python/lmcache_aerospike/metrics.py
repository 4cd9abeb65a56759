# SPDX-License-Identifier: Apache-2.0
"""Prometheus metrics of this process, read from the engine's own counters at each scrape.

Nothing is counted in Python while objects move, and nothing here is needed: without
``prometheus_client`` every function does nothing, but for start(), which says so.
"""

from __future__ import annotations

import contextlib
import importlib
import logging
import os
import sys
import threading
from collections.abc import Iterable, Iterator, Mapping
from types import ModuleType
from typing import TYPE_CHECKING, Any, Final

from lmcache_aerospike import _native
from lmcache_aerospike._metric_names import METRICS, Metric

if TYPE_CHECKING:
    from wsgiref.simple_server import WSGIServer

    from prometheus_client import CollectorRegistry
    from prometheus_client.metrics_core import (
        CounterMetricFamily,
        GaugeMetricFamily,
        HistogramMetricFamily,
    )

    Family = CounterMetricFamily | GaugeMetricFamily | HistogramMetricFamily

__all__ = [
    "METRICS",
    "AerospikeCollector",
    "Exporter",
    "Metric",
    "attach",
    "observe_op",
    "observe_serde_failure",
    "register",
    "start",
    "totals",
]

logger = logging.getLogger("lmcache_aerospike")

DEFAULT_PORT: Final = 9464

_RESULT_OF_CODE: Final = {
    "timeout": "timeout",
    "too_big": "record_too_big",
    "overloaded": "busy",
}
RESULTS: Final = ("hit", "miss", "ok", "timeout", "record_too_big", "busy", "error")
_FOUND: Final = ("get", "exists")  # what finds is a hit; what writes is ok

# The histograms of the engine have powers of two as bounds; these of them are shown. Microseconds,
# 64 us to 16.8 s; segments of an object; bytes of a segment, 1 KiB to 16 MiB.
_LATENCY_POWERS: Final = range(6, 25)
_COUNT_POWERS: Final = range(14)
_BYTES_POWERS: Final = range(10, 25)


_Latency = dict[str, tuple[list[int], int]]
"""By operation: counts by powers of two of microseconds, and their sum."""


class _Observed:
    """What programs report by observe_op() and observe_serde_failure()."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self.results: dict[tuple[str, str], int] = {}
        self.latency: _Latency = {}
        self.serde_failures: dict[str, int] = {}

    def add(self, op: str, result: str, seconds: float | None) -> None:
        with self._lock:
            self.results[op, result] = self.results.get((op, result), 0) + 1
            if seconds is None:
                return
            microseconds = max(0, round(seconds * 1e6))
            counts, total = self.latency.get(op, ([0] * 40, 0))
            power = (microseconds - 1).bit_length() if microseconds > 1 else 0
            counts[min(power, 39)] += 1
            self.latency[op] = counts, total + microseconds

    def add_serde_failure(self, direction: str) -> None:
        with self._lock:
            self.serde_failures[direction] = self.serde_failures.get(direction, 0) + 1

    def merge_into(self, sums: _native.StoreTotals) -> tuple[dict[tuple[str, str], int], _Latency]:
        """Adds the serde failures to `sums`; returns copies of the rest."""
        with self._lock:
            for direction, count in self.serde_failures.items():
                sums["serde_failures"][direction] += count
            return dict(self.results), {o: (list(c), s) for o, (c, s) in self.latency.items()}


_observed = _Observed()


def observe_op(op: str, result: str, seconds: float | None = None) -> None:
    """Counts one operation that the engine does not see, of a program of your own.

    The connectors, the plugin and the library count theirs in the engine: do not call this for
    them. Never raises. Does nothing without ``prometheus_client``.

    Args:
        op: The label `op`.
        result: The label `result`; anything but "hit", "miss", "ok", "timeout", "record_too_big"
            and "busy" counts as "error".
        seconds: How long it took.
    """
    with contextlib.suppress(Exception):
        if _client() is not None:
            _observed.add(str(op), result if result in RESULTS else "error", seconds)


def observe_serde_failure(direction: str) -> None:
    """Counts one object that a serde written in Python could not transform. Never raises.

    Args:
        direction: "serialize" or "deserialize".
    """
    with contextlib.suppress(Exception):
        _observed.add_serde_failure(direction)


def totals() -> _native.StoreTotals:
    """The engine's counters of all stores that this process has and had, as one."""
    return _native.totals()


def _client() -> ModuleType | None:
    """The module prometheus_client, or None if it is not installed."""
    try:
        return importlib.import_module("prometheus_client")
    except ImportError:
        return None


Sample = tuple[tuple[str, ...], float]
Bucketed = tuple[tuple[str, ...], list[tuple[str, float]], float]


class AerospikeCollector:
    """Makes the metrics of METRICS from the engine's counters, whenever a registry asks.

    A collector of prometheus_client. It needs none of its shared files: it works the same with
    PROMETHEUS_MULTIPROC_DIR set, in the process whose connectors it tells about.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._highest: dict[tuple[str, tuple[str, ...]], float] = {}

    def describe(self) -> Iterable[Family]:
        """The names, so that a registry can refuse a second collector."""
        return [self._family(metric) for metric in METRICS]

    def collect(self) -> Iterator[Family]:
        """Reads the counters. Never raises: a scrape must not lose the metrics of others."""
        try:
            families = self._families()
        except Exception:
            logger.warning("metrics: the counters could not be read", exc_info=True)
            return
        yield from families

    def _families(self) -> list[Family]:
        sums = totals()
        results, latency = _observed.merge_into(sums)
        simple = _simple_samples(sums, results)
        bucketed = _bucketed_samples(sums, latency)
        families = []
        for metric in METRICS:
            # Checked by kind: the three classes of families have no common add_metric().
            family: Any = self._family(metric)
            if metric.kind == "histogram":
                for labels, buckets, total in bucketed[metric.name]:
                    family.add_metric(labels, buckets, total)
            else:
                for labels, value in simple[metric.name]:
                    family.add_metric(labels, self._monotonic(metric, labels, value))
            families.append(family)
        return families

    def reset(self) -> None:
        """For a forked child, whose stores count from 0."""
        self._lock = threading.Lock()
        self._highest = {}

    def _monotonic(self, metric: Metric, labels: tuple[str, ...], value: float) -> float:
        """No counter falls: a hit that turns out to be undecodable is taken back by the engine.

        Nodes that return count from 0, which is a reset and shall look like one.
        """
        if metric.kind != "counter" or "node" in metric.labels:
            return value
        with self._lock:
            value = max(value, self._highest.get((metric.name, labels), 0))
            self._highest[metric.name, labels] = value
        return value

    @staticmethod
    def _family(metric: Metric) -> Family:
        core = importlib.import_module("prometheus_client.core")
        kinds: dict[str, type[Family]] = {
            "counter": core.CounterMetricFamily,
            "gauge": core.GaugeMetricFamily,
            "histogram": core.HistogramMetricFamily,
        }
        name = metric.name.removesuffix("_total")
        return kinds[metric.kind](name, metric.help, labels=metric.labels)


def _op_results(sums: _native.StoreTotals, observed: Mapping[tuple[str, str], int]) -> list[Sample]:
    counts: dict[tuple[str, str], int] = {}
    for op, stats in sums["operations"].items():
        counts[op, "hit" if op in _FOUND else "ok"] = stats["hits"]
        if op != "put":
            counts[op, "miss"] = stats["misses"]
        for result in ("timeout", "record_too_big", "busy", "error"):
            counts[op, result] = 0
        for code, count in stats["errors_by_code"].items():
            counts[op, _RESULT_OF_CODE.get(code, "error")] += count
    for key, count in observed.items():
        counts[key] = counts.get(key, 0) + count
    return list(counts.items())


def _simple_samples(
    sums: _native.StoreTotals, observed: Mapping[tuple[str, str], int]
) -> dict[str, list[Sample]]:
    operations = sums["operations"]
    moved = {op: stats for op, stats in operations.items() if op in {"get", "put"}}
    nodes = [((node["name"], node["address"]), node) for node in sums["nodes"]]
    return {
        "aerospike_op_total": _op_results(sums, observed),
        "aerospike_op_errors_total": [
            ((op, code), count)
            for op, stats in operations.items()
            for code, count in stats["errors_by_code"].items()
        ],
        "aerospike_op_bytes_total": [((op,), stats["bytes"]) for op, stats in moved.items()],
        "aerospike_op_round_trips_total": [
            ((op,), stats["round_trips"]) for op, stats in moved.items()
        ],
        "aerospike_concurrent_in_flight": [
            ((), sum(stats["in_flight"] for stats in operations.values()))
        ],
        "aerospike_misses_total": [
            ((reason,), count) for reason, count in sums["misses_by_reason"].items()
        ],
        "aerospike_damaged_keys": [((), sums["damaged_keys"])],
        "aerospike_stores_shed_total": [
            ((reason,), count) for reason, count in sums["stores_shed_by_reason"].items()
        ],
        "aerospike_store_queue_bytes": [((), sums["store_bytes_queued"])],
        "aerospike_store_queue_bytes_peak": [((), sums["store_bytes_queued_peak"])],
        "aerospike_stop_writes": [((), sums["stop_writes"])],
        "aerospike_requests_total": [((), sums["requests"])],
        "aerospike_retries_total": [((), sums["retries"])],
        "aerospike_stalls_total": [((), sums["stalls"])],
        "aerospike_hedges_total": [((), sums["hedges"])],
        "aerospike_hedges_won_total": [((), sums["hedges_won"])],
        "aerospike_probes_total": [((), sums["probes"])],
        "aerospike_connection_errors_total": [((), sums["connection_errors"])],
        "aerospike_in_flight_bytes": [((), sums["bytes_in_flight"])],
        "aerospike_in_flight_bytes_peak": [((), sums["bytes_in_flight_peak"])],
        "aerospike_node_up": [(labels, float(not node["suspect"])) for labels, node in nodes],
        "aerospike_node_requests_total": [(labels, node["requests"]) for labels, node in nodes],
        "aerospike_node_failures_total": [(labels, node["failures"]) for labels, node in nodes],
        "aerospike_node_connections": [(labels, node["connections"]) for labels, node in nodes],
        "aerospike_node_store_window_bytes": [
            (labels, node["store_window_bytes"]) for labels, node in nodes
        ],
        "aerospike_serde_failures_total": [
            ((direction,), count) for direction, count in sums["serde_failures"].items()
        ],
        "aerospike_stores": [((), sums["open_stores"])],
        "aerospike_engines": [((), sums["open_engines"])],
    }


def _bucketed_samples(sums: _native.StoreTotals, observed: _Latency) -> dict[str, list[Bucketed]]:
    latency: list[Bucketed] = []
    histograms = {
        op: (list(stats["batch_microseconds"]["counts"]), stats["batch_microseconds"]["sum"])
        for op, stats in sums["operations"].items()
    }
    for op, (counts, total) in observed.items():
        before, sum_before = histograms.get(op, ([0] * len(counts), 0))
        histograms[op] = [a + b for a, b in zip(before, counts, strict=True)], sum_before + total
    for op, (counts, total) in histograms.items():
        latency.append(((op,), _buckets(counts, _LATENCY_POWERS, 1e6), total / 1e6))
    return {
        "aerospike_op_latency_seconds": latency,
        "aerospike_segment_count": [_sizes(sums["stored_segment_counts"], _COUNT_POWERS)],
        "aerospike_segment_bytes": [_sizes(sums["stored_segment_bytes"], _BYTES_POWERS)],
    }


def _sizes(histogram: _native.Histogram, powers: range) -> Bucketed:
    return (), _buckets(histogram["counts"], powers, 1), float(histogram["sum"])


def _buckets(counts: list[int], powers: range, divisor: float) -> list[tuple[str, float]]:
    """Cumulative counts by upper bound; counts[i] are the values up to 2**i."""
    out: list[tuple[str, float]] = []
    for power in powers:
        bound = (1 << power) / divisor
        out.append((repr(float(bound)), float(sum(counts[: power + 1]))))
    out.append(("+Inf", float(sum(counts))))
    return out


_lock = threading.Lock()
_registered: list[tuple[CollectorRegistry, AerospikeCollector]] = []
_exporter: Exporter | None = None


def _forget() -> None:
    """In a forked child: registries stay, their counts are those of this process."""
    global _lock, _exporter, _observed  # noqa: PLW0603 - one per process, like the engine
    _lock = threading.Lock()
    _observed = _Observed()
    _exporter = None
    for _, collector in _registered:
        collector.reset()


os.register_at_fork(after_in_child=_forget)


def register(registry: CollectorRegistry | None = None) -> AerospikeCollector | None:
    """Adds the metrics to a registry, once.

    Args:
        registry: Of prometheus_client; its default one if not given.

    Returns:
        The collector, or None without ``prometheus_client``.
    """
    client = _client()
    if client is None:
        return None
    registry = client.REGISTRY if registry is None else registry
    with _lock:
        for known, collector in _registered:
            if known is registry:
                return collector
        collector = AerospikeCollector()
        registry.register(collector)
        _registered.append((registry, collector))
        return collector


def attach() -> None:
    """Called for each connector and store that is made. Never raises.

    If the process uses ``prometheus_client`` already, as LMCache does, the metrics join its default
    registry, and so the /metrics that the process serves. Else there is nothing to join.
    """
    if "prometheus_client" not in sys.modules:
        return
    try:
        register()
    except Exception:
        logger.warning("metrics: not added to the default registry", exc_info=True)


class Exporter:
    """A small HTTP server that answers scrapes. Made by start()."""

    def __init__(self, server: WSGIServer, thread: threading.Thread, address: str) -> None:
        self._server = server
        self._thread = thread
        self._address = address

    @property
    def port(self) -> int:
        """Where it listens."""
        return int(self._server.server_port)

    @property
    def url(self) -> str:
        """What a scraper takes."""
        host = f"[{self._address}]" if ":" in self._address else self._address
        return f"http://{host}:{self.port}/metrics"

    def close(self) -> None:
        """Ends it and frees the port."""
        global _exporter  # noqa: PLW0603
        with _lock:
            if _exporter is self:
                _exporter = None
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


def start(port: int = DEFAULT_PORT, address: str = "127.0.0.1") -> Exporter:
    """Serves the default registry, with the metrics in it, at http://address:port/metrics.

    For processes whose metrics nobody serves yet. A second call returns the first one's server.

    Args:
        port: Where to listen; 0 = any free port.
        address: To listen on. Metrics tell addresses and sizes: loopback, unless the network is
            private.

    Raises:
        ImportError: ``prometheus_client`` is not installed.
        OSError: The port is taken.
    """
    global _exporter  # noqa: PLW0603 - one per process
    client = _client()
    if client is None:
        msg = "metrics need prometheus_client: pip install prometheus-client"
        raise ImportError(msg)
    register()
    with _lock:
        if _exporter is None:
            server, thread = client.start_http_server(port, addr=address)
            _exporter = Exporter(server, thread, address)
            logger.info("metrics at %s", _exporter.url)
        return _exporter
