# SPDX-License-Identifier: Apache-2.0
"""Metrics equal what was done, survive closed stores, and need nothing installed."""

from __future__ import annotations

import gc
import os
import re
import subprocess
import sys
import urllib.request
from pathlib import Path
from typing import Any

import pytest

from lmcache_aerospike import AerospikeNativeConnector, Store, _native, metrics
from lmcache_aerospike.errors import AerospikeBusyError, AerospikeTimeoutError

CAP = 983040

prometheus_client = pytest.importorskip("prometheus_client", reason="it comes with lmcache")


@pytest.fixture
def registry():
    return prometheus_client.CollectorRegistry()


class Scrape:
    """Samples by name and labels; `since` another one."""

    def __init__(self, registry) -> None:
        self.samples = {
            (sample.name, frozenset(sample.labels.items())): sample.value
            for family in registry.collect()
            for sample in family.samples
        }

    def __call__(self, name: str, **labels: str) -> float:
        return self.samples.get((name, frozenset(labels.items())), 0.0)

    def since(self, before: Scrape, name: str, **labels: str) -> float:
        return self(name, **labels) - before(name, **labels)


@pytest.fixture
def scrape(registry):
    metrics.register(registry)
    return lambda: Scrape(registry)


def test_operations_are_counted_by_result(server, scrape) -> None:
    before = scrape()
    with Store(server.hosts) as store:
        store.put_many(["m1", "m2", "m3"], [b"abc", b"", bytes(2 * CAP + 1)])
        assert store.get("m1") == b"abc"
        assert store.get("absent") is None
        assert store.exists_many(["m1", "m2", "absent"]) == [True, True, False]
        assert store.touch("m2")
        assert store.delete_many(["m1", "absent"]) == [True, False]
        during = scrape()

    def since(name, **labels):
        return during.since(before, name, **labels)

    results = {
        ("put", "ok"): 3,
        ("get", "hit"): 1,
        ("get", "miss"): 1,
        ("exists", "hit"): 2,
        ("exists", "miss"): 1,
        ("touch", "ok"): 1,
        ("delete", "ok"): 1,
        ("delete", "miss"): 1,
        ("put", "error"): 0,
    }
    for (op, result), count in results.items():
        assert since("aerospike_op_total", op=op, result=result) == count, (op, result)
    assert since("aerospike_op_latency_seconds_count", op="put") == 1
    assert 0 < since("aerospike_op_latency_seconds_sum", op="put") < 10
    assert since("aerospike_op_latency_seconds_bucket", op="put", le="+Inf") == 1
    assert since("aerospike_op_bytes_total", op="put") == 3 + 2 * CAP + 1
    assert since("aerospike_op_bytes_total", op="get") == 3
    assert since("aerospike_op_round_trips_total", op="get") == 2
    assert since("aerospike_misses_total", reason="not_found") == 1
    assert since("aerospike_segment_count_count") == 3
    assert since("aerospike_segment_count_bucket", le="1.0") == 2
    assert since("aerospike_segment_count_bucket", le="4.0") == 3
    assert since("aerospike_requests_total") > 5
    assert since("aerospike_stores") == since("aerospike_engines") == 1
    assert during("aerospike_concurrent_in_flight") == 0
    assert during("aerospike_in_flight_bytes") == 0
    # A node is given less at the start, but more than one of the three segments.
    assert during("aerospike_in_flight_bytes_peak") >= 2 * (2 * CAP + 1) // 3


def test_errors_have_the_plan_s_results_and_our_codes(server, scrape) -> None:
    before = scrape()
    with Store(server.hosts, batch_timeout_ms=200) as store:
        server.add_fault(action="result_code", code=8, kinds=["put"], count=1)
        with pytest.raises(AerospikeBusyError):
            store.put("full", b"x")
        server.add_fault(action="drop", kinds=["get"])
        with pytest.raises(AerospikeTimeoutError):
            store.get("slow")
        after = scrape()
    assert after.since(before, "aerospike_op_total", op="put", result="busy") == 1
    assert after.since(before, "aerospike_op_total", op="get", result="timeout") == 1
    assert after.since(before, "aerospike_op_errors_total", op="put", code="overloaded") == 1
    assert after.since(before, "aerospike_op_errors_total", op="get", code="timeout") == 1


