# SPDX-License-Identifier: Apache-2.0
"""The metrics by name: what exists, of which kind, and what it tells."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

__all__ = ["METRICS", "Metric"]


@dataclass(frozen=True)
class Metric:
    """One exported name.

    Attributes:
        name: As Prometheus shows it; a histogram adds _bucket, _sum and _count.
        kind: "counter", "gauge" or "histogram".
        labels: Names of its labels.
        help: What it tells.
    """

    name: str
    kind: str
    labels: tuple[str, ...]
    help: str


METRICS: Final[tuple[Metric, ...]] = (
    Metric(
        "aerospike_op_total",
        "counter",
        ("op", "result"),
        "Objects by operation (get, put, exists, delete, touch) and outcome: hit, miss, ok, "
        "timeout, record_too_big, busy, error.",
    ),
    Metric(
        "aerospike_op_latency_seconds",
        "histogram",
        ("op",),
        "Time from the submit of a batch to its last object.",
    ),
    Metric(
        "aerospike_op_errors_total",
        "counter",
        ("op", "code"),
        "Objects that failed, by the code of docs/reference/errors.md.",
    ),
    Metric(
        "aerospike_op_bytes_total",
        "counter",
        ("op",),
        "Payload bytes of objects that were loaded (get) and stored (put), as the server has them.",
    ),
    Metric(
        "aerospike_op_round_trips_total",
        "counter",
        ("op",),
        "Requests of get and put that waited for another one of the same object. Over the number "
        "of objects: round trips per object.",
    ),
    Metric(
        "aerospike_concurrent_in_flight",
        "gauge",
        (),
        "Objects of batches that have not ended.",
    ),
    Metric("aerospike_segment_count", "histogram", (), "Segments of each object that was stored."),
    Metric(
        "aerospike_segment_bytes",
        "histogram",
        (),
        "Bytes of a segment of each object that was stored.",
    ),
    Metric(
        "aerospike_misses_total",
        "counter",
        ("reason",),
        "Loads that missed, by reason; all but not_found mean that something is there.",
    ),
    Metric(
        "aerospike_damaged_keys",
        "gauge",
        (),
        "Keys that lookups report absent until they are stored again, since a load found damage.",
    ),
    Metric(
        "aerospike_stores_shed_total",
        "counter",
        ("reason",),
        "Stores that were refused before anything of them was sent, by reason: queue_full, "
        "stop_writes, deadline.",
    ),
    Metric(
        "aerospike_store_queue_bytes",
        "gauge",
        (),
        "Payload bytes of stores that wait or are under way; max_store_bytes_queued bounds them.",
    ),
    Metric(
        "aerospike_store_queue_bytes_peak",
        "gauge",
        (),
        "The most that one connector or store had at once.",
    ),
    Metric(
        "aerospike_stop_writes",
        "gauge",
        (),
        "Connectors and stores that shed all stores since the namespace takes no writes.",
    ),
    Metric("aerospike_requests_total", "counter", (), "Requests that were sent, retries included."),
    Metric("aerospike_retries_total", "counter", (), "Requests that were sent once more."),
    Metric(
        "aerospike_stalls_total",
        "counter",
        (),
        "Times that a request was turned away from a node that had gone silent.",
    ),
    Metric(
        "aerospike_hedges_total",
        "counter",
        (),
        "Late loads that were sent to a second replica, too (hedge_reads).",
    ),
    Metric("aerospike_hedges_won_total", "counter", (), "Those whose second answer came first."),
    Metric(
        "aerospike_probes_total", "counter", (), "Nodes that loads avoid asked if they work again."
    ),
    Metric(
        "aerospike_connection_errors_total",
        "counter",
        (),
        "Connections that broke or could not be opened.",
    ),
    Metric("aerospike_in_flight_bytes", "gauge", (), "Payload bytes under way."),
    Metric(
        "aerospike_in_flight_bytes_peak",
        "gauge",
        (),
        "The most payload bytes that were under way at once in one engine.",
    ),
    Metric(
        "aerospike_node_up",
        "gauge",
        ("node", "address"),
        "1 if the node answers, 0 if loads avoid it.",
    ),
    Metric(
        "aerospike_node_requests_total", "counter", ("node", "address"), "Requests to the node."
    ),
    Metric(
        "aerospike_node_failures_total",
        "counter",
        ("node", "address"),
        "Times that the node failed: no answer, a broken connection.",
    ),
    Metric("aerospike_node_connections", "gauge", ("node", "address"), "Open connections."),
    Metric(
        "aerospike_node_store_window_bytes",
        "gauge",
        ("node", "address"),
        "Bytes of stores that the node is given at once, as it takes them.",
    ),
    Metric(
        "aerospike_serde_failures_total",
        "counter",
        ("direction",),
        "Objects that a serde processor could not serialize or deserialize. Those of a serde in "
        "the connector are in aerospike_op_errors_total and aerospike_misses_total (undecodable).",
    ),
    Metric("aerospike_stores", "gauge", (), "Open connectors and stores of the process."),
    Metric(
        "aerospike_engines",
        "gauge",
        (),
        "Engines below them; those with equal connection options share one.",
    ),
)
