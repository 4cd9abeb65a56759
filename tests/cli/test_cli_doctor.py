# SPDX-License-Identifier: Apache-2.0
"""doctor: what is wrong, what to change where, and the exit code; as a new user meets it."""

from __future__ import annotations

import dataclasses
import signal
from collections.abc import Callable
from typing import Any

import pytest
from command import Command, Result

from lmcache_aerospike import Store, _native
from lmcache_aerospike.commands._doctor import cluster
from lmcache_aerospike.commands._doctor.cluster import NodeFacts


def problems(result: Result) -> list[tuple[str, str]]:
    return [(c["name"], c["status"]) for c in result.json["checks"] if c["status"] != "ok"]


def remedies(result: Result) -> str:
    return " ".join(c["remedy"] for c in result.json["checks"])


def test_a_healthy_cluster(command: Command) -> None:
    text = command("doctor", "--set", "doctor")
    assert text.code == 0, text.text
    lines = text.text.splitlines()
    assert all(line.startswith("ok   ") for line in lines)
    assert sum("node: " in line for line in lines) == 3
    for words in (
        "takes connections", "3 nodes, which agree", "lmcache exists on every node",
        "max-record-size 1.00 MiB", "objects live for 86400 s", "2 copies of each record",
        "of 960.00 KiB", "4.00 KiB: stored in", "960.00 KiB: stored in", "1.88 MiB: stored in",
        "Aerospike Community Edition 8.1.2.0",
    ):  # fmt: skip
        assert words in text.text, words
    assert "20 checks: 0 failed, 0 warnings" in text.errors
    assert command("ls", "--set", "doctor", "--json").json == []


def test_json(command: Command) -> None:
    report = command("doctor", "--json", "--no-write")
    assert (report.code, report.errors) == (0, "")
    assert (report.json["ok"], report.json["reachable"]) == (True, True)
    assert set(report.json["checks"][0]) == {"name", "status", "detail", "remedy"}
    assert "round trip" not in {check["name"] for check in report.json["checks"]}


@pytest.mark.parametrize(
    "serde",
    [
        '{"type": "fp8", "dtype": "bfloat16"}',
        '{"type": "lossless", "dtype": "float16"}',
        '{"type": "checksum", "dtype": "uint8"}',
        '{"type": "chain", "dtype": "bfloat16", "stages": [{"type": "lossless"}]}',
    ],
)
def test_a_serde_is_tried(command: Command, serde: str) -> None:
    report = command("doctor", "--json", "-O", f"serde={serde}", "--set", "doctor")
    assert report.code == 0, report.text
    (found,) = [c for c in report.json["checks"] if c["name"] == "serde"]
    assert "self-test passed" in found["detail"]


def test_a_serde_without_its_key_file(command: Command) -> None:
    serde = '{"type": "aesgcm", "dtype": "uint8", "master_key_path": "absent.key"}'
    report = command("doctor", "--json", "-O", f"serde={serde}")
    assert report.code == 1
    assert ("serde", "fail") in problems(report)
    assert "docs/reference/serde.md" in remedies(report)


def test_wrong_host(command: Command) -> None:
    refused = command("doctor", "--hosts", "127.0.0.1:1")
    assert refused.code == 3
    assert "fail host: 127.0.0.1:1: connection refused" in refused.text
    assert "-> nothing listens there: start the server, or correct --hosts" in refused.text
    assert "lmcache-aerospike serve" in refused.text
    unknown = command("doctor", "--hosts", "no-such-host.invalid", "--json")
    assert unknown.code == 3
    assert problems(unknown) == [("host", "fail")]
    assert unknown.json["reachable"] is False
    assert "the name is not known" in unknown.text


def test_one_wrong_host_among_good_ones_is_a_warning(command: Command) -> None:
    report = command("doctor", "--json", "--no-write", "--hosts", f"127.0.0.1:1,{command.hosts}")
    assert report.code == 0
    assert problems(report) == [("host", "warn")]


def test_a_server_that_does_not_answer(
    command: Command, server_factory: Callable[..., Any]
) -> None:
    server = server_factory()
    server.process.send_signal(signal.SIGSTOP)
    try:
        report = command("doctor", "--json", "-O", "connect_timeout_ms=300", hosts=server.hosts)
    finally:
        server.process.send_signal(signal.SIGCONT)
    assert report.code == 3
    assert problems(report) == [("cluster", "fail")]
    assert "no answer within 300 ms" in report.text