def test_objects_under_way_are_seen(server, scrape) -> None:
    server.add_fault(action="drop", kinds=["get"])
    connector = AerospikeNativeConnector(server.hosts, batch_timeout_ms=60_000)
    connector.submit_batch_get(["u1", "u2"], [bytearray(10), bytearray(10)])
    assert scrape()("aerospike_concurrent_in_flight") == 2
    connector.close()
    assert scrape()("aerospike_concurrent_in_flight") == 0


def test_nodes_are_seen_while_someone_is_connected(server, scrape) -> None:
    with Store(server.hosts) as store:
        store.put("n", b"x")
        node = store.stats()["nodes"][0]
        labels = {"node": node["name"], "address": node["address"]}
        during = scrape()
        assert during("aerospike_node_up", **labels) == 1
        assert during("aerospike_node_requests_total", **labels) == node["requests"] > 0
        assert during("aerospike_node_connections", **labels) >= 1
    assert not [name for name, _ in scrape().samples if name.startswith("aerospike_node")]


def test_a_shared_engine_is_counted_once(server, scrape) -> None:
    before = scrape()
    with Store(server.hosts, set_name="e1") as one, Store(server.hosts, set_name="e2") as two:
        assert one.stats()["engine"] == two.stats()["engine"]
        for i in range(10):
            one.put(f"k{i}", b"x")
        assert scrape().since(before, "aerospike_requests_total") == two.stats()["requests"]
        assert scrape().since(before, "aerospike_stores") == 2
        assert scrape().since(before, "aerospike_engines") == 1
        with Store(server.hosts, tend_interval_ms=999) as other:
            assert other.stats()["engine"] != one.stats()["engine"]
            assert scrape().since(before, "aerospike_engines") == 2


def test_counters_never_fall_when_stores_go(server, scrape) -> None:
    first = scrape()
    last = first
    for round_number in range(1, 6):
        store = Store(server.hosts, set_name=f"gone{round_number % 2}")
        store.put("k", b"12345")
        if round_number % 2:
            store.close()
        del store
        gc.collect()
        now = scrape()
        assert now.since(first, "aerospike_op_total", op="put", result="ok") == round_number
        assert now.since(first, "aerospike_op_bytes_total", op="put") == 5 * round_number
        for (name, labels), value in last.samples.items():
            if name.endswith(("_total", "_count", "_sum", "_bucket")) and "node" not in name:
                assert now.samples[name, labels] >= value, (name, labels)
        assert now.since(last, "aerospike_requests_total") >= 1
        last = now


def test_every_sample_has_a_row_in_the_table(server, scrape) -> None:
    with Store(server.hosts) as store:
        store.put("t", b"x")
        samples = scrape().samples
    kinds = {metric.name: metric for metric in metrics.METRICS}
    seen = set()
    for name, labels in samples:
        for ending in ("", "_bucket", "_count", "_sum"):
            metric = kinds.get(name.removesuffix(ending)) if name.endswith(ending) else None
            if metric is not None:
                assert {label for label, _ in labels} - {"le"} == set(metric.labels), name
                seen.add(metric.name)
                break
        else:
            pytest.fail(f"{name} is not in METRICS")
    assert set(kinds) - seen <= {"aerospike_op_errors_total"}  # nothing has failed yet, perhaps


def test_buckets_are_cumulative_and_reach_the_plan_s_range(server, scrape) -> None:
    with Store(server.hosts) as store:
        store.put("b", b"x")
        samples = scrape().samples
    bounds = sorted(
        (float(dict(labels)["le"]), value)
        for (name, labels), value in samples.items()
        if name == "aerospike_op_latency_seconds_bucket" and dict(labels)["op"] == "put"
    )
    assert bounds[0][0] <= 0.001
    assert bounds[-2][0] >= 10
    assert [value for _, value in bounds] == sorted(value for _, value in bounds)


def test_a_registry_takes_the_metrics_once(registry) -> None:
    first = metrics.register(registry)
    assert metrics.register(registry) is first
    text = prometheus_client.generate_latest(registry).decode()
    assert text.count("# TYPE aerospike_op_total counter") == 1


