# SPDX-License-Identifier: Apache-2.0
"""`lmcache server` with both of our adapters, as an operator starts it, and its HTTP interface."""

from __future__ import annotations

import json
import os
import select
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from lmcache_driver import SPECS, AdapterDriver, object_key, plugin_spec

from lmcache_aerospike import _native

START_SECONDS_MAX = 90.0


class Server:
    """The process, and requests to it."""

    def __init__(self, process: subprocess.Popen[bytes], port: int, log: Path) -> None:
        self.process, self._port, self.log = process, port, log

    def request(self, path: str, method: str = "GET", body: object = None) -> Any:
        """The JSON of the answer."""
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(
            f"http://127.0.0.1:{self._port}{path}",
            data=data,
            method=method,
            headers={"content-type": "application/json"},
        )
        with urllib.request.urlopen(request, timeout=20) as answer:
            return json.load(answer)

    def text(self, path: str) -> str:
        """The answer as it is."""
        with urllib.request.urlopen(f"http://127.0.0.1:{self._port}{path}", timeout=20) as answer:
            return str(answer.read().decode())

    def await_start(self) -> None:
        """Waits until it answers."""
        deadline = time.monotonic() + START_SECONDS_MAX
        while True:
            assert self.process.poll() is None, self.log.read_text()[-3000:]
            assert time.monotonic() < deadline, self.log.read_text()[-3000:]
            try:
                self.request("/healthcheck")
            except urllib.error.HTTPError as error:  # not ready
                error.close()
                select.select([], [], [], 0.1)
            except OSError:  # not listening
                select.select([], [], [], 0.1)
            else:
                return


def free_port() -> int:
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        return int(sock.getsockname()[1])


@pytest.fixture(scope="module")
def database() -> Iterator[_native.DevServer]:
    with _native.DevServer(namespaces=[{"name": "lmcache"}]) as server:
        yield server


@pytest.fixture(scope="module")
def lmcache_server(database, tmp_path_factory) -> Iterator[Server]:
    plugin = plugin_spec(database.hosts, "by_plugin", usage_refresh_seconds=0.1)
    plugin["eviction"] = {"eviction_policy": "LRU"}
    native = SPECS["native_plugin"](database.hosts, "by_native")
    port = free_port()
    log = tmp_path_factory.mktemp("server") / "log"
    command = [
        *(sys.executable, "-c", "from lmcache.cli.main import main; main()", "server"),
        *("--host", "127.0.0.1", "--port", str(free_port())),
        *("--http-host", "127.0.0.1", "--http-port", str(port)),
        *("--l1-size-gb", "0.05", "--no-l1-use-lazy", "--eviction-policy", "LRU"),
        "--disable-observability",
        *("--l2-adapter", json.dumps(plugin), "--l2-adapter", json.dumps(native)),
    ]
    environment = {
        **os.environ,
        "LMCACHE_TRACK_USAGE": "false",
        "LMCACHE_DISABLE_BANNER": "1",
        "PYTHONPATH": os.pathsep.join(p for p in sys.path if p),
    }
    with log.open("wb") as output:
        process = subprocess.Popen(command, stdout=output, stderr=output, env=environment)
    server = Server(process, port, log)
    try:
        server.await_start()
        yield server
        process.terminate()
        process.wait(60)
        assert "Traceback" not in log.read_text(), log.read_text()[-5000:]
    finally:
        process.kill()
        process.wait()


def adapter_status(server: Server, place: int) -> dict[str, Any]:
    status: dict[str, Any] = server.request("/status")["storage_manager"]["l2_adapters"][place]
    return status


def test_both_adapters_are_there_and_healthy(lmcache_server, database):
    status = lmcache_server.request("/status")
    assert status["is_healthy"] is True
    plugin, native = status["storage_manager"]["l2_adapters"]
    assert (plugin["type"], plugin["is_healthy"]) == ("AerospikeL2Plugin", True)
    assert plugin["set_name"] == "by_plugin"
    assert [n["address"] for n in plugin["nodes"]] == [database.hosts]
    assert (native["type"], native["is_healthy"]) == ("AerospikeNativeConnector", True)
    (eviction,) = status["storage_manager"]["l2_eviction_controller"]["adapters"]
    assert eviction["total_capacity_bytes"] >= 1 << 30  # what the database says


def test_objects_are_listed_and_deleted_over_http(lmcache_server, database):
    keys = [object_key(i, model_name=f"model/{i % 2}", cache_salt="tenant") for i in range(25)]
    writer = AdapterDriver(plugin_spec(database.hosts, "by_plugin"))
    try:
        assert writer.store_many(keys, [b"x" * 100] * 25).is_successful()
        found, token = [], None
        while True:
            query = {"tier": "l2", "page_size": 4, "model_name": "model/1"}
            query |= {"page_token": token} if token else {}
            page = lmcache_server.request("/cache/objects?" + urllib.parse.urlencode(query))
            assert page["adapter"] == "plugin"
            found += page["entries"]
            token = page["next_page_token"]
            if token is None:
                break
        hashes = {entry["key"]["chunk_hash_hex"] for entry in found}
        assert hashes == {key.chunk_hash.hex() for key in keys[1::2]}
        assert {entry["size_bytes"] for entry in found} == {100}
        body = {"tier": "l2", "keys": [entry["key"] for entry in found]}
        answer = lmcache_server.request("/cache/objects", "DELETE", body)
        assert (answer["deleted"], answer["ok"]) == (12, True)
        assert writer.lookup(keys) == [i % 2 == 0 for i in range(25)]
        with pytest.raises(urllib.error.HTTPError) as refused:
            lmcache_server.request("/cache/objects?tier=l2&page_token=nonsense")
        with refused.value as answer:
            assert answer.code == 400
    finally:
        writer.close()


def test_a_database_that_is_away_shows_in_the_status_and_ends_nothing(lmcache_server, database):
    database.stop_node(0)
    try:
        deadline = time.monotonic() + 30
        while adapter_status(lmcache_server, 0)["is_healthy"]:
            assert time.monotonic() < deadline
            select.select([], [], [], 0.1)
        status = lmcache_server.request("/status")
        assert status["storage_manager"]["is_healthy"] is False
        assert status["storage_manager"]["store_controller"]["is_healthy"] is True
    finally:
        database.start_node(0)
    deadline = time.monotonic() + 30
    while not lmcache_server.request("/status")["is_healthy"]:
        assert time.monotonic() < deadline
        select.select([], [], [], 0.1)


def test_metrics_of_the_engine_are_at_lmcaches_own_endpoint(lmcache_server):
    text = lmcache_server.text("/metrics")
    for name in ("aerospike_op_total", "aerospike_node_up", "aerospike_op_latency_seconds_bucket"):
        assert f"\n{name}{{" in text, text[:2000]
    assert "aerospike_engines 1.0\n" in text  # of both adapters
