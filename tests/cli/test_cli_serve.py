# SPDX-License-Identifier: Apache-2.0
"""serve: the ready line, signals, options, faults."""

from __future__ import annotations

import signal
import socket
import subprocess
import sys
from collections.abc import Callable
from typing import Any

import pytest
from command import Command

from lmcache_aerospike import Store


@pytest.mark.parametrize("ending", [signal.SIGINT, signal.SIGTERM])
def test_ready_line_and_end(ending: signal.Signals) -> None:
    program = "from lmcache_aerospike.cli import main; main()"
    with subprocess.Popen(
        [sys.executable, "-c", program, "serve", "--port", "0", "--nodes", "2"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdout is not None
        word, hosts = process.stdout.readline().split()
        assert word == "ready"
        addresses = [entry.rsplit(":", 1) for entry in hosts.split(",")]
        assert len(addresses) == 2
        with Store(hosts) as store:
            store.put("a", b"x")
            process.send_signal(ending)
            out, errors = process.communicate(timeout=20)
        assert (process.returncode, out, errors) == (0, "", "")
    for host, port in addresses:
        with pytest.raises(ConnectionRefusedError):
            socket.create_connection((host, int(port)), 5)


def test_namespaces(server_factory: Callable[..., Any]) -> None:
    server = server_factory(
        "--namespace", "small,size=64M,max-record-size=128K,nsup=0,allow-ttl-without-nsup=true",
        "--namespace", "lmcache,default-ttl=50",
    )  # fmt: skip
    with Store(server.hosts, "small") as store:
        assert store.limits()["record_bytes_max"] == 128 << 10
    with Store(server.hosts, default_ttl_seconds=0) as store:
        store.put("a", b"x")
        assert 40 < ((store.inspect("a") or {})["expires_in"] or 0) <= 50


def test_faults(server_factory: Callable[..., Any]) -> None:
    server = server_factory("--fault", "result_code,kinds=get,code=2,count=1,set=kv_chunks")
    with Store(server.hosts) as store:
        store.put("a", b"x")
        assert [store.get("a"), store.get("a")] == [None, b"x"]


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("--nodes", "17"), "nodes: expected 1 to 16"),
        (("--namespace", "lmcache,colour=red"), "--namespace: 'colour=red', expected key=value"),
        (("--namespace", "lmcache,size=much"), "--namespace: 'size=much'"),
        (("--user", "name"), "--user: expected name:password"),
        (("--fault", "explode"), "fault 'action': 'explode', expected one of delay"),
        (("--fault", "drop,skip=x"), "--fault: 'skip=x'"),
        (("--reserve", "much"), "--reserve: size 'much'"),
        (("--port", "70000"), "option 'port': 70000"),
    ],
)
def test_usage_errors(command: Command, arguments: tuple[str, ...], words: str) -> None:
    result = command("serve", "--port", "0", *arguments)
    assert (result.code, result.out) == (2, b"")
    assert words in result.errors


def test_taken_port(command: Command) -> None:
    port = command.hosts.split(",")[0].rsplit(":", 1)[1]
    result = command("serve", "--port", port)
    assert (result.code, result.out) == (3, b"")
    assert port in result.errors
