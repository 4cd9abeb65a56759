# SPDX-License-Identifier: Apache-2.0
"""The official Aerospike client, unmodified, against the development server.

The server is the program named by AEROKV_DEVSERVER, or else ``lmcache-aerospike serve``.
"""

from __future__ import annotations

import os
import subprocess
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from server_process import DevServer, read_ready_line

aerospike = pytest.importorskip("aerospike", reason="the official client is not installed")
from aerospike import exception  # noqa: E402
from aerospike_helpers.batch import records as batch  # noqa: E402
from aerospike_helpers.operations import operations  # noqa: E402

NAMESPACE = "lmcache"
SET = "official"
NODES = [1, 3]

Client = Any
Factory = Callable[..., DevServer]


@pytest.fixture(scope="module")
def start_server(server_factory: Factory) -> Iterator[Factory]:
    """Starts the program under test."""
    program = os.environ.get("AEROKV_DEVSERVER")
    if program is None:
        pytest.importorskip("lmcache_aerospike")
        yield server_factory
        return
    started: list[DevServer] = []

    def start(*arguments: str) -> DevServer:
        # The server ends when its stdin does: a pipe that we keep open.
        process = subprocess.Popen(
            [program, "--port", "0", *arguments], stdin=subprocess.PIPE, stdout=subprocess.PIPE
        )
        server = DevServer("", process)
        started.append(server)
        server.hosts = read_ready_line(process)
        return server

    yield start
    for server in started:
        assert server.process.stdin is not None
        server.process.stdin.close()
        server.stop()


@pytest.fixture(scope="module", params=NODES, ids=lambda n: f"{n}_nodes")
def client(request: pytest.FixtureRequest, start_server: Factory) -> Iterator[Client]:
    """A connected client of one node, and of three."""
    server = start_server(
        "--nodes", str(request.param), "--namespace", "lmcache,size=256M,nsup=1",
        "--namespace", "strict,size=64M,nsup=0",
    )  # fmt: skip
    connected = aerospike.client({"hosts": server.addresses}).connect()
    assert len(connected.get_nodes()) == request.param
    yield connected
    connected.close()


@pytest.fixture
def key(request: pytest.FixtureRequest) -> tuple[str, str, str]:
    """A key of the test's own."""
    return (NAMESPACE, SET, request.node.name)


def test_values_come_back_as_they_went(client: Client, key: Any) -> None:
    bins = {
        "int": -(2**63), "text": "chunk \u00e9", "blob": bytes(range(256)), "float": 1.5,
        "bool": True, "list": [1, "two", b"3"], "map": {"a": 1, "b": [2]},
    }  # fmt: skip
    client.put(key, bins)
    _, meta, stored = client.get(key)
    assert stored == bins
    assert meta["gen"] == 1
    assert client.select(key, ["int", "none"])[2] == {"int": bins["int"]}
    assert client.exists(key)[1]["gen"] == 1


def test_a_large_blob(client: Client, key: Any) -> None:
    payload = os.urandom(1_000_000)
    client.put(key, {"b": payload})
    assert client.get(key)[2] == {"b": payload}
    with pytest.raises(exception.RecordTooBig):
        client.put(key, {"b": bytes(1 << 20)})
    assert client.get(key)[2] == {"b": payload}


def test_absent_records(client: Client, key: Any) -> None:
    assert client.exists(key)[1] is None
    for call in (client.get, client.touch, client.remove):
        with pytest.raises(exception.RecordNotFound):
            call(key)


def test_ttl(client: Client, key: Any) -> None:
    client.put(key, {"a": 1}, policy={"ttl": 1000})
    assert 990 <= client.get(key)[1]["ttl"] <= 1000
    client.touch(key, 2000)
    _, meta = client.exists(key)
    assert 1990 <= meta["ttl"] <= 2000
    assert meta["gen"] == 2
    client.put(key, {"a": 2}, policy={"ttl": aerospike.TTL_NEVER_EXPIRE})
    assert client.get(key)[1]["ttl"] == 0xFFFFFFFF
    client.put(key, {"a": 3}, policy={"ttl": 1})
    deadline = time.monotonic() + 10
    while client.exists(key)[1] is not None:
        assert time.monotonic() < deadline, "the record does not expire"
        time.sleep(0.05)


def test_ttl_without_expiry_thread_is_forbidden(client: Client) -> None:
    strict = ("strict", SET, "k")
    client.put(strict, {"a": 1})
    with pytest.raises(exception.ForbiddenError):
        client.put(strict, {"a": 1}, policy={"ttl": 10})


def test_generation_and_existence_policies(client: Client, key: Any) -> None:
    create = {"exists": aerospike.POLICY_EXISTS_CREATE}
    client.put(key, {"a": 1}, policy=create)
    with pytest.raises(exception.RecordExistsError):
        client.put(key, {"a": 2}, policy=create)
    equal = {"gen": aerospike.POLICY_GEN_EQ}
    client.put(key, {"a": 2}, {"gen": 1}, equal)
    with pytest.raises(exception.RecordGenerationError):
        client.put(key, {"a": 3}, {"gen": 1}, equal)
    client.put(key, {"b": 4}, policy={"exists": aerospike.POLICY_EXISTS_CREATE_OR_REPLACE})
    assert client.get(key)[2] == {"b": 4}
    with pytest.raises(exception.RecordNotFound):
        client.put(
            (NAMESPACE, SET, "absent"), {"a": 1}, policy={"exists": aerospike.POLICY_EXISTS_UPDATE}
        )