def test_a_frozen_node_among_others(command: Command) -> None:
    timing = {"detection_ms": 60_000}
    with _native.DevServer(nodes=3, replication=2, timing=timing) as server:
        server.pause_node(1)
        report = command("doctor", "--json", hosts=server.hosts)
    assert report.code == 1
    assert problems(report) == [("cluster", "warn"), ("round trip", "fail")]
    assert "is a node down or frozen?" in remedies(report)
    assert "see the lines above" in remedies(report)


def test_wrong_namespace(command: Command) -> None:
    report = command("doctor", "--namespace", "nowhere")
    assert report.code == 1
    assert "fail namespace: 'nowhere' is not configured on " in report.text
    assert "the server has: lmcache" in report.text
    assert "-> correct --namespace, or add to aerospike.conf of every node" in report.text


def test_refused_ttl(command: Command, server_factory: Callable[..., Any]) -> None:
    hosts = server_factory("--namespace", "lmcache,nsup=0").hosts
    report = command("doctor", "--json", hosts=hosts)
    assert report.code == 1
    assert problems(report) == [("expiry", "fail")]
    assert "section 'namespace lmcache': nsup-period 120" in remedies(report)
    assert "asinfo -v 'set-config:context=namespace;namespace=lmcache;nsup-period=120'" in remedies(
        report
    )
    without_end = command("doctor", "--json", "-O", "default_ttl_seconds=-1", hosts=hosts)
    assert without_end.code == 0
    assert problems(without_end) == [("expiry", "warn")]


def test_logins(command: Command, server_factory: Callable[..., Any]) -> None:
    hosts = server_factory("--user", "rw:a", "--user", "ro:a:read").hosts
    secret = {"LMCACHE_AEROSPIKE_PASSWORD": "a"}
    none = command("doctor", hosts=hosts)
    assert none.code == 1
    assert "fail login: " in none.text
    assert "-> the server has users: give --username and --password-file" in none.text
    wrong = command(
        "doctor", "--username", "rw", hosts=hosts, LMCACHE_AEROSPIKE_PASSWORD="hush-hush"
    )
    assert wrong.code == 1
    assert "-> check --username and --password-file" in wrong.text
    assert "hush" not in wrong.text + wrong.errors
    unneeded = command("doctor", "--username", "rw", **secret)
    assert unneeded.code == 1
    assert "-> the server has no users: leave --username and --password-file out" in unneeded.text
    reader = command("doctor", "--username", "ro", hosts=hosts, **secret)
    assert reader.code == 1
    assert "fail round trip: 4.00 KiB: " in reader.text
    assert "grant user ro roles read-write.lmcache" in reader.text
    assert command("doctor", "--username", "rw", hosts=hosts, **secret).code == 0


def test_full_namespace(command: Command, server_factory: Callable[..., Any]) -> None:
    hosts = server_factory("--namespace", "lmcache,size=8M").hosts
    with Store(hosts) as store:
        for i in range(8):
            store.put_many([str(i)], [bytes(1 << 20)])
    report = command("doctor", "--json", hosts=hosts)
    assert report.code == 1
    assert ("round trip", "fail") in problems(report)
    assert ("space", "warn") in problems(report) or ("space", "fail") in problems(report)
    assert "the namespace takes no more: give it more room (aerospike.conf" in remedies(report)


def test_usage(command: Command) -> None:
    assert command("doctor", hosts="").code == 2
    assert "did you mean 'verify'?" in command("doctor", "-O", "verfy=1").errors


NAMESPACE = {
    "max-record-size": "1048576",
    "nsup-period": "120",
    "default-ttl": "0",
    "data_used_pct": "10",
    "data_total_bytes": "1000",
    "storage-engine.stop-writes-used-pct": "70",
    "replication-factor": "2",
    "effective_replication_factor": "2",
    "current_time": "533708252",
}
NODE = NodeFacts(
    "A1 (h:3000)", "8.1.2.0", "CE", {"cluster_key": "K", "cluster_size": "2"}, NAMESPACE, "x", {}
)
OPTIONS = {"default_ttl_seconds": 100}


def node(statistics: dict[str, str] | None = None, **namespace: str) -> NodeFacts:
    return dataclasses.replace(
        NODE,
        label="B1 (h:3001)",
        statistics={**NODE.statistics, **(statistics or {})},
        namespace={**NAMESPACE, **namespace},
    )