def test_programs_report_their_own_operations(scrape) -> None:
    before = scrape()
    metrics.observe_op("mine", "hit", 0.002)
    metrics.observe_op("mine", "strange", -1.0)
    metrics.observe_serde_failure("serialize")
    after = scrape()
    assert after.since(before, "aerospike_op_total", op="mine", result="hit") == 1
    assert after.since(before, "aerospike_op_total", op="mine", result="error") == 1
    assert after.since(before, "aerospike_op_latency_seconds_count", op="mine") == 2
    assert after.since(before, "aerospike_serde_failures_total", direction="serialize") == 1


def test_without_prometheus_client_nothing_happens(monkeypatch, server) -> None:
    monkeypatch.setitem(sys.modules, "prometheus_client", None)
    metrics.observe_op("get", "hit", 0.1)
    assert metrics.register() is None
    with Store(server.hosts) as store:
        store.put("k", b"x")
    assert metrics.totals()["operations"]["put"]["items"] >= 1
    with pytest.raises(ImportError, match="pip install prometheus-client"):
        metrics.start(0)


ALONE = """
import sys
import lmcache_aerospike
from lmcache_aerospike import Store, _native, metrics
with _native.DevServer() as server, Store(server.hosts) as store:
    store.put("k", b"x")
    assert "prometheus_client" not in sys.modules
    if sys.argv[1] == "joins":
        import prometheus_client
        second = Store(server.hosts)
        text = prometheus_client.generate_latest(prometheus_client.REGISTRY).decode()
        assert 'aerospike_op_total{op="put",result="ok"} 1.0' in text, text
    elif sys.argv[1] == "start":
        import os, urllib.request
        with_port = metrics.start(0)
        assert metrics.start(0) is with_port
        assert with_port.url.startswith("http://127.0.0.1:")
        text = urllib.request.urlopen(with_port.url, timeout=10).read().decode()
        assert 'aerospike_op_total{op="put",result="ok"} 1.0' in text, text
        assert "process_open_fds" in text
        with_port.close()
    elif sys.argv[1] == "forks":
        import os
        metrics.register()
        import prometheus_client
        prometheus_client.generate_latest()
        child = os.fork()
        if child == 0:
            text = prometheus_client.generate_latest().decode()
            os._exit(0 if 'aerospike_op_total{op="put",result="ok"} 0.0' in text else 1)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
"""


@pytest.mark.parametrize("way", ["imports nothing", "joins", "start", "forks"])
@pytest.mark.parametrize("multiprocess", [False, True])
def test_in_a_process_of_its_own(way, multiprocess, tmp_path) -> None:
    environment = {**os.environ}
    if multiprocess:  # as LMCache and vLLM set it: files that this package has no use for
        environment["PROMETHEUS_MULTIPROC_DIR"] = str(tmp_path)
    done = subprocess.run(
        [sys.executable, "-c", ALONE, way],
        env=environment,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stderr


def test_a_scrape_over_http_while_objects_move(server) -> None:
    with Store(server.hosts) as store:
        exporter = metrics.start(0)
        try:
            for i in range(20):
                store.put(f"h{i}", b"x")
                with urllib.request.urlopen(exporter.url, timeout=10) as answer:
                    assert b"aerospike_op_total" in answer.read()
        finally:
            exporter.close()


def test_the_block_of_the_operating_guide_runs(capsys) -> None:
    page = Path(__file__).resolve().parents[2] / "docs/guides/operating.md"
    (code,) = re.findall(r"^```python\n(.*?)^```", page.read_text(), re.MULTILINE | re.DOTALL)
    assert "start(9464)" in code
    names: dict[str, Any] = {}
    exec(compile(code.replace("9464", "0"), str(page), "exec"), names)
    try:
        assert capsys.readouterr().out.strip() == names["exporter"].url
    finally:
        names["exporter"].close()


def test_the_totals_have_the_shape_of_stats(server) -> None:
    with Store(server.hosts) as store:
        totals = _native.totals()
        assert set(store.stats()) < set(totals)
        assert set(totals) - set(store.stats()) == {"open_stores", "open_engines", "serde_failures"}
