# SPDX-License-Identifier: Apache-2.0
"""ls, rm and stat by what LMCache puts into keys."""

from __future__ import annotations

import pytest
from command import Command

from lmcache_aerospike import Store
from lmcache_aerospike.commands._selection import KeyParts, Selection, parse_key

HASH = "0123456789abcdef" * 4
A = f"meta/Llama@01000100@0@{HASH}"
B = f"meta/Llama@01000100@0@{HASH}@tenant"
C = f"qwen@00000000@1@{HASH}@tenant"
OTHER = "a note"


@pytest.mark.parametrize(
    ("key", "parts"),
    [
        (A, KeyParts("meta/Llama", "01000100", HASH, "")),
        (B, KeyParts("meta/Llama", "01000100", HASH, "tenant")),
        (f"m@8@3@{HASH}@bfloat16", KeyParts("m", "3", HASH, "")),
        (f"m@8@3@{HASH}@bfloat16@17", KeyParts("m", "3", HASH, "")),
        (f"m@1@0@-{HASH}@half@cache_salt%s1@x%y", KeyParts("m", "0", f"-{HASH}", "s1")),
        (OTHER, None),
        ("", None),
        (None, None),
        ("m@01000100@0@not hex", None),
        (f"m@01000100@0@{HASH}@a@b@c", KeyParts("m", "0", HASH, "")),
        ("a@b@c@d@e", None),
    ],
)
def test_keys_of_lmcache(key: str | None, parts: KeyParts | None) -> None:
    assert parse_key(key) == parts


@pytest.mark.parametrize(
    ("selection", "keys"),
    [
        (Selection(), [A, B, C, OTHER, None]),
        (Selection(prefix="meta/"), [A, B]),
        (Selection(model="qwen"), [C]),
        (Selection(salt="tenant"), [B, C]),
        (Selection(salt=""), [A]),
        (Selection(model="meta/Llama", salt="tenant"), [B]),
        (Selection(prefix="q", salt=""), []),
    ],
)
def test_selections(selection: Selection, keys: list[str | None]) -> None:
    assert [key for key in (A, B, C, OTHER, None) if selection.matches(key)] == keys
    assert selection.is_everything == (selection == Selection())


@pytest.fixture
def stored(cluster: str, request: pytest.FixtureRequest) -> str:
    """A set with four objects; its name."""
    name = request.node.name[:60]
    with Store(cluster, set_name=name) as store:
        store.put_many([A, B, C, OTHER], [b"x" * 100, b"x" * 200, b"x" * 400, b"x" * 800])
    return name


def test_ls_by_model_and_salt(command: Command, stored: str) -> None:
    def groups(*arguments: str) -> list[tuple[str | None, int, int]]:
        by = arguments[1]
        listed = command("ls", "--set", stored, "--json", *arguments)
        assert listed.code == 0
        assert all(0 <= g["newest"] <= g["oldest"] < 60 for g in listed.json)
        return [(g[by], g["objects"], g["bytes"]) for g in listed.json]

    assert groups("--by", "model") == [(None, 1, 800), ("qwen", 1, 400), ("meta/Llama", 2, 300)]
    assert groups("--by", "salt") == [(None, 1, 800), ("tenant", 2, 600), ("", 1, 100)]
    assert groups("--by", "salt", "--model", "meta/Llama") == [("tenant", 1, 200), ("", 1, 100)]
    text = command("ls", "--set", stored, "--by", "model")
    assert text.text.splitlines()[0].split() == ["model", "objects", "bytes", "oldest", "newest"]
    assert "(other keys)" in text.text
    assert "(no salt)" in command("ls", "--set", stored, "--by", "salt").text
    nothing = command("ls", "--set", "empty", "--by", "model")
    assert (nothing.code, nothing.out, nothing.errors) == (0, b"", "no objects\n")
    listed = command("ls", "--set", stored, "--salt", "tenant", "--json").json
    assert {entry["key"] for entry in listed} == {B, C}


