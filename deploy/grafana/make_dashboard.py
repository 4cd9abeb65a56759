#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes dashboards/lmcache-aerospike.json; a test sees to it that it is up to date.

Needs nothing but Python. Every panel is one line of PANELS.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

OUTPUT = Path(__file__).parent / "dashboards" / "lmcache-aerospike.json"
DATASOURCE = {"type": "prometheus", "uid": "prometheus"}
COLUMNS, HEIGHT = 24, 8

_RATE = 'rate({}{{instance=~"$instance"}}[$__rate_interval])'
_NOW = '{}{{instance=~"$instance"}}'


def rate(name: str, by: str) -> str:
    """A counter's growth each second, summed by labels."""
    return f"sum by ({by}) ({_RATE.format(name)})"


def now(name: str, by: str) -> str:
    """A gauge, summed by labels."""
    return f"sum by ({by}) ({_NOW.format(name)})"


def quantile(share: float, name: str, by: str) -> str:
    """Of a histogram, over the last interval."""
    return f"histogram_quantile({share}, sum by (le, {by}) ({_RATE.format(name + '_bucket')}))"


def ratio(part: str, whole: str) -> str:
    """Of two expressions."""
    return f"{part} / {whole}"


def gets(results: str) -> str:
    """Loads with one of these outcomes each second."""
    chosen = f'{{op="get", result=~"{results}", instance=~"$instance"}}[$__rate_interval]'
    return f"sum by (instance) (rate(aerospike_op_total{chosen}))"


# Title, unit, what it tells, and the queries with their legends.
PANELS: tuple[tuple[str, str, str, tuple[tuple[str, str], ...]], ...] = (
    (
        "Hit ratio of loads",
        "percentunit",
        (
            "Loads of objects that were there. LMCache looks up before it loads, so it should be "
            "near 1; what is missing is in the panel of misses."
        ),
        ((ratio(gets("hit"), gets("hit|miss")), "{{instance}}"),),
    ),
    (
        "Objects by operation and outcome",
        "ops",
        "ok: written. busy: the server's queues or space are full.",
        ((rate("aerospike_op_total", "op, result"), "{{op}} {{result}}"),),
    ),
    (
        "Payload",
        "Bps",
        "Bytes of objects that were loaded (get) and stored (put), as the server has them.",
        ((rate("aerospike_op_bytes_total", "op"), "{{op}}"),),
    ),
    (
        "Latency of batches: median and 99 %",
        "s",
        "From the submit of a batch to its last object.",
        (
            (quantile(0.5, "aerospike_op_latency_seconds", "op"), "{{op}} p50"),
            (quantile(0.99, "aerospike_op_latency_seconds", "op"), "{{op}} p99"),
        ),
    ),
    (
        "Errors by code",
        "ops",
        "The codes are explained in docs/reference/errors.md.",
        ((rate("aerospike_op_errors_total", "op, code"), "{{op}} {{code}}"),),
    ),
    (
        "Misses of loads by reason",
        "ops",
        (
            "not_found: expired or evicted since the lookup. Everything else is there and cannot "
            "be used: see docs/guides/operating.md."
        ),
        ((rate("aerospike_misses_total", "reason"), "{{reason}}"),),
    ),
    (
        "Nodes",
        "none",
        "1: answers. 0: loads avoid it.",
        (
            (
                f"min by (node, address) ({_NOW.format('aerospike_node_up')})",
                "{{node}} {{address}}",
            ),
        ),
    ),
    (
        "Requests by node",
        "reqps",
        "Uneven: few objects, a hot one, or partitions that are moving.",
        ((rate("aerospike_node_requests_total", "node"), "{{node}}"),),
    ),
    (
        "Failures by node",
        "ops",
        "No answer, or a broken connection.",
        (
            (rate("aerospike_node_failures_total", "node"), "{{node}}"),
            (rate("aerospike_connection_errors_total", "instance"), "connections of {{instance}}"),
        ),
    ),
    (
        "Connections by node",
        "none",
        "A few for each process.",
        ((now("aerospike_node_connections", "node, instance"), "{{node}} from {{instance}}"),),
    ),
    (
        "Requests, retries, stalls",
        "reqps",
        (
            "A retry is a request that was sent once more; a stall one that was taken from a node "
            "that had gone silent."
        ),
        (
            (rate("aerospike_requests_total", "instance"), "requests {{instance}}"),
            (rate("aerospike_retries_total", "instance"), "retries {{instance}}"),
            (rate("aerospike_stalls_total", "instance"), "stalls {{instance}}"),
        ),
    ),
    (
        "Round trips per object",
        "none",
        "1 for most loads, 1 or 2 for stores. More: the sizes of objects change all the time.",
        (
            (
                ratio(
                    rate("aerospike_op_round_trips_total", "op"),
                    'sum by (op) (rate(aerospike_op_total{op=~"get|put", instance=~"$instance"}'
                    "[$__rate_interval]))",
                ),
                "{{op}}",
            ),
        ),
    ),
    (
        "Under way",
        "bytes",
        "At max_bytes_in_flight requests wait for one another.",
        (
            (now("aerospike_in_flight_bytes", "instance"), "now {{instance}}"),
            (now("aerospike_in_flight_bytes_peak", "instance"), "peak {{instance}}"),
        ),
    ),
    (
        "Stores that were shed",
        "ops",
        "More is stored than the cluster takes, or its namespace is full.",
        (
            (rate("aerospike_stores_shed_total", "reason"), "{{reason}}"),
            (now("aerospike_stop_writes", "instance"), "stop-writes {{instance}}"),
        ),
    ),
    (
        "Stores that wait",
        "bytes",
        "At max_store_bytes_queued more are shed. Windows: what each node is given at once.",
        (
            (now("aerospike_store_queue_bytes", "instance"), "now {{instance}}"),
            (now("aerospike_store_queue_bytes_peak", "instance"), "peak {{instance}}"),
            (now("aerospike_node_store_window_bytes", "node"), "window {{node}}"),
        ),
    ),
    (
        "Objects under way",
        "none",
        "Of batches that have not ended.",
        ((now("aerospike_concurrent_in_flight", "instance"), "{{instance}}"),),
    ),
    (
        "Segments of an object that is stored",
        "none",
        "Median and 99 %.",
        (
            (quantile(0.5, "aerospike_segment_count", "instance"), "p50 {{instance}}"),
            (quantile(0.99, "aerospike_segment_count", "instance"), "p99 {{instance}}"),
        ),
    ),
    (
        "Bytes of a segment that is stored",
        "bytes",
        "Median and 99 %.",
        (
            (quantile(0.5, "aerospike_segment_bytes", "instance"), "p50 {{instance}}"),
            (quantile(0.99, "aerospike_segment_bytes", "instance"), "p99 {{instance}}"),
        ),
    ),
    (
        "Damaged keys",
        "none",
        "Reported absent until they are stored again.",
        ((now("aerospike_damaged_keys", "instance"), "{{instance}}"),),
    ),
    (
        "Failures of serdes",
        "ops",
        "Objects that a serde processor refused.",
        ((rate("aerospike_serde_failures_total", "direction"), "{{direction}}"),),
    ),
    (
        "Connectors, stores and engines",
        "none",
        "A number that grows for ever is a leak.",
        (
            (now("aerospike_stores", "instance"), "stores {{instance}}"),
            (now("aerospike_engines", "instance"), "engines {{instance}}"),
        ),
    ),
    (
        "Second requests and probes",
        "reqps",
        (
            "Late loads sent to a second replica (hedge_reads), those whose second answer came "
            "first, and questions whether a node that loads avoid works again."
        ),
        (
            (rate("aerospike_hedges_total", "instance"), "hedges {{instance}}"),
            (rate("aerospike_hedges_won_total", "instance"), "hedges won {{instance}}"),
            (rate("aerospike_probes_total", "instance"), "probes {{instance}}"),
        ),
    ),
)


