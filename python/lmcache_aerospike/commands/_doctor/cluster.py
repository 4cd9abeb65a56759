# SPDX-License-Identifier: Apache-2.0
"""What the nodes say about themselves, and whether it is what a KV cache needs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from lmcache_aerospike.commands._doctor.findings import FAIL, OK, WARN, Finding, conf
from lmcache_aerospike.commands._remedies import remedy_of
from lmcache_aerospike.commands.session import bytes_text, duration_text
from lmcache_aerospike.errors import AerospikeConnectorError

if TYPE_CHECKING:
    from lmcache_aerospike._native import NodeReport

EPOCH_SECONDS = 1262304000  # servers count from 2010
_SKEW_SECONDS_MAX = 2.0
_NEARLY_FULL = 0.9  # of the limit where writes stop
_DEFAULT_RECORD_BYTES = 1 << 20


@dataclass(frozen=True)
class NodeFacts:
    """The answers of one node, taken apart.

    Attributes:
        label: Name and address.
        build: Version of the server.
        edition: Its edition.
        statistics: Of the node.
        namespace: Of the namespace on it; None where it is not configured.
        namespaces: The names of those that are.
        set_limits: Of the set on it; empty before the first object.
    """

    label: str
    build: str
    edition: str
    statistics: Mapping[str, str]
    namespace: Mapping[str, str] | None
    namespaces: str
    set_limits: Mapping[str, str]


def commands(namespace: str, set_name: str) -> list[str]:
    """What every node is asked."""
    return [
        "build",
        "edition",
        "statistics",
        "namespaces",
        f"namespace/{namespace}",
        f"sets/{namespace}/{set_name}",
    ]


def read_reports(
    reports: list[NodeReport], namespace: str, set_name: str
) -> tuple[list[NodeFacts], list[Finding]]:
    """The nodes that answered, and a finding for each node."""
    facts: list[NodeFacts] = []
    findings: list[Finding] = []
    asked = commands(namespace, set_name)
    for report in reports:
        label = f"{report['node']} ({report['address']})"
        answers = [report["answers"].get(command) for command in asked]
        error = next((a for a in answers if isinstance(a, AerospikeConnectorError)), None)
        if isinstance(answers[0], AerospikeConnectorError) or answers[0] is None:
            findings.append(
                Finding("node", FAIL, f"{label}: {error}", remedy_of(error) if error else "")
            )
            continue
        build, edition, statistics, names, text, limits = (
            answer if isinstance(answer, str) else "" for answer in answers
        )
        pairs = _pairs(text, ";")
        known = None if not pairs or pairs.get("type") == "unknown" else pairs
        facts.append(
            NodeFacts(label, build, edition, _pairs(statistics, ";"), known, names,
                      _pairs(limits, ":"))
        )  # fmt: skip
        findings.append(Finding("node", OK, f"{label}: {edition or 'Aerospike'} {build}"))
    return facts, findings


def _pairs(text: str, separator: str) -> dict[str, str]:
    found = (item.partition("=") for item in text.strip().rstrip(";").split(separator))
    return {name: value for name, equals, value in found if equals}


def _number(pairs: Mapping[str, str], *names: str) -> int | None:
    for name in names:
        text = pairs.get(name, "")
        if text.lstrip("-").isdigit():
            return int(text)
    return None


def check_agreement(nodes: list[NodeFacts]) -> Iterator[Finding]:
    """Whether all nodes are one cluster."""
    keys = {node.statistics.get("cluster_key", "?") for node in nodes}
    sizes = {_number(node.statistics, "cluster_size") for node in nodes}
    if len(keys) > 1 or len(sizes) > 1:
        seen = ", ".join(
            f"{node.label} sees {node.statistics.get('cluster_size', '?')} nodes" for node in nodes
        )
        yield Finding(
            "cluster",
            FAIL,
            f"the nodes do not form one cluster: {seen}",
            "aerospike.conf, network { heartbeat { ... } }: every node must name the others, and "
            "reach them at the heartbeat and fabric ports",
        )
        return
    size = sizes.pop()
    if size is not None and size != len(nodes):
        yield Finding(
            "cluster",
            WARN,
            f"the cluster has {size} nodes, {len(nodes)} of them answer this machine",
            "is a node down or frozen? If not: aerospike.conf, network { service { "
            "access-address } } must name an address that clients reach; or set "
            "use_services_alternate=true",
        )
    elif any(node.statistics.get("cluster_integrity") == "false" for node in nodes):
        yield Finding(
            "cluster", FAIL, "a node reports cluster_integrity=false", "see the server's log"
        )
    else:
        noun = "node, which agrees" if size == 1 else "nodes, which agree"
        yield Finding("cluster", OK, f"{len(nodes)} {noun} (cluster key {keys.pop()})")
    builds = {node.build for node in nodes}
    if len(builds) > 1:
        names = ", ".join(sorted(builds))
        yield Finding("versions", WARN, f"different builds: {names}", "finish the upgrade")
    moving = sum(_number(n.statistics, "migrate_partitions_remaining") or 0 for n in nodes)
    if moving:
        yield Finding(
            "migrations", WARN, f"{moving} partitions still move", "loads are slower until then"
        )


def check_namespace(nodes: list[NodeFacts], namespace: str) -> Iterator[Finding]:
    """Whether every node has the namespace."""
    without = [node for node in nodes if node.namespace is None]
    if not without:
        yield Finding("namespace", OK, f"{namespace} exists on every node")
        return
    names = without[0].namespaces.replace(";", ", ") or "none"
    where = ", ".join(node.label for node in without)
    yield Finding(
        "namespace",
        FAIL,
        f"'{namespace}' is not configured on {where}; the server has: {names}",
        f"correct --namespace, or add to aerospike.conf of every node a section "
        f"'namespace {namespace} {{ nsup-period 120 ... }}' and restart; lmcache-aerospike plan "
        "writes one",
    )


def check_record_limit(nodes: list[NodeFacts], namespace: str) -> Iterator[Finding]:
    """How large a record may be."""
    names = ("max-record-size", "write-block-size", "storage-engine.write-block-size")
    limits = [_number(node.namespace or {}, *names) or 0 for node in nodes]
    smallest = min(limits)
    if len(set(limits)) > 1:
        seen = ", ".join(
            f"{node.label} {bytes_text(size)}" for node, size in zip(nodes, limits, strict=True)
        )
        yield Finding(
            "record limit",
            WARN,
            f"differs: {seen}; the smallest counts",
            conf(namespace, f"max-record-size {max(limits)}"),
        )
    elif smallest < _DEFAULT_RECORD_BYTES:
        yield Finding(
            "record limit",
            WARN,
            f"{bytes_text(smallest)}: many small segments",
            conf(namespace, "max-record-size 1M"),
        )
    else:
        yield Finding("record limit", OK, f"max-record-size {bytes_text(smallest)}")


def check_expiry(
    nodes: list[NodeFacts], namespace: str, options: Mapping[str, Any]
) -> Iterator[Finding]:
    """Whether objects go when their time has come."""
    ttl = int(options["default_ttl_seconds"])
    facts = [node.namespace or {} for node in nodes]
    periods = [_number(pairs, "nsup-period") for pairs in facts]
    is_idle = any(period == 0 for period in periods)
    is_allowed = all(pairs.get("allow-ttl-without-nsup") == "true" for pairs in facts)
    default = max(_number(pairs, "default-ttl") or 0 for pairs in facts)
    what = "no end" if ttl == -1 else f"{ttl} s" if ttl > 0 else f"the namespace's {default} s"
    if ttl > 0 and is_idle and not is_allowed:
        yield Finding(
            "expiry",
            FAIL,
            f"default_ttl_seconds is {ttl}, but nsup-period is 0: every store is refused",
            conf(namespace, "nsup-period 120") + "; or our option default_ttl_seconds=-1",
        )
    elif is_idle and (ttl > 0 or (ttl == 0 and default > 0)):
        yield Finding(
            "expiry",
            WARN,
            "nsup-period is 0: what has expired is never removed, the namespace fills up",
            conf(namespace, "nsup-period 120"),
        )
    elif ttl == -1 or (ttl == 0 and default == 0):
        yield Finding(
            "expiry",
            WARN,
            f"objects live without end (default_ttl_seconds={ttl}, default-ttl {default}): a "
            "namespace that is full takes no new ones",
            "our option default_ttl_seconds=86400, or " + conf(namespace, "default-ttl 1d"),
        )
    else:
        shown = max(period or 0 for period in periods)
        yield Finding(
            "expiry", OK, f"objects live for {what}; removed every {shown} s (nsup-period)"
        )


def check_space(nodes: list[NodeFacts], namespace: str) -> Iterator[Finding]:
    """Whether the namespace takes writes, and for how long."""
    for node in nodes:
        pairs = node.namespace or {}
        used = _number(pairs, "data_used_pct", "device_used_pct", "memory_used_pct")
        limit = _number(pairs, "storage-engine.stop-writes-used-pct", "stop-writes-pct") or 100
        total = _number(pairs, "data_total_bytes", "device_total_bytes", "memory-size") or 0
        seen = f"{node.label}: {used} % of {bytes_text(total)} used, writes stop at {limit} %"
        room = (
            "aerospike.conf, section 'namespace "
            f"{namespace}', storage-engine: a larger data-size or more devices; or shorter "
            "default_ttl_seconds; or remove objects: lmcache-aerospike rm"
        )
        if pairs.get("clock_skew_stop_writes") == "true":
            yield Finding(
                "space", FAIL, f"{node.label}: writes have stopped, the nodes' clocks differ",
                "synchronise the clocks of the nodes (chrony, NTP)",
            )  # fmt: skip
        elif pairs.get("stop_writes") == "true":
            yield Finding("space", FAIL, f"{seen}: writes have stopped", room)
        elif used is not None and used >= _NEARLY_FULL * limit:
            yield Finding("space", WARN, seen, room)
        else:
            yield Finding("space", OK, seen)
        for limit_name in ("stop-writes-count", "stop-writes-size"):
            bound = _number(node.set_limits, limit_name) or 0
            have = _number(
                node.set_limits,
                "objects" if limit_name.endswith("count") else "data_used_bytes",
            )
            if bound and (have or 0) >= _NEARLY_FULL * bound:
                yield Finding(
                    "space", WARN, f"{node.label}: the set is at {have} of {limit_name} {bound}",
                    f"raise {limit_name} of the set, or remove objects: lmcache-aerospike rm",
                )  # fmt: skip


def check_replication(nodes: list[NodeFacts], namespace: str) -> Iterator[Finding]:
    """How many copies there are."""
    factors = {_number(n.namespace or {}, "replication-factor") or 0 for n in nodes}
    effective = min(
        _number(n.namespace or {}, "effective_replication_factor", "replication-factor") or 0
        for n in nodes
    )
    if len(factors) > 1:
        yield Finding(
            "replication",
            FAIL,
            f"replication-factor differs between nodes: {sorted(factors)}",
            conf(namespace, f"replication-factor {max(factors)}", dynamic=False),
        )
    elif effective < max(factors):
        yield Finding(
            "replication",
            WARN,
            f"replication-factor {max(factors)}, but only {effective} copies: too few nodes",
            "start the missing nodes",
        )
    elif effective > 1:
        yield Finding("replication", OK, f"{effective} copies of each record")
    else:
        yield Finding("replication", OK, "1 copy: a lost node costs what it held, as in any cache")


def check_clock(nodes: list[NodeFacts], before: float, after: float) -> Iterator[Finding]:
    """Whether this machine and the nodes agree about the time.

    Args:
        nodes: What they said.
        before: Unix time when the first was asked.
        after: Unix time when the last had answered.
    """
    worst = 0.0
    where = ""
    for node in nodes:
        seconds = _number(node.namespace or {}, "current_time")
        if seconds is None:
            continue
        # The server's seconds are whole: its time is from `there` to one second later.
        there = seconds + EPOCH_SECONDS
        skew = max(there - after, before - (there + 1), 0.0)
        if skew > worst:
            worst, where = skew, node.label
    between = [_number(node.statistics, "cluster_clock_skew_ms") or 0 for node in nodes]
    remedy = "synchronise the clocks (chrony, NTP); ages and expiry times are wrong by that"
    if worst > _SKEW_SECONDS_MAX:
        detail = f"{where} is {duration_text(worst)} away from this machine"
        yield Finding("clock", WARN, detail, remedy)
    elif max(between, default=0) > 1000 * _SKEW_SECONDS_MAX:
        yield Finding("clock", WARN, f"the nodes differ by {max(between)} ms", remedy)
    else:
        yield Finding("clock", OK, f"nodes and this machine agree to {_SKEW_SECONDS_MAX:g} s")
