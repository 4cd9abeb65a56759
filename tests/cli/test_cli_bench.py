# SPDX-License-Identifier: Apache-2.0
"""bench: numbers for all sizes, a recommendation with a margin, and nothing left behind."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from command import Command

import lmcache_aerospike
from lmcache_aerospike.commands import bench_report
from lmcache_aerospike.commands.bench_cases import Buffers, Shape, verify

ROOT = Path(__file__).resolve().parents[2]
QUICK = ("--rounds", "2", "--seconds", "1", "--memory", "8M", "--batch", "2")


def test_bench_on_a_server_of_its_own(command: Command) -> None:
    pytest.importorskip("matplotlib")
    result = command("bench", *QUICK, "--payloads", "64K,2M", "-o", "numbers", "--json", hosts="")
    assert result.code == 0, result.errors
    document = result.json
    assert document == json.loads((command.folder / "numbers.json").read_text())
    assert document["segment_bytes"] == [1 << 20, 2 << 20, 4 << 20, (8 << 20) - (64 << 10)]
    assert len(document["rows"]) == 8
    assert document["loaded_bytes_right"] is True
    for row in document["rows"]:
        for phase in bench_report.PHASES:
            cell = row["latency"][phase]
            assert cell["count"] >= 1
            assert 0 < cell["p50_ms"] <= cell["p95_ms"] <= cell["p99_ms"]
        for name in ("store", "load"):
            assert len(row["bytes_per_second"][name]["values"]) == 2
            assert row["bytes_per_second"][name]["median"] > 1 << 20
            assert row["cpu_seconds_per_gib"][name] > 0
    assert {row["objects_in_flight"] for row in document["rows"]} == {64, 4}
    assert document["recommendation"]["segment_bytes"]
    assert (command.folder / "numbers.png").read_bytes().startswith(b"\x89PNG")


def test_bench_on_a_cluster_leaves_nothing_there(command: Command) -> None:
    command("put", "-", "--key", "mine", "--set", "bench", stdin=b"x")
    result = command("bench", *QUICK, "--payloads", "64K,3M")
    assert result.code == 0, result.errors
    # The server's limit is 1 MiB: all four are one and the same.
    assert result.text.count("are 960 KiB here: max-record-size of the server is 1 MiB") == 4
    assert result.text.count("measured already") == 3
    assert "keep target_segment_bytes at 960 KiB" in result.text
    assert "max-record-size of the namespace to 8M in aerospike.conf" in result.text.replace(
        "\n", " "
    )
    assert "load, all misses" in result.text
    assert [entry["key"] for entry in command("ls", "--set", "bench", "--json").json] == ["mine"]


def test_bench_without_matplotlib(command: Command) -> None:
    (command.folder / "matplotlib.py").write_text("raise ImportError('none')")
    path = f"{command.folder}:{Path(lmcache_aerospike.__file__).parents[1]}"
    result = command("bench", *QUICK, "--payloads", "4K", "--segments", "1M", PYTHONPATH=path)
    assert result.code == 0, result.errors
    assert "no plot: it needs matplotlib" in result.errors
    assert not (command.folder / "bench.png").exists()
    assert (command.folder / "bench.json").exists()


def test_bench_keeps_to_its_time(command: Command) -> None:
    started = time.monotonic()
    arguments = ("--seconds", "2", "--payloads", "64K", "--segments", "256K,1M", "--memory", "8M")
    assert command("bench", *arguments, hosts="").code == 0
    assert 2 < time.monotonic() - started < 20


def test_bench_on_a_full_server(command: Command, server_factory: Callable[..., object]) -> None:
    hosts = server_factory("--namespace", "lmcache,size=4M").hosts  # type: ignore[attr-defined]
    result = command("bench", *QUICK, "--payloads", "2M", hosts=hosts)
    assert result.code == 3
    assert "out of space" in result.errors
    assert command("ls", "--set", "bench", "--json", hosts=hosts).json == []


def test_bench_sees_wrong_bytes(command: Command, server_factory: Callable[..., object]) -> None:
    fault = "damage,damage=flip_value_bit,kinds=get,set=bench"
    hosts = server_factory("--fault", fault).hosts  # type: ignore[attr-defined]
    result = command("bench", *QUICK, "--payloads", "64K", "--segments", "1M", hosts=hosts)
    assert result.code == 1
    assert "other bytes than were stored" in result.errors


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("--segments", "1K"), "--segments: '1K', expected sizes from 64 KiB to 8 MiB"),
        (("--segments", "1M,,2M"), "--segments: size ''"),
        (("--payloads", "0"), "--payloads: '0'"),
        (("--payloads", "many"), "--payloads: size 'many'"),
        (("--memory", "1M"), "--memory: too small for a batch of 4 objects of 4 MiB"),
        (("--seconds", "0"), "--seconds"),
        (("--set", "s" * 70), "option 'set_name'"),
    ],
)
def test_usage_errors(command: Command, arguments: tuple[str, ...], words: str) -> None:
    result = command("bench", "--payloads", "4M", *arguments)
    assert (result.code, result.out) == (2, b"")
    assert words in " ".join(result.errors.split())


def test_no_server(command: Command) -> None:
    result = command("bench", hosts="127.0.0.1:1")
    assert (result.code, result.out) == (3, b"")
    assert result.errors.count("\n") == 1


def test_the_comparison_sees_what_was_not_loaded() -> None:
    shape = Shape(100, 3, 2)
    buffers = Buffers(1000)
    assert not verify(buffers, shape)
    buffers.target[:600] = buffers.source[:600]
    assert verify(buffers, shape)
    buffers.target[599] ^= 1
    assert not verify(buffers, shape)
    slots = [slot for n in range(2) for slot in buffers.slots(buffers.source, shape, n)]
    assert b"".join(slots) == bytes(buffers.source[:600])


def rows_of(rates: dict[int, list[float]]) -> list[dict[str, Any]]:
    return [
        {
            "segment_bytes": segment,
            "payload_bytes": 1 << 20,
            "bytes_per_second": {name: {"values": values} for name in ("store", "load")},
        }
        for segment, values in rates.items()
    ]


def test_the_default_stays_unless_another_is_clearly_better() -> None:
    usual = bench_report.DEFAULT
    large = 8 << 20
    close = bench_report.recommend(rows_of({usual: [100, 100], large: [150, 119]}), large)
    assert close["segment_bytes"] == usual
    assert close["gains"] == {str(large): [1.5, 1.19, 1.5, 1.19]}
    clear = bench_report.recommend(rows_of({usual: [100, 100], large: [150, 121]}), large)
    assert clear["segment_bytes"] == large
    assert "at least 21%" in clear["words"]
    none = bench_report.recommend(rows_of({1 << 20: [100], large: [300]}), large)
    assert none["segment_bytes"] is None


def test_the_command_of_the_page(command: Command) -> None:
    page = (ROOT / "docs/reference/cli.md").read_text()
    section = page.split("## bench", 1)[1].split("\n## ", 1)[0]
    (line,) = re.findall(r"^\$ lmcache-aerospike (bench.*)$", section, re.MULTILINE)
    # As it stands, but shorter.
    words = [*line.split()[:-2], "--seconds", "1", "--rounds", "1", "--memory", "16M"]
    assert line.split()[-2] == "--seconds"
    result = command(*words, hosts="")
    assert result.code == 0, result.errors
