# SPDX-License-Identifier: Apache-2.0
"""What deploy/ holds can be loaded, and names what exists."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

yaml = pytest.importorskip("yaml", reason="it comes with lmcache")

from lmcache_aerospike import metrics  # noqa: E402
from lmcache_aerospike.config import AerospikeConfig, Config  # noqa: E402

ROOT = Path(__file__).resolve().parents[2]
DEPLOY = ROOT / "deploy"
DASHBOARD = DEPLOY / "grafana" / "dashboards" / "lmcache-aerospike.json"

# Exported, and on purpose in no panel.
NOT_IN_THE_DASHBOARD: set[str] = set()


def load_yaml(path: str) -> Any:
    return yaml.safe_load((DEPLOY / path).read_text())


def queries() -> list[str]:
    board = json.loads(DASHBOARD.read_text())
    expressions = [target["expr"] for panel in board["panels"] for target in panel["targets"]]
    return expressions + [entry["query"]["query"] for entry in board["templating"]["list"]]


def metric_of(name: str) -> metrics.Metric | None:
    """The row of the table that exports `name`."""
    for metric in metrics.METRICS:
        endings = ("_bucket", "_sum", "_count") if metric.kind == "histogram" else ("",)
        if name in {metric.name + ending for ending in endings}:
            return metric
    return None


def test_the_dashboard_shows_every_metric_and_no_other() -> None:
    names = {name for query in queries() for name in re.findall(r"\baerospike_\w+", query)}
    unknown = {name for name in names if metric_of(name) is None}
    assert not unknown
    shown = {metric.name for name in names if (metric := metric_of(name)) is not None}
    assert {metric.name for metric in metrics.METRICS} - shown == NOT_IN_THE_DASHBOARD


def test_the_dashboard_groups_by_labels_that_exist() -> None:
    for query in queries():
        for labels, body in re.findall(r"by \(([\w, ]+)\) \(((?:[^()]|\([^()]*\))*)\)", query):
            found = [metric_of(name) for name in re.findall(r"\baerospike_\w+", body)]
            assert found, query
            for metric in found:
                assert metric is not None
                known = {*metric.labels, "le", "instance"}
                assert set(labels.split(", ")) <= known, (query, labels)


def test_the_dashboard_is_what_its_program_writes() -> None:
    sys.path.insert(0, str(DEPLOY / "grafana"))
    try:
        import make_dashboard

        assert DASHBOARD.read_text() == make_dashboard.text()
        places = [tuple(p["gridPos"].values()) for p in make_dashboard.dashboard()["panels"]]
        assert len(set(places)) == len(places)
    finally:
        sys.path.pop(0)


def test_counters_are_shown_as_rates() -> None:
    for query in queries():
        for name in re.findall(r"\baerospike_\w+", query):
            metric = metric_of(name)
            assert metric is not None
            is_rate = re.search(rf"rate\({name}\{{", query) is not None
            assert is_rate == (metric.kind != "gauge"), query


def test_the_reference_page_lists_what_is_exported() -> None:
    page = (ROOT / "docs/reference/metrics.md").read_text()
    rows = re.findall(r"^\| `(aerospike_\w+)` \| (\w+) \| (.*?) \| (.*) \|$", page, re.MULTILINE)
    assert rows == [
        (m.name, m.kind, ", ".join(f"`{label}`" for label in m.labels) or "none", m.help)
        for m in metrics.METRICS
    ]
    for result in metrics.RESULTS:
        assert f"`{result}`" in page
    assert f"port={metrics.DEFAULT_PORT}," in page


def stanzas(path: Path) -> dict[str, Any]:
    """An aerospike.conf as nested dicts; names of sections with their argument."""
    root: dict[str, Any] = {}
    stack = [root]
    for number, line in enumerate(path.read_text().splitlines(), 1):
        words = line.partition("#")[0].split()
        if not words:
            continue
        if words[-1] == "{":
            inner: dict[str, Any] = {}
            stack[-1][" ".join(words[:-1])] = inner
            stack.append(inner)
        elif words == ["}"]:
            stack.pop()
        else:
            assert len(words) >= 2, f"{path.name}:{number}: {line}"
            stack[-1][words[0]] = " ".join(words[1:])
        assert stack, f"{path.name}:{number}: one }} too many"
    assert len(stack) == 1, f"{path.name}: a section is open at the end"
    return root


@pytest.mark.parametrize("kind", ["memory", "device"])
def test_the_server_configurations_suit_a_cache(kind: str) -> None:
    conf = stanzas(DEPLOY / "aerospike" / f"aerospike-{kind}.conf")
    namespace = conf["namespace lmcache"]
    assert int(namespace["nsup-period"]) == 120  # else every TTL is refused
    assert namespace["default-ttl"] == "0"
    assert namespace["max-record-size"] == "1M"
    storage = namespace[f"storage-engine {kind}"]
    # Evicting must begin before writes are refused.
    assert int(storage["evict-used-pct"]) < 70
    assert ("data-size" in storage) == (kind == "memory")
    assert "info" not in conf["network"]  # no longer a section in server 8.1
    known = (ROOT / "tests/golden/aerospike/namespace_lmcache.txt").read_text()
    for name in [*namespace, *(f"storage-engine.{n}" for n in storage)]:
        if name.startswith("storage-engine "):
            continue
        short = name.removeprefix("storage-engine.")
        if kind == "device" and short in {"file", "filesize", "read-page-cache"}:
            continue  # the recorded namespace is in memory
        assert re.search(rf"[;=\n\t ]{re.escape(name)}=", known), name


def test_the_compose_file_mounts_what_is_there() -> None:
    compose = load_yaml("docker-compose.yml")
    for service in compose["services"].values():
        for volume in service["volumes"]:
            source = volume.split(":")[0]
            if source.startswith("./"):
                assert (DEPLOY / source).exists(), source
            else:
                assert source in compose["volumes"]
        for port in service.get("ports", []):
            assert port.startswith("127.0.0.1:"), "without users, nobody else must reach it"
    assert {p for s in compose["services"].values() for p in s["profiles"]} == {
        "memory",
        "device",
        "monitoring",
    }


def test_prometheus_asks_where_lmcache_answers() -> None:
    jobs = {
        job["job_name"]: job for job in load_yaml("prometheus/prometheus.yml")["scrape_configs"]
    }
    assert set(jobs) == {"lmcache-server", "lmcache-workers", "lmcache-aerospike"}
    config = load_yaml("lmcache/in-process.yaml")
    first_worker = config["internal_api_server_port_start"] + 1
    (worker,) = jobs["lmcache-workers"]["static_configs"]
    assert worker["targets"][0] == f"127.0.0.1:{first_worker}"
    (ours,) = jobs["lmcache-aerospike"]["static_configs"]
    assert ours["targets"] == [f"127.0.0.1:{metrics.DEFAULT_PORT}"]
    source = load_yaml("grafana/provisioning/datasources/prometheus.yml")["datasources"][0]
    board = json.loads(DASHBOARD.read_text())
    assert {panel["datasource"]["uid"] for panel in board["panels"]} == {source["uid"]}


def test_the_in_process_example_is_accepted() -> None:
    config = load_yaml("lmcache/in-process.yaml")
    made = AerospikeConfig.from_extra_config(config["extra_config"], "aerospike")
    assert made.namespace == "lmcache"
    assert made.default_ttl_seconds == 86_400
    assert config["remote_storage_plugins"] == ["aerospike"]


def test_lmcache_knows_every_key_of_the_in_process_example() -> None:
    lmcache_config = pytest.importorskip("lmcache.v1.config", reason="needs lmcache")
    made = lmcache_config.LMCacheEngineConfig.from_file(str(DEPLOY / "lmcache/in-process.yaml"))
    for key, value in load_yaml("lmcache/in-process.yaml").items():
        assert getattr(made, key) == value, key


def test_the_multi_process_examples_are_accepted() -> None:
    native, plugin = (
        json.loads((DEPLOY / "lmcache" / f"multi-process-{name}.json").read_text())
        for name in ("native", "plugin")
    )
    assert Config.resolve(native["adapter_params"]).values["hosts"]
    program = f"""
import argparse, importlib, json
from lmcache.v1.distributed.l2_adapters.config import parse_args_to_l2_adapters_config
texts = [json.dumps(spec) for spec in {[native, plugin]!r}]
configs = parse_args_to_l2_adapters_config(argparse.Namespace(l2_adapter=texts)).adapters
assert len(configs) == 2
for spec in map(json.loads, texts):
    getattr(importlib.import_module(spec["module_path"]), spec["class_name"])
from lmcache_aerospike._l2_config import L2Options
L2Options.resolve({plugin["adapter_params"]!r})
"""
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=120, check=False
    )
    assert done.returncode == 0, done.stderr


def test_every_file_has_its_place_in_the_readme() -> None:
    readme = (DEPLOY / "README.md").read_text()
    for path in DEPLOY.rglob("*"):
        if path.is_file() and path.name != "README.md" and path.suffix != ".pyc":
            assert f"`{path.relative_to(DEPLOY)}`" in readme, path
