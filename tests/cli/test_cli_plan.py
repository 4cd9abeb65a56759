# SPDX-License-Identifier: Apache-2.0
"""plan: the numbers, computed by hand; and that the engine cuts objects the same way."""

from __future__ import annotations

import pytest
from command import Command
from typer.testing import CliRunner

from lmcache_aerospike import Store
from lmcache_aerospike.cli import app
from lmcache_aerospike.commands._sizing import (
    PRESETS,
    Fleet,
    Model,
    conf_lines,
    make_plan,
    segments_of,
    stored_bytes,
)
from lmcache_aerospike.errors import AerospikeConfigError

GIB = 1 << 30
MIB = 1 << 20


def test_bytes_of_a_token() -> None:
    # 2 (K and V) x 32 layers x 8 heads x 128 elements x 2 bytes
    assert PRESETS["llama-3.1-8b"].token_bytes(2) == 131_072
    assert PRESETS["llama-3.1-70b"].token_bytes(2) == 327_680
    assert PRESETS["llama-3.1-8b"].token_bytes(1) == 65_536
    # 61 layers x (512 + 64) elements x 2 bytes: no heads, no factor 2
    assert PRESETS["deepseek-v3"].token_bytes(2) == 70_272
    assert Model(28, 4, 128).token_bytes(2) == 57_344


