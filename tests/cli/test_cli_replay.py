# SPDX-License-Identifier: Apache-2.0
"""replay: hits equal a simulation, every byte is checked, the report says what happened."""

from __future__ import annotations

import collections
import json
import os
import random
import re
import signal
import subprocess
import sys
from collections.abc import Callable
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest
from command import Command

from lmcache_aerospike.commands._replay import charts, summary
from lmcache_aerospike.commands._replay.check import blocks_in
from lmcache_aerospike.commands._replay.content import Content
from lmcache_aerospike.commands._replay.models import MODELS
from lmcache_aerospike.commands._replay.simulate import POLICIES, simulate
from lmcache_aerospike.commands._replay.trace import Request, read_trace

ROOT = Path(__file__).resolve().parents[2]
TRACE = ROOT / "examples/data/mooncake_conversation_400.jsonl"
SMALL = ("--chunk-bytes", "2K", "--check")


def requests(*blocks: list[int], gap: float = 1.0) -> list[Request]:
    return [Request(i * gap, 512 * len(row), 1, tuple(row)) for i, row in enumerate(blocks)]


def write_trace(path: Path, rows: list[Request]) -> Path:
    lines = [
        {
            "timestamp": int(row.arrival * 1000),
            "input_length": row.input_tokens,
            "output_length": row.output_tokens,
            "hash_ids": list(row.blocks),
        }
        for row in rows
    ]
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return path


# ---- the simulation ---------------------------------------------------------------------------


def test_simulation_of_an_endless_cache() -> None:
    found = simulate(requests([1, 2, 3], [1, 2, 4], [2, 1], [1, 2, 3]))
    assert found.hits == [0, 2, 2, 3]
    assert (found.blocks, found.present) == (11, 4)


def test_simulation_of_lives() -> None:
    rows = requests([1], [1], [1, 2], [1])
    assert simulate(rows, ttl=1.5).hits == [0, 1, 0, 1]
    assert simulate(rows, ttl=1.5).expired == 1
    assert simulate(rows, ttl=1.5, refresh=True).hits == [0, 1, 1, 1]
    assert simulate(rows, ttl=1.0).hits == [0, 0, 0, 0]


def test_simulation_of_a_full_cache() -> None:
    rows = requests([1], [2], [1], [3], [2], [1])
    # 3 is refused; it evicts 1, the oldest; it evicts 2, which was not used since.
    assert simulate(rows, capacity=2, policy="refuse").hits == [0, 0, 1, 0, 1, 1]
    assert simulate(rows, capacity=2, policy="ttl").hits == [0, 0, 1, 0, 1, 0]
    assert simulate(rows, capacity=2, policy="lru").hits == [0, 0, 1, 0, 0, 0]


def test_a_full_cache_has_room_again_when_lives_end() -> None:
    rows = requests([1], [2], [3], [3])
    assert simulate(rows, capacity=1, ttl=1.5, policy="refuse").hits == [0, 0, 0, 1]
    assert simulate(rows, capacity=1, ttl=1.5).refused == 1


@pytest.mark.parametrize("policy", POLICIES)
def test_simulation_against_a_plain_one(policy: str) -> None:
    seed = random.SystemRandom().randrange(1 << 32)
    print(f"seed {seed}")
    chance = random.Random(seed)
    rows = requests(*([chance.randrange(9) for _ in range(chance.randrange(6))] for _ in range(80)))
    for capacity in (0, 1, 3, 5, 100):
        for ttl in (2.5, 10.5, float("inf")):
            assert simulate(rows, capacity=capacity, ttl=ttl, policy=policy).hits == plain(
                rows, capacity, ttl, policy
            )


def plain(rows: list[Request], capacity: int, ttl: float, policy: str) -> list[int]:
    """The same by searching lists of [block, (end of life, store), use]."""
    cache: list[list[Any]] = []
    number, hits = 0, []
    for row in rows:
        cache = [entry for entry in cache if entry[1][0] > row.arrival]
        prefix = 0
        while prefix < len(row.blocks) and row.blocks[prefix] in [entry[0] for entry in cache]:
            prefix += 1
        for block in row.blocks[:prefix]:
            number += 1
            next(entry for entry in cache if entry[0] == block)[2] = number
        for block in dict.fromkeys(row.blocks[prefix:]):
            number += 1
            others = [entry for entry in cache if entry[0] != block]
            if len(others) == len(cache) and capacity and len(cache) >= capacity:
                if policy == "refuse":
                    continue
                others.remove(min(others, key=lambda e: e[2] if policy == "lru" else e[1]))
            cache = [*others, [block, (row.arrival + ttl, number), number]]
        hits.append(prefix)
    return hits


