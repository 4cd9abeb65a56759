# SPDX-License-Identifier: Apache-2.0
"""put, get, ls, stat, rm: data on stdout, words on stderr, exit codes 0, 1, 2, 3."""

from __future__ import annotations

import random
import time
from collections.abc import Callable

import pytest
from command import Command

BIG = 3 * 983040 + 7


def data(size: int) -> bytes:
    return random.Random(size).randbytes(size)


@pytest.mark.parametrize("size", [0, 1, BIG])
def test_put_and_get_a_file(command: Command, size: int) -> None:
    (command.folder / "in").write_bytes(data(size))
    stored = command("put", "in", "--key", f"file@{size}")
    assert (stored.code, stored.out) == (0, b"")
    assert "stored 1 objects" in stored.errors
    loaded = command("get", f"file@{size}", "-o", "out")
    assert (loaded.code, loaded.out) == (0, b"")
    assert "loaded" in loaded.errors
    assert (command.folder / "out").read_bytes() == data(size)


def test_pipes(command: Command) -> None:
    assert command("put", "-", "--key", "pipe", stdin=data(BIG)).code == 0
    loaded = command("get", "pipe")
    assert (loaded.code, loaded.errors) == (0, "")
    assert loaded.out == data(BIG)


def test_many_files_are_named_by_their_paths(command: Command) -> None:
    names = [f"many-{i}.bin" for i in range(300)]
    for i, name in enumerate(names):
        (command.folder / name).write_bytes(data(i))
    result = command("put", *names, "--json")
    assert result.code == 0
    assert result.json == {
        "stored": 300,
        "bytes": sum(range(300)),
        "seconds": result.json["seconds"],
        "failed": {},
    }
    assert command("get", "many-299.bin").out == data(299)


def test_objects_of_a_serde_say_so(command: Command) -> None:
    option = ("--option", 'serde={"type": "fp8", "dtype": "bfloat16"}')
    numbers = b"\x80\x3f" * 5000  # 1.0, which fp8 keeps
    assert command("put", "-", "--key", "encoded", *option, stdin=numbers).code == 0
    assert command("get", "encoded", *option).out == numbers
    plain = command("get", "encoded")
    assert (plain.code, plain.out) == (1, b"")
    assert "stored with serde fp8:float8_e4m3fn; to decode it, give --option serde=" in plain.errors
    shown = command("stat", "encoded")
    assert "fp8:float8_e4m3fn, 9.77 KiB before it" in shown.text
    assert command("stat", "encoded", "--json").json["raw_bytes"] == len(numbers)
    assert "encoded (fp8:float8_e4m3fn)" in command("ls", "--prefix", "encoded").text


def test_a_miss_is_exit_code_1_and_leaves_no_file(command: Command) -> None:
    (command.folder / "out").write_text("old")
    result = command("get", "absent", "-o", "out")
    assert (result.code, result.out) == (1, b"")
    assert result.errors == "lmcache-aerospike: absent: not found\n"
    assert (command.folder / "out").read_text() == "old"
    assert [path.name for path in command.folder.iterdir()] == ["out"]
    assert command("get", "absent", "-o", "out", "--json").json == {
        "key": "absent",
        "found": False,
    }


def test_get_json(command: Command) -> None:
    command("put", "-", "--key", "json", stdin=b"12345")
    result = command("get", "json", "-o", "out", "--json")
    assert result.json["bytes"] == 5
    assert result.json["found"] is True
    assert command("get", "json", "--json").code == 2


def test_ls(command: Command) -> None:
    for key in ("ls@b", "ls@a", "other"):
        assert command("put", "-", "--key", key, "--set", "listed", stdin=b"xyz").code == 0
    everything = command("ls", "--set", "listed", "--json").json
    assert {entry["key"] for entry in everything} == {"ls@a", "ls@b", "other"}
    some = command("ls", "--set", "listed", "--prefix", "ls@", "--json").json
    assert {entry["key"] for entry in some} == {"ls@a", "ls@b"}
    assert {entry["bytes"] for entry in some} == {3}
    assert all(86_000 < entry["expires_in"] <= 86_400 for entry in some)
    table = command("ls", "--set", "listed")
    assert table.text.splitlines()[0].split() == [
        "key", "bytes", "segments", "age", "expires", "in",
    ]  # fmt: skip
    assert len(table.text.splitlines()) == 4
    limited = command("ls", "--set", "listed", "--limit", "2", "--json")
    assert len(limited.json) == 2
    assert "--limit 0" in limited.errors


def test_ls_of_nothing(command: Command) -> None:
    result = command("ls", "--set", "empty")
    assert (result.code, result.out, result.errors) == (0, b"", "no objects\n")
    assert command("ls", "--set", "empty", "--json").json == []