def test_records_of_an_object() -> None:
    # A limit of 1 MiB leaves 983,040 bytes; 32 MiB are 34.13 times that.
    assert segments_of(32 * MIB, MIB) == (35, 958_699)
    assert segments_of(983_040, MIB) == (1, 983_040)
    assert segments_of(983_041, MIB) == (2, 491_521)
    # A limit of 8 MiB would allow more, but segments aim at 4 MiB.
    assert segments_of(32 * MIB, 8 * MIB) == (8, 4 * MIB)
    assert segments_of(5 * MIB, 8 * MIB) == (2, 5 * MIB // 2)
    # 35 segments: 34 of 958,699 + 80 -> 958,784; the last of 958,666 + 80 -> 958,752;
    # meta 320 + 35 x 8 = 600 -> 608
    assert stored_bytes(32 * MIB, MIB) == 34 * 958_784 + 958_752 + 608
    assert stored_bytes(100, MIB) == 432  # 320 + 8 + 100 = 428


def test_a_fleet_by_hand() -> None:
    # 1,000,000 tokens of llama-3.1-8b: 3,907 chunks of 32 MiB
    fleet = Fleet(
        chunks=3907, replication=2, node_ram=64 * GIB, node_ssd=1000 * GIB, load_rate=1e6, ttl=3907
    )
    plan = make_plan(PRESETS["llama-3.1-8b"], 2, fleet)
    assert plan.chunk_bytes == plan.object_bytes == 32 * MIB
    assert (plan.segments, plan.segment_bytes) == (35, 958_699)
    assert plan.records == 3907 * 36
    assert plan.index_bytes == 3907 * 36 * 64 * 2
    assert plan.payload_bytes == 3907 * 32 * MIB
    assert plan.storage_bytes == 3907 * 33_558_016 * 2
    # 244.2 GiB with copies, 65 % full: 375.7 GiB
    assert plan.nodes_ssd == 1
    assert plan.nodes_memory == 1
    # 1,000,000 tokens a second of 128 KiB are 131 GB/s; a link of 25 Gbit/s gives 2.1875 GB/s.
    # Stores: one chunk a second of 256 tokens, twice; half of that leaves a node again.
    assert plan.load_bytes == 131_072e6
    assert plan.store_bytes == 256 * 131_072 * 2
    assert plan.nodes_link == 60  # 131.1056 / 2.1875 = 59.93
    assert plan.nodes == 60


def test_memory_and_copies_decide_too() -> None:
    small = make_plan(Model(1, 1, 128), 2, Fleet(chunks=1, replication=3))
    assert (small.nodes, small.data_size) == (3, GIB)
    # 100 GiB of payload at 65 % are 154 GiB; 64 GiB nodes give 51.2 GiB each: four
    fleet = Fleet(chunks=3200)
    plan = make_plan(PRESETS["llama-3.1-8b"], 2, fleet)
    assert plan.nodes_memory == plan.nodes == 4
    assert plan.data_size == 39 * GIB  # 153.9 / 4 = 38.5
    lines = conf_lines(plan, fleet, "kv")
    assert lines[0] == "namespace kv {"
    assert "        data-size 39G" in lines
    assert "    nsup-period 120" in lines
    on_ssd = conf_lines(plan, Fleet(chunks=1, node_ssd=GIB), "kv")
    assert "    storage-engine device {" in on_ssd


def test_parts_and_serdes() -> None:
    whole = make_plan(PRESETS["llama-3.1-70b"], 2, Fleet(chunks=10))
    parts = make_plan(PRESETS["llama-3.1-70b"], 2, Fleet(chunks=10, parts=8, ratio=0.5))
    assert parts.objects == 8 * whole.objects == 80
    assert parts.object_bytes == whole.object_bytes // 16 == 5 * MIB
    assert parts.payload_bytes == whole.payload_bytes // 2


@pytest.mark.parametrize("size", [1, 983_040, 983_041, 1_000_000, 5 * MIB + 1, 33 * MIB])
def test_the_engine_cuts_objects_in_the_same_way(cluster: str, size: int) -> None:
    with Store(cluster, set_name="plan") as store:
        store.put("object", bytes(size))
        details = store.inspect("object")
    assert details is not None
    assert (details["segment_count"], details["segment_bytes"]) == segments_of(size, MIB)


def test_the_command(command: Command) -> None:
    wanted = ("plan", "--model", "llama-3.1-8b", "--users", "200", "--context", "32000")
    report = command(*wanted, "--json", hosts="")
    assert (report.code, report.errors) == (0, "")
    assert report.json["token_bytes"] == 131_072
    assert report.json["objects"] == 200 * (32_000 // 256)
    assert report.json["nodes"] == 24
    text = command(*wanted, hosts="")
    assert text.code == 0
    assert "index memory" in text.text
    assert "\n".join(report.json["aerospike_conf"]) in text.text
    assert "default_ttl_seconds=86400" in text.errors
    mla = command(
        "plan", "--layers", "61", "--latent", "576", "--tokens", "256", "--tp", "8", "--json"
    )
    assert (mla.json["objects"], mla.json["token_bytes"]) == (1, 70_272)
    assert command("plan", "--model", "qwen3-8b", "--tokens", "1", "--tp", "8", "--json").json[
        "objects"
    ] == 8  # fmt: skip


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("--tokens", "1"), "--model: not given"),
        (("--model", "unknown", "--tokens", "1"), "--model: 'unknown', expected one of llama"),
        (("--model", "qwen3-8b"), "--tokens: expected either --tokens, or --users and --context"),
        (("--model", "qwen3-8b", "--users", "2", "--context", "9"), "at least one chunk"),
        (("--model", "qwen3-8b", "--tokens", "1", "--dtype", "int3"), "--dtype: 'int3'"),
        (("--model", "qwen3-8b", "--tokens", "1", "--record-size", "9M"), "expected 128K to 8M"),
        (("--model", "qwen3-8b", "--tokens", "1", "--node-ram", "0"), "--node-ram: 0"),
        (("--model", "qwen3-8b", "--tokens", "1", "--node-ram", "much"), "--node-ram: size"),
        (("--layers", "3", "--kv-heads", "2", "--tokens", "1"), "--model: not given"),
    ],
)
def test_usage(arguments: tuple[str, ...], words: str) -> None:
    result = CliRunner().invoke(app, ["plan", *arguments])
    assert isinstance(result.exception, AerospikeConfigError)
    assert words in str(result.exception)


def test_usage_errors_are_exit_code_2(command: Command) -> None:
    result = command("plan", "--tokens", "1", hosts="")
    assert (result.code, result.out) == (2, b"")
    assert result.errors.startswith("lmcache-aerospike: --model: not given")