def panel(number: int) -> dict[str, Any]:
    """One graph, two in a row."""
    title, unit, description, queries = PANELS[number]
    width = COLUMNS // 2
    return {
        "id": number + 1,
        "type": "timeseries",
        "title": title,
        "description": description,
        "datasource": DATASOURCE,
        "gridPos": {
            "x": number % 2 * width,
            "y": number // 2 * HEIGHT,
            "w": width,
            "h": HEIGHT,
        },
        "fieldConfig": {"defaults": {"unit": unit, "min": 0}, "overrides": []},
        "options": {"legend": {"displayMode": "list", "placement": "bottom"}},
        "targets": [
            {"refId": chr(ord("A") + i), "expr": query, "legendFormat": legend}
            for i, (query, legend) in enumerate(queries)
        ],
    }


def dashboard() -> dict[str, Any]:
    """The whole, as Grafana imports it."""
    return {
        "uid": "lmcache-aerospike",
        "title": "lmcache-aerospike",
        "description": "The KV cache in Aerospike, as its clients see it.",
        "tags": ["lmcache", "aerospike"],
        "schemaVersion": 39,
        "editable": True,
        "refresh": "30s",
        "time": {"from": "now-1h", "to": "now"},
        "templating": {
            "list": [
                {
                    "name": "instance",
                    "label": "Process",
                    "type": "query",
                    "datasource": DATASOURCE,
                    "query": {
                        "query": "label_values(aerospike_engines, instance)",
                        "refId": "instance",
                    },
                    "refresh": 2,
                    "includeAll": True,
                    "multi": True,
                    "current": {"text": "All", "value": "$__all"},
                }
            ]
        },
        "panels": [panel(number) for number in range(len(PANELS))],
    }


def text() -> str:
    """The file's content."""
    return json.dumps(dashboard(), indent=2) + "\n"


if __name__ == "__main__":
    OUTPUT.write_text(text())
    sys.stdout.write(f"{OUTPUT.name}: {len(PANELS)} panels\n")