def test_stat_of_an_object(command: Command) -> None:
    command("put", "-", "--key", "stat", "--ttl", "500", stdin=data(BIG))
    details = command("stat", "stat", "--json").json
    assert details["bytes"] == BIG
    assert len(details["records"]) == 1 + details["segment_count"]
    assert 400 < details["expires_in"] <= 500
    text = command("stat", "stat").text
    assert str(BIG) in text
    assert "|s|0" in text
    missing = command("stat", "absent")
    assert (missing.code, missing.out) == (1, b"")
    assert "absent: not found" in missing.errors


def test_stat_of_the_cluster(command: Command) -> None:
    cluster = command("stat", "--json").json
    assert len(cluster["nodes"]) == 3
    assert cluster["limits"]["record_bytes_max"] == 1 << 20
    text = command("stat").text
    assert text.count("127.0.0.1") == 3


def test_rm(command: Command) -> None:
    for key in ("rm@1", "rm@2"):
        command("put", "-", "--key", key, stdin=b"x")
    result = command("rm", "rm@1", "rm@absent", "--json")
    assert result.code == 1
    assert result.json == {"deleted": ["rm@1"], "missing": ["rm@absent"], "failed": {}}
    assert command("rm", "rm@2").code == 0
    assert command("get", "rm@2").code == 1


def test_pin_and_ttl(command: Command) -> None:
    command("put", "-", "--key", "pinned", "--pin", stdin=b"x")
    details = command("stat", "pinned", "--json").json
    assert details["pin"]
    assert details["expires_in"] is None


def test_options_before_and_behind_the_command(command: Command) -> None:
    assert command("--set", "outer", "put", "-", "--key", "where", stdin=b"x").code == 0
    assert command("ls", "--set", "outer", "--json").json[0]["key"] == "where"
    assert command("--set", "inner", "get", "where", "--set", "outer").out == b"x"
    assert command("get", "where", "-O", "set_name=outer", "-O", "verify=full").out == b"x"
    assert len(command("--json", "ls", "--set", "outer").json) == 1


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("put", "in", "in", "--key", "k"), "--key: given for 2 files"),
        (("put", "-"), "--key: not given, expected one for stdin"),
        (("put", "absent.bin"), "absent.bin: No such file or directory"),
        (("put",), "Missing argument"),
        (("get", "k", "-O", "verfy=1"), "did you mean 'verify'?"),
        (("get", "k", "-O", "verify"), "expected NAME=VALUE"),
        (("get", "k", "--hosts", "a:b"), "option 'hosts': 'a:b', expected"),
        (("get", "k" * 5000), "5000 bytes, expected 1 to 4096"),
        (("ls", "--limit", "-1"), "--limit"),
        (("frobnicate",), "No such command"),
        (("ls", "--password-file", "absent", "--username", "u"), "option 'password_file'"),
    ],
)
def test_usage_errors(command: Command, arguments: tuple[str, ...], words: str) -> None:
    (command.folder / "in").write_bytes(b"x")
    result = command(*arguments)
    assert result.code == 2
    assert result.out == b""
    assert words in " ".join(result.errors.split())


def test_hosts_are_needed(command: Command) -> None:
    result = command("ls", hosts="")
    assert result.code == 2
    assert "option 'hosts': not given" in result.errors


def test_no_server(command: Command) -> None:
    started = time.monotonic()
    result = command("ls", "--hosts", "127.0.0.1:1")
    assert (result.code, result.out) == (3, b"")
    assert time.monotonic() - started < 20
    assert result.errors.startswith("lmcache-aerospike: ")
    assert result.errors.count("\n") == 1
    assert "lmcache-aerospike serve" in result.errors


def test_wrong_namespace(command: Command) -> None:
    result = command("ls", "--namespace", "nowhere")
    assert result.code == 3
    assert "nowhere" in result.errors
    assert "--namespace" in result.errors


def test_login(command: Command, server_factory: Callable[..., object]) -> None:
    hosts = server_factory("--user", "kv:secret").hosts  # type: ignore[attr-defined]
    (command.folder / "password").write_text("secret\n")
    (command.folder / "password").chmod(0o600)
    login = ("--username", "kv", "--password-file", "password")
    assert command("put", "-", "--key", "a", *login, stdin=b"x", hosts=hosts).code == 0
    assert command("ls", hosts=hosts).code == 3
    wrong = command("ls", "--username", "kv", hosts=hosts, LMCACHE_AEROSPIKE_PASSWORD="not it")
    assert wrong.code == 3
    assert "not it" not in wrong.errors
    right = {"LMCACHE_AEROSPIKE_USERNAME": "kv", "LMCACHE_AEROSPIKE_PASSWORD": "secret"}
    assert command("get", "a", hosts=hosts, **right).out == b"x"


def test_full_server(command: Command, server_factory: Callable[..., object]) -> None:
    hosts = server_factory("--namespace", "lmcache,size=8M").hosts  # type: ignore[attr-defined]
    result = command("put", "-", "--key", "large", stdin=bytes(12 << 20), hosts=hosts)
    assert result.code == 3
    assert "large: " in result.errors
    assert command("get", "large", hosts=hosts).code == 1