def statuses(findings: Any) -> list[str]:
    return [finding.status for finding in findings]


def test_agreement_of_the_nodes() -> None:
    assert statuses(cluster.check_agreement([NODE, node()])) == ["ok"]
    (split,) = cluster.check_agreement([NODE, node(statistics={"cluster_key": "other"})])
    assert (split.status, "heartbeat" in split.remedy) == ("fail", True)
    (hidden,) = cluster.check_agreement([NODE])
    assert (hidden.status, "access-address" in hidden.remedy) == ("warn", True)
    assert "use_services_alternate" in hidden.remedy
    moving = node(statistics={"migrate_partitions_remaining": "7"})
    assert statuses(cluster.check_agreement([NODE, moving])) == ["ok", "warn"]
    older = dataclasses.replace(node(), build="7.0.0.0")
    assert statuses(cluster.check_agreement([NODE, older])) == ["ok", "warn"]
    broken = node(statistics={"cluster_integrity": "false"})
    assert statuses(cluster.check_agreement([NODE, broken])) == ["fail"]


def test_record_limits() -> None:
    def check(*sizes: str) -> str:
        nodes = [node(**{"max-record-size": size}) for size in sizes]
        (finding,) = cluster.check_record_limit(nodes, "x")
        return finding.status

    assert [check("1048576"), check("131072"), check("1048576", "8388608")] == [
        "ok", "warn", "warn",
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("ttl", "facts", "status"),
    [
        (100, {}, "ok"),
        (100, {"nsup-period": "0"}, "fail"),
        (100, {"nsup-period": "0", "allow-ttl-without-nsup": "true"}, "warn"),
        (-1, {}, "warn"),
        (-1, {"nsup-period": "0"}, "warn"),
        (0, {}, "warn"),
        (0, {"default-ttl": "50"}, "ok"),
        (0, {"default-ttl": "50", "nsup-period": "0"}, "warn"),
    ],
)
def test_expiry(ttl: int, facts: dict[str, str], status: str) -> None:
    options = {"default_ttl_seconds": ttl}
    assert statuses(cluster.check_expiry([node(**facts)], "x", options)) == [status]


@pytest.mark.parametrize(
    ("facts", "limits", "expected"),
    [
        ({}, {}, ["ok"]),
        ({"data_used_pct": "64"}, {}, ["warn"]),
        ({"stop_writes": "true"}, {}, ["fail"]),
        ({"clock_skew_stop_writes": "true"}, {}, ["fail"]),
        ({}, {"objects": "95", "stop-writes-count": "100"}, ["ok", "warn"]),
        ({}, {"data_used_bytes": "50", "stop-writes-size": "100"}, ["ok"]),
        ({}, {"data_used_bytes": "99", "stop-writes-size": "100"}, ["ok", "warn"]),
    ],
)
def test_space(facts: dict[str, str], limits: dict[str, str], expected: list[str]) -> None:
    full = dataclasses.replace(NODE, namespace={**NAMESPACE, **facts}, set_limits=limits)
    assert statuses(cluster.check_space([full], "x")) == expected


def test_replication() -> None:
    def check(*pairs: tuple[str, str]) -> str:
        nodes = [
            node(**{"replication-factor": want, "effective_replication_factor": have})
            for want, have in pairs
        ]
        (finding,) = cluster.check_replication(nodes, "x")
        return finding.status

    assert check(("2", "2"), ("2", "2")) == "ok"
    assert check(("1", "1")) == "ok"
    assert check(("2", "1")) == "warn"
    assert check(("2", "2"), ("1", "2")) == "fail"


def test_clocks() -> None:
    there = 533708252 + cluster.EPOCH_SECONDS
    assert statuses(cluster.check_clock([NODE], there + 0.2, there + 0.4)) == ["ok"]
    assert statuses(cluster.check_clock([NODE], there - 1.5, there - 1.4)) == ["ok"]
    assert statuses(cluster.check_clock([NODE], there - 5.0, there - 4.9)) == ["warn"]
    assert statuses(cluster.check_clock([NODE], there + 9.0, there + 9.1)) == ["warn"]
    skewed = node(statistics={"cluster_clock_skew_ms": "9000"})
    assert statuses(cluster.check_clock([skewed], there, there)) == ["warn"]