def test_a_policy_must_be_known() -> None:
    with pytest.raises(ValueError, match="fifo"):
        simulate([], policy="fifo")


# ---- parts ------------------------------------------------------------------------------------


def test_the_trace_in_the_examples() -> None:
    rows = read_trace(TRACE)
    assert len(rows) == 400
    found = simulate(rows)
    assert (found.blocks, found.hit_blocks) == (11_349, 1_528)
    page = (ROOT / "examples/data/README.md").read_text()
    assert "1,528 of the 11,349 blocks" in page


def test_requests_come_in_order_of_arrival(tmp_path: Path) -> None:
    rows = requests([1], [2])
    write_trace(tmp_path / "trace", [rows[1], rows[0]])
    assert [row.blocks for row in read_trace(tmp_path / "trace")] == [(1,), (2,)]
    assert len(read_trace(tmp_path / "trace", 1)) == 1


def test_contents_are_told_apart() -> None:
    for size in (1, 31, 32, 33, 4096):
        content = Content(size)
        data = bytearray(content.of("a"))
        assert len(data) == size
        assert content.difference("a", memoryview(data)) is None
        data[-1] ^= 1
        assert "1 of" in (content.difference("a", memoryview(data)) or "")
        assert content.difference("a", memoryview(data)[:-1]) is not None
    assert content.difference("b", memoryview(content.of("a"))) is not None


def test_percentiles() -> None:
    found = summary.percentiles([i / 1000 for i in range(1, 101)])
    assert found == {"count": 100, "p50_ms": 50, "p95_ms": 95, "p99_ms": 99, "max_ms": 100}
    assert summary.percentiles([])["max_ms"] == 0


def test_models_say_how_they_were_sized() -> None:
    assert MODELS["llama-3.1-8b"].kv_bytes == 128 << 10
    assert MODELS["llama-3.1-70b"].kv_bytes == 320 << 10
    assert 20_000 < MODELS["llama-3.1-8b"].prefill_rate < 30_000


@pytest.mark.parametrize(
    ("low", "high"), [(0.0, 1.0), (0.0, 11.2), (0.0, 3e9), (0.0, 0.073), (0.0, 5e-324), (1.0, 1.0)]
)
def test_ticks_are_few_and_in_range(low: float, high: float) -> None:
    ticks = charts.Axis("", low, high).ticks()
    assert 1 <= len(ticks) <= 9
    assert all(low <= tick <= high * 1.000001 for tick in ticks)


# ---- the command ------------------------------------------------------------------------------


def test_hits_equal_the_simulation(command: Command) -> None:
    result = command("replay", str(TRACE), *SMALL, "--requests", "200", "--json", hosts="")
    assert result.code == 0, result.errors
    report = result.json
    rows = read_trace(TRACE, 200)
    expected = simulate(rows)
    found = report["result"]
    assert (found["requests"], found["blocks"]) == (200, expected.blocks)
    assert found["hit_blocks"] == expected.hit_blocks
    assert sum(found["misses_by_reason"].values()) == expected.blocks - expected.hit_blocks
    assert found["bytes_loaded"] == expected.hit_blocks * 2048
    assert found["stored_blocks"] == len({block for row in rows for block in row.blocks})
    hit_tokens = sum(
        row.tokens_of(hits, 512) for row, hits in zip(rows, expected.hits, strict=True)
    )
    assert found["hit_tokens"] == hit_tokens
    assert found["wrong_chunks"] == 0
    assert report["check"]["ok"]
    assert "equals that of an independent simulation" in report["check"]["words"]
    assert report["server"]["capacity_bytes"] == 4 << 30
    for name in ("lookup", "load", "store"):
        row = found["latency"][name]
        assert 0 < row["p50_ms"] <= row["p95_ms"] <= row["p99_ms"] <= row["max_ms"]


def test_the_page_stands_alone(command: Command) -> None:
    result = command("replay", str(TRACE), *SMALL, "--requests", "80", "-o", "page", hosts="")
    assert result.code == 0, result.errors
    assert "Every byte that was loaded is the one that was stored." in result.text
    page = (command.folder / "page.html").read_text()
    parser = _Balance()
    parser.feed(page)
    assert parser.open == []
    assert page.count("<svg") == 3
    assert not re.search(r'(src|href)="|url\(|@import', page)
    report = json.loads((command.folder / "page.json").read_text())
    assert f"{report['result']['hit_ratio_blocks']:.2%}" in page
    assert "Queueing" not in page