# The client deprecates append and prepend for servers newer than 8.1.
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_operate(client: Client, key: Any) -> None:
    ops = [
        operations.write("n", 5),
        operations.increment("n", 7),
        operations.write("s", "b"),
        operations.append("s", "c"),
        operations.prepend("s", "a"),
        operations.read("n"),
        operations.read("s"),
    ]
    assert client.operate(key, ops)[2] == {"n": 12, "s": "abc"}
    client.operate(key, [operations.touch(77)])
    assert 75 <= client.get(key)[1]["ttl"] <= 77
    with pytest.raises(exception.BinIncompatibleType):
        client.increment(key, "s", 1)


def test_stored_keys(client: Client, key: Any) -> None:
    policy = {"key": aerospike.POLICY_KEY_SEND}
    client.put(key, {"a": 1}, policy=policy)
    assert client.get(key, policy)[0][2] == key[2]


def test_errors(client: Client, key: Any) -> None:
    with pytest.raises(exception.NamespaceNotFound):
        client.put(("nowhere", SET, "k"), {"a": 1})
    client.put(key, {"a": 1})
    with pytest.raises(exception.AerospikeError) as durable:
        client.remove(key, policy={"durable_delete": True})
    assert durable.value.code == 25


def test_batches(client: Client) -> None:
    keys = [(NAMESPACE, SET, f"batch-{i}") for i in range(300)]
    writes = batch.BatchRecords(
        [
            batch.Write(k, [operations.write("i", i)], policy={"ttl": 500})
            for i, k in enumerate(keys)
        ]
    )
    client.batch_write(writes)
    assert writes.result == 0
    assert {r.result for r in writes.batch_records} == {0}

    wanted = [*keys, (NAMESPACE, SET, "batch-absent")]
    answers = client.batch_read(wanted).batch_records
    assert [a.record[2]["i"] for a in answers[:-1]] == list(range(300))
    assert answers[-1].result == 2
    headers = client.batch_read(wanted, []).batch_records
    assert [h.result for h in headers] == [0] * 300 + [2]
    assert all(490 <= h.record[1]["ttl"] <= 500 for h in headers[:-1])

    mixed = batch.BatchRecords(
        [
            batch.Read(keys[0], [operations.read("i")]),
            batch.Write(keys[1], [operations.increment("i", 1), operations.read("i")]),
            batch.Remove(keys[2]),
        ]
    )
    client.batch_write(mixed)
    assert [r.result for r in mixed.batch_records] == [0, 0, 0]
    assert mixed.batch_records[1].record[2] == {"i": 2}

    removed = client.batch_remove(keys).batch_records
    assert [r.result for r in removed] == [0, 0, 2] + [0] * 297


def test_scan_and_truncate(client: Client) -> None:
    scanned = "scanned"
    for i in range(500):
        client.put((NAMESPACE, scanned, i), {"i": i, "pad": b"x" * 100})
    found = [bins["i"] for _, _, bins in client.query(NAMESPACE, scanned).results()]
    assert sorted(found) == list(range(500))
    chosen = client.query(NAMESPACE, scanned)
    chosen.select("i")
    assert sorted(b["i"] for _, _, b in chosen.results()) == list(range(500))
    few = client.query(NAMESPACE, scanned)
    few.max_records = 60
    assert len(few.results()) <= 60
    client.truncate(NAMESPACE, scanned, 0)
    deadline = time.monotonic() + 10
    while client.query(NAMESPACE, scanned).results():
        assert time.monotonic() < deadline, "truncated records are still found"
        time.sleep(0.05)
    client.put((NAMESPACE, scanned, 1), {"i": 1})
    assert client.exists((NAMESPACE, scanned, 1))[1]["gen"] == 1


def test_info(client: Client) -> None:
    for _, text in client.info_all(f"namespace/{NAMESPACE}").values():
        pairs = dict(item.split("=", 1) for item in text.strip().split(";"))
        assert pairs["max-record-size"] == "1048576"
        assert pairs["nsup-period"] == "1"
        assert len(pairs) == 448
    builds = {text.strip() for _, text in client.info_all("build").values()}
    assert builds == {"8.1.2.0"}


def test_users(start_server: Factory) -> None:
    server = start_server("--nodes", "3", "--user", "u1:pw1", "--user", "reader:pw2:read")
    connected = aerospike.client(
        {"hosts": server.addresses, "user": "u1", "password": "pw1"}
    ).connect()
    key = (NAMESPACE, SET, "k")
    connected.put(key, {"a": 1})
    assert connected.get(key)[2] == {"a": 1}
    assert len(connected.get_nodes()) == 3
    connected.close()
    for user, password in (("u1", "wrong"), ("nobody", "pw1")):
        with pytest.raises(exception.AerospikeError):
            aerospike.client(
                {"hosts": server.addresses, "user": user, "password": password}
            ).connect()
    with pytest.raises(exception.AerospikeError):
        anonymous = aerospike.client({"hosts": server.addresses}).connect()
        anonymous.get(key)


def test_login_is_refused_without_security(start_server: Factory) -> None:
    server = start_server()
    with pytest.raises(exception.AerospikeError):
        aerospike.client({"hosts": server.addresses, "user": "u1", "password": "pw1"}).connect()


def test_users_may_lack_permission(start_server: Factory) -> None:
    server = start_server("--user", "reader:pw2:read")
    reader = aerospike.client(
        {"hosts": server.addresses, "user": "reader", "password": "pw2"}
    ).connect()
    with pytest.raises(exception.AerospikeError) as refused:
        reader.put((NAMESPACE, SET, "k"), {"a": 1})
    assert refused.value.code == 81
    reader.close()
