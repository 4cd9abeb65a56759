# SPDX-License-Identifier: Apache-2.0
"""What a new user meets first: one clear message, what to do about it, the right exit code."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from command import Command, Result

COMMANDS = {
    "put": ("put", "-", "--key", "key"),
    "get": ("get", "key"),
    "ls": ("ls",),
    "stat": ("stat", "key"),
    "rm": ("rm", "key"),
    "fsck": ("fsck", "--grace", "0"),
}
READS = ("get", "ls", "stat", "fsck")
WRITES = ("put", "rm")
PASSWORD = {"LMCACHE_AEROSPIKE_PASSWORD": "hush-hush"}


@pytest.fixture(scope="module")
def guarded(server_factory: Callable[..., Any]) -> str:
    """A server with users, one for each right."""
    users = ("rw:hush-hush", "reader:hush-hush:read", "writer:hush-hush:write")
    return server_factory(*(part for user in users for part in ("--user", user))).hosts


@pytest.fixture(scope="module")
def without_nsup(server_factory: Callable[..., Any]) -> str:
    """A server that refuses every TTL."""
    return server_factory("--namespace", "lmcache,nsup=0").hosts


def check_message(result: Result, *words: str) -> None:
    """One line that names the problem, with its remedy."""
    assert result.code == 3, result.errors
    assert result.out == b""
    lines = [line for line in result.errors.splitlines() if not line.startswith("stored 0 ")]
    lines = [line for line in lines if not line.startswith("deleted 0 ")]
    assert len(lines) == 1, lines
    assert lines[0].startswith("lmcache-aerospike: ")
    for word in words:
        assert word in lines[0], word
    assert "hush" not in result.errors


@pytest.mark.parametrize("name", ["put", "stat"])
def test_wrong_host(command: Command, name: str) -> None:
    result = command(*COMMANDS[name], "--hosts", "127.0.0.1:1", stdin=b"x")
    check_message(result, "127.0.0.1:1", "Connection refused", "check --hosts, or start a server")


@pytest.mark.parametrize("name", ["get", "fsck"])
def test_wrong_namespace(command: Command, name: str) -> None:
    result = command(*COMMANDS[name], "--namespace", "nowhere", stdin=b"x")
    check_message(result, "namespace nowhere", "check --namespace; it must stand in aerospike.conf")


def test_unknown_name(command: Command) -> None:
    result = command("ls", "--hosts", "no-such-host.invalid")
    check_message(result, "no-such-host.invalid", "check the spelling of --hosts, and DNS")


def test_server_away(command: Command, server_factory: Callable[..., Any]) -> None:
    server = server_factory()
    assert command("put", "-", "--key", "key", stdin=b"x", hosts=server.hosts).code == 0
    server.stop()
    for name in ("get", "put"):
        result = command(*COMMANDS[name], stdin=b"x", hosts=server.hosts)
        check_message(result, server.hosts, "check --hosts")


def test_another_kind_of_server(command: Command) -> None:
    import socket
    import threading

    with socket.create_server(("127.0.0.1", 0)) as listener:

        def answer() -> None:
            for _ in range(2):
                peer, _ = listener.accept()
                with peer:
                    peer.recv(100)
                    peer.sendall(b"HTTP/1.1 400 Bad Request\r\n\r\n")

        thread = threading.Thread(target=answer)
        thread.start()
        result = command("ls", "--hosts", f"127.0.0.1:{listener.getsockname()[1]}")
        thread.join(10)
    check_message(result, "that port is no Aerospike service port: check --hosts")


@pytest.mark.parametrize("name", ["ls", "rm"])
def test_no_login(command: Command, guarded: str, name: str) -> None:
    result = command(*COMMANDS[name], stdin=b"x", hosts=guarded)
    check_message(result, "not authenticated", "give --username and --password-file")


def test_wrong_password(command: Command, guarded: str) -> None:
    wrong = {"LMCACHE_AEROSPIKE_PASSWORD": "hush"}
    result = command("ls", "--username", "rw", hosts=guarded, **wrong)
    check_message(result, "invalid credential", "check --username and --password-file")


def test_login_where_there_are_no_users(command: Command) -> None:
    result = command("ls", "--username", "rw", **PASSWORD)
    check_message(result, "leave --username and --password-file out")


@pytest.mark.parametrize("name", COMMANDS)
def test_no_rights(command: Command, guarded: str, name: str) -> None:
    user = "writer" if name in READS else "reader"
    result = command(*COMMANDS[name], "--username", user, stdin=b"x", hosts=guarded, **PASSWORD)
    check_message(result, "role violation", "grant the role read-write on the namespace")


def test_full_namespace(command: Command, server_factory: Callable[..., Any]) -> None:
    hosts = server_factory("--namespace", "lmcache,size=8M").hosts
    result = command("put", "-", "--key", "large", stdin=bytes(12 << 20), hosts=hosts)
    check_message(result, "large: ", "out of space", "the namespace takes no more")
    assert command("get", "large", hosts=hosts).code == 1


@pytest.mark.parametrize("name", ["put", "fsck"])
def test_refused_ttl(command: Command, without_nsup: str, name: str) -> None:
    result = command(*COMMANDS[name], stdin=b"x", hosts=without_nsup)
    check_message(result, "nsup-period is 0; set nsup-period of the namespace above 0")


def test_refused_ttl_of_one_object(command: Command, without_nsup: str) -> None:
    forever = ("-O", "default_ttl_seconds=-1")
    assert command(*COMMANDS["put"], *forever, stdin=b"x", hosts=without_nsup).code == 0
    result = command(*COMMANDS["put"], *forever, "--ttl", "50", stdin=b"x", hosts=without_nsup)
    check_message(result, "key: ", "a TTL of 50 s needs nsup-period > 0 in namespace lmcache")
