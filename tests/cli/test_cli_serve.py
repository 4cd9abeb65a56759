# SPDX-License-Identifier: Apache-2.0
"""serve: the ready line, signals, options, faults."""

from __future__ import annotations

import contextlib
import shlex
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from command import Command

from lmcache_aerospike import Store
from lmcache_aerospike.errors import AerospikeConnectorError


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
        (("--nodes", "2", "--racks", "1"), "racks: expected one for each node"),
        (("--racks", "one"), "--racks: 'one', expected numbers"),
        (("--no-clear-port",), "without a clear port it needs TLS"),
        (("--tls-key", "x"), "TLS needs --tls-cert and --tls-key, or --tls-dir"),
        (("--tls-dir", "x", "--tls-cert", "y"), "--tls-dir makes certificates"),
        (("--tls-client-certificates", "all"), "expected none, optional, required"),
        (("--tls-cert", "no-such", "--tls-key", "no-such"), "no-such"),
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


@contextlib.contextmanager
def serving(*arguments: str) -> Iterator[subprocess.Popen[str]]:
    """A server that is told things on its stdin."""
    program = "from lmcache_aerospike.cli import main; main()"
    with subprocess.Popen(
        [sys.executable, "-c", program, "serve", "--port", "0", *arguments],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        try:
            yield process
        finally:
            process.kill()


def line_of(process: subprocess.Popen[str]) -> list[str]:
    assert process.stdout is not None
    return shlex.split(process.stdout.readline())


def test_tls_as_on_the_page(command: Command, tmp_path: Path) -> None:
    folder = tmp_path / "tls"
    with serving("--tls-dir", str(folder), "--no-clear-port") as process:
        word, hosts = line_of(process)
        assert (word, line_of(process)) == ("ready", ["tls", hosts])
        word, *options = line_of(process)
        assert word == "client"
        assert command(*options, "put", __file__, "--key", "k", hosts="").code == 0
        assert command(*options, "get", "k", hosts="").out == Path(__file__).read_bytes()
        plain = command("--hosts", hosts, "get", "k", hosts="")
        assert plain.code == 3
    assert folder.stat().st_mode & 0o077 == 0
    assert (folder / "server.key").stat().st_mode & 0o077 == 0


def test_a_login_by_certificate(command: Command, tmp_path: Path) -> None:
    with serving("--tls-dir", str(tmp_path), "--user", "bob::read-write:pki") as process:
        line_of(process)
        line_of(process)
        options = line_of(process)[1:]
        assert "auth_mode=pki" in options
        assert command(*options, "put", __file__, "--key", "k", hosts="").code == 0


def test_commands_on_stdin() -> None:
    with serving("--nodes", "2", "--spare-nodes", "1", "--control") as process:
        assert process.stdin is not None
        word, hosts = line_of(process)
        assert word == "ready"
        assert len(hosts.split(",")) == 2
        for said, answer in (
            ("stop-writes all on", ["ok"]),
            ("stop-writes all", ["error", "stop-writes:", "wrong", "number", "of", "arguments"]),
        ):
            process.stdin.write(said + "\n")
            process.stdin.flush()
            assert line_of(process) == answer
        with Store(hosts) as store:
            with pytest.raises(AerospikeConnectorError):
                store.put("a", b"x")
            process.stdin.write("stop-writes all off\nstart 2\nlatency all 1.5\n")
            process.stdin.flush()
            assert [line_of(process) for _ in range(3)] == [["ok"]] * 3
        process.stdin.close()  # which ends it
        assert process.wait(20) == 0


def test_a_signal_ends_a_server_that_takes_commands() -> None:
    with serving("--control") as process:
        line_of(process)
        process.send_signal(signal.SIGTERM)
        assert process.wait(20) == 0