def test_ls_shows_both_sizes_where_there_is_a_serde(command: Command) -> None:
    option = ("--set", "both", "--option", 'serde={"type": "fp8", "dtype": "bfloat16"}')
    assert command("put", "-", "--key", A, *option, stdin=b"\x80\x3f" * 5000).code == 0
    listed = command("ls", "--set", "both").text
    assert listed.splitlines()[0].split()[:3] == ["key", "raw", "stored"]
    assert "9.77 KiB  4.88 KiB" in listed
    (group,) = command("ls", "--set", "both", "--by", "model", "--json").json
    assert (group["raw_bytes"], group["bytes"]) == (10_000, 5_000)
    assert "raw" in command("ls", "--set", "both", "--by", "model").text
    unread = command("stat", A, "--set", "both", "--verify", "--json")
    assert unread.code == 0
    assert [c["status"] for c in unread.json["checks"]] == ["ok", "ok", "ok", "skipped"]
    read = command("stat", A, *option, "--verify", "--json")
    assert [c["status"] for c in read.json["checks"]] == ["ok"] * 4


def test_rm_by_selection(command: Command, stored: str) -> None:
    dry = command("rm", "--set", stored, "--salt", "tenant", "--dry-run")
    assert dry.code == 0
    assert set(dry.text.splitlines()) == {B, C}
    assert dry.errors == "would delete 2 objects, 600 B; nothing was changed\n"
    asked = command("rm", "--set", stored, "--salt", "tenant")
    assert asked.code == 2
    assert "--yes: not given" in asked.errors
    assert "delete 2 objects, 600 B?" in asked.errors
    assert len(command("ls", "--set", stored, "--json").json) == 4
    gone = command("rm", "--set", stored, "--salt", "tenant", "--yes", "--json")
    assert gone.code == 0
    assert (set(gone.json["deleted"]), gone.json["missing"]) == ({B, C}, [])
    again = command("rm", "--set", stored, "--salt", "tenant", "-y")
    assert (again.code, again.errors) == (0, "deleted 0 of 0 objects\n")
    assert command("rm", "--set", stored, "--model", "meta/Llama", "-y").code == 0
    assert [e["key"] for e in command("ls", "--set", stored, "--json").json] == [OTHER]
    assert command("rm", "--set", stored, "--prefix", "a n", "-y").code == 0
    assert command("ls", "--set", stored, "--json").json == []


def test_rm_of_keys_as_a_trial(command: Command, stored: str) -> None:
    dry = command("rm", A, "absent", "--set", stored, "--dry-run", "--json")
    assert (dry.code, dry.json) == (1, {"would_delete": [A], "bytes": None})
    assert command("get", A, "--set", stored).code == 0


@pytest.mark.parametrize("arguments", [(), ("key", "--prefix", "k"), ("--prefix", "")])
def test_rm_needs_to_know_what(command: Command, arguments: tuple[str, ...]) -> None:
    result = command("rm", *arguments)
    assert result.code == 2
    assert "expected either keys or at least one of --prefix, --model, --salt" in result.errors


def test_stat_shows_the_checks(command: Command, stored: str, cluster: str) -> None:
    with Store(cluster, set_name=stored) as store:
        store.put(B, bytes(3_000_000))
    text = command("stat", B, "--set", stored, "--verify")
    assert text.code == 0
    for words in (
        "meta/Llama", "tenant", "ok: all 5 are there", "ok: all segments belong to one write",
        "ok: no segment expires before the object", "2.86 MiB loaded and hashed",
    ):  # fmt: skip
        assert words in text.text, words
    details = command("stat", B, "--set", stored, "--json").json
    assert [check["status"] for check in details["checks"]] == ["ok", "ok", "ok"]
    assert [record["sum_agrees"] for record in details["records"]] == [None] + [True] * 4
    assert all(len(record["digest"]) == 40 for record in details["records"])