class _Balance(HTMLParser):
    """Tags that were opened and not closed."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []

    def handle_starttag(self, tag: str, attrs: object) -> None:
        if tag != "meta":
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag


def test_a_pace_is_kept(command: Command) -> None:
    result = command(
        "replay", str(TRACE), *SMALL, "--requests", "60", "--speed", "20", "--json", hosts=""
    )  # fmt: skip
    assert result.code == 0, result.errors
    report = result.json
    span = read_trace(TRACE, 60)[-1].arrival
    assert report["result"]["seconds"] >= span / 20
    assert report["plan"]["speed"] == 20
    assert report["result"]["speed_reached"] <= 21
    assert "Queueing" in (command.folder / "replay.html").read_text()


def test_lives_end(command: Command) -> None:
    # 1 lives for 2 s: it is there after a moment, and gone after 4 s.
    rows = [Request(at, 512, 1, (1,)) for at in (0.0, 0.3, 4.3)]
    write_trace(command.folder / "trace", rows)
    result = command("replay", "trace", *SMALL, "--speed", "1", "--ttl", "2", "--json", hosts="")
    assert result.code == 0, result.errors
    found = result.json["result"]
    assert found["hit_blocks"] == 1
    assert found["misses_by_reason"] == {"first seen": 1, "expired": 1}
    assert result.json["plan"]["ttl_seconds"] == 2


def test_a_full_server(command: Command) -> None:
    result = command(
        "replay", str(TRACE), "--requests", "200", "--chunk-bytes", "64K", "--capacity", "24M",
        "--check", "--json", hosts="",
    )  # fmt: skip
    assert result.code == 0, result.errors
    report = result.json
    assert report["result"]["stored_blocks"] == blocks_in(24 << 20, 64 << 10)
    assert "its store was refused: out of space" in report["result"]["misses_by_reason"]
    # What met the full server, and what was not sent any more.
    refused, shed = sorted(report["result"]["store_errors"], key=lambda text: "shed" in text)
    assert "out of space" in refused
    assert shed == "store: shed: the namespace takes no more writes"
    page = (command.folder / "replay.html").read_text()
    assert refused in page
    assert shed in page


def test_a_cluster_is_left_as_it_was(command: Command) -> None:
    command("put", "-", "--key", "mine", "--set", "replay", stdin=b"x")
    result = command("replay", str(TRACE), *SMALL, "--requests", "50", "--json")
    assert result.code == 0, result.errors
    assert result.json["check"]["ok"]
    assert len(result.json["server"]) == 7
    assert result.json["server"]["nodes"] == 3
    assert [entry["key"] for entry in command("ls", "--set", "replay", "--json").json] == ["mine"]


def test_wrong_bytes_are_named(command: Command, server_factory: Callable[..., object]) -> None:
    fault = "damage,damage=flip_value_bit,kinds=get,set=replay,skip=5"
    hosts = server_factory("--fault", fault).hosts  # type: ignore[attr-defined]
    result = command("replay", str(TRACE), *SMALL, "--requests", "40", hosts=hosts)
    assert result.code == 1
    assert "wrong bytes: replay@" in result.errors
    assert "1 of 2048 bytes differ, the first at offset" in result.errors
    assert 'class="verdict bad"' in (command.folder / "replay.html").read_text()


def test_a_server_that_goes_away(command: Command, server_factory: Callable[..., object]) -> None:
    fault = "stop_node,kinds=batch,skip=100,count=1"
    hosts = server_factory("--fault", fault).hosts  # type: ignore[attr-defined]
    result = command("replay", str(TRACE), *SMALL, "-O", "write_timeout_ms=200", hosts=hosts)
    assert result.code == 3
    assert "10 requests in a row could neither load nor store" in result.errors


def test_ctrl_c_ends_it_with_a_report(command: Command, cluster: str) -> None:
    rows = [Request(at, 512, 1, (1,)) for at in (0.0, 1.0, 1000.0)]
    write_trace(command.folder / "trace", rows)
    set_name = ("--set", "interrupted")
    program = "from lmcache_aerospike.cli import main; main()"
    process = subprocess.Popen(
        [sys.executable, "-c", program, "replay", "trace", *set_name, "--speed", "1", "--json"],
        cwd=command.folder,
        env={**os.environ, "LMCACHE_AEROSPIKE_HOSTS": cluster},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    # The first request has ended when its block is there; then the signal finds it waiting.
    while not command("ls", *set_name, "--json").json:
        assert process.poll() is None
    process.send_signal(signal.SIGINT)
    out, errors = process.communicate(timeout=60)
    assert process.returncode == 0, errors
    assert b"stopping" in errors
    assert 1 <= json.loads(out)["result"]["requests"] <= 2
    assert (command.folder / "replay.html").exists()
    assert command("ls", *set_name, "--json").json == []


def test_simulate_needs_no_server(command: Command) -> None:
    arguments = ("replay", str(TRACE), "--simulate")
    result = command(*arguments, hosts="")
    assert result.code == 0
    assert "13.46% of all blocks are hits" in result.text
    some = command(*arguments, "--capacity", "64M", "--policy", "lru", "--json", hosts="").json
    assert some["capacity_blocks"] == blocks_in(64 << 20, 64 << 10)
    assert some["evicted"] > 0
    assert 0 < some["hit_blocks"] < 1528
    assert list(command.folder.iterdir()) == []


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("absent",), "absent: No such file"),
        (("bad",), "bad:2: '{\"timestamp\": 1' is no request, expected"),
        (("empty",), "empty: no requests"),
        ((str(TRACE), "--speed", "0"), "--speed: '0', expected a number above 0, or max"),
        ((str(TRACE), "--speed", "fast"), "--speed: 'fast'"),
        ((str(TRACE), "--model", "gpt"), "--model: 'gpt', expected one of llama"),
        ((str(TRACE), "--chunk-bytes", "0"), "--chunk-bytes: expected 1 to 256M"),
        ((str(TRACE), "--capacity", "much"), "--capacity: size 'much'"),
        ((str(TRACE), "--policy", "lru"), "--policy: a server has its own"),
        ((str(TRACE), "--speed", "100", "--ttl", "5"), "--ttl: 0.05 s at this speed"),
        ((str(TRACE), "--capacity", "1G", "--hosts", "127.0.0.1:1"), "--capacity: a cluster has"),
    ],
)
def test_usage_errors(command: Command, arguments: tuple[str, ...], words: str) -> None:
    good = '{"timestamp": 0, "input_length": 5, "output_length": 1, "hash_ids": [1]}\n'
    (command.folder / "bad").write_text(good + '{"timestamp": 1')
    (command.folder / "empty").write_text("\n")
    result = command("replay", *arguments, hosts="")
    assert (result.code, result.out) == (2, b"")
    assert words in " ".join(result.errors.split())


def test_no_server(command: Command) -> None:
    result = command("replay", str(TRACE), hosts="127.0.0.1:1")
    assert (result.code, result.out) == (3, b"")
    assert result.errors.count("\n") == 1
    wrong = command("replay", str(TRACE), "--namespace", "nowhere")
    assert wrong.code == 3
    assert "nowhere" in wrong.errors


def test_the_commands_of_the_guide(command: Command) -> None:
    (command.folder / "examples").symlink_to(ROOT / "examples")
    page = (ROOT / "docs/guides/replay.md").read_text()
    lines = re.findall(r"^\$ lmcache-aerospike (.*)$", page, re.MULTILINE)
    assert collections.Counter(line.split()[0] for line in lines) == {"replay": 5}
    for line in lines:
        small = () if "--simulate" in line else ("--chunk-bytes", "4K")
        result = command(*line.split(), *small, hosts="")
        assert result.code == 0, result.errors
    assert (command.folder / "paced.html").exists()
    for example in re.findall(r"```json\n(.*?)```", page, re.DOTALL):
        (command.folder / "one").write_text(example)
        assert read_trace(command.folder / "one")[0].blocks == (0, 41, 42)


def test_refusals_name_the_remedy(command: Command, server_factory: Callable[..., object]) -> None:
    login = {"LMCACHE_AEROSPIKE_USERNAME": "kv", "LMCACHE_AEROSPIKE_PASSWORD": "pw"}
    hosts = server_factory("--user", "kv:pw:read").hosts  # type: ignore[attr-defined]
    for words in (("replay", str(TRACE), *SMALL), ("bench", "--payloads", "4K")):
        result = command(*words, hosts=hosts, **login)
        assert (result.code, result.out) == (3, b"")
        last = result.errors.splitlines()[-1]
        assert last.startswith("lmcache-aerospike: store the meta record: server answered code 81")
    hosts = server_factory("--namespace", "lmcache,nsup=0").hosts  # type: ignore[attr-defined]
    for words in (("replay", str(TRACE), *SMALL), ("bench", "--payloads", "4K")):
        result = command(*words, hosts=hosts)
        assert (result.code, result.out) == (3, b"")
        assert "set nsup-period of the namespace above 0" in result.errors
