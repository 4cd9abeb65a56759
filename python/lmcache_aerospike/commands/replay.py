# SPDX-License-Identifier: Apache-2.0
"""``replay``: real request traces against a cluster, and a report."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import os
import signal
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from lmcache_aerospike import _native
from lmcache_aerospike.commands._replay import report
from lmcache_aerospike.commands._replay.check import blocks_in, compare
from lmcache_aerospike.commands._replay.driver import Driver, Outcome, Plan, Run
from lmcache_aerospike.commands._replay.models import MODELS
from lmcache_aerospike.commands._replay.simulate import POLICIES, simulate
from lmcache_aerospike.commands._replay.trace import Request, read_trace
from lmcache_aerospike.commands.local_server import local_server
from lmcache_aerospike.commands.session import MISS, Session, stop
from lmcache_aerospike.commands.specs import parse_bytes
from lmcache_aerospike.config import Config
from lmcache_aerospike.errors import AerospikeConfigError

_CHUNK_BYTES_MAX = 256 << 20
_CAPACITY = 4 << 30
_RECORD_BYTES_MAX = 8 << 20

_Trace = Annotated[Path, typer.Argument(help="JSON lines in Mooncake's format.")]
_Requests = Annotated[int, typer.Option(min=0, help="Only the first so many; 0 = all.")]
_Speed = Annotated[str, typer.Option(help="1 = as it was, 10 = ten times as fast, or max.")]
_ChunkBytes = Annotated[str, typer.Option(help="Stand-in for the KV cache of a block.")]
_BlockTokens = Annotated[int, typer.Option(min=1, help="Tokens of a block.")]
_InFlight = Annotated[int, typer.Option(min=1, max=1024, help="Requests under way at once.")]
_Capacity = Annotated[
    str | None,
    typer.Option(help="Of the server that it starts; 4G if not given.", show_default=False),
]
_Ttl = Annotated[
    float | None,
    typer.Option(
        min=0, help="Life of a block in seconds of the trace; 0 = no end.", show_default=False
    ),
]
_Model = Annotated[str, typer.Option(help=f"Whose prefill is saved: {', '.join(MODELS)}.")]
_Rate = Annotated[
    float | None, typer.Option(min=1, help="Prefill rate instead of a model.", show_default=False)
]
_Check = Annotated[bool, typer.Option("--check", help="Compare with a simulation; exit code 1.")]
_Simulate = Annotated[bool, typer.Option("--simulate", help="No server: what would a cache do?")]
_Policy = Annotated[str, typer.Option(help=f"Of a full simulated cache: {', '.join(POLICIES)}.")]
_Output = Annotated[Path, typer.Option("--output", "-o", help="Writes FILE.html and FILE.json.")]


def replay(
    session: Session,
    trace: _Trace,
    requests: _Requests = 0,
    speed: _Speed = "max",
    chunk_bytes: _ChunkBytes = "64K",
    block_tokens: _BlockTokens = 512,
    in_flight: _InFlight = 8,
    capacity: _Capacity = None,
    ttl: _Ttl = None,
    model: _Model = "llama-3.1-8b",
    prefill_tokens_per_second: _Rate = None,
    check: _Check = False,
    only_simulate: _Simulate = False,
    policy: _Policy = "refuse",
    output: _Output = Path("replay"),
) -> None:
    """Play a trace of requests: look up, load and store their blocks, compare every byte.

    Starts a development server unless --hosts names a cluster. Writes a report.
    """
    size = parse_bytes("--chunk-bytes", chunk_bytes)
    room = parse_bytes("--capacity", capacity) if capacity else 0
    pace = _read_speed(speed)
    _refuse(not 1 <= size <= _CHUNK_BYTES_MAX, "--chunk-bytes: expected 1 to 256M")
    _refuse(model not in MODELS, f"--model: '{model}', expected one of {', '.join(MODELS)}")
    _refuse(policy not in POLICIES, f"--policy: expected one of {', '.join(POLICIES)}")
    rows = read_trace(trace, requests)
    if only_simulate:
        _simulate(session, rows, blocks_in(room, size) if room else 0, ttl, policy)
        return
    _refuse(policy != "refuse", "--policy: a server has its own, expected --simulate beside it")
    with _cluster(session, room) as (chosen, what):
        plan = _plan(chosen, pace, size, block_tokens, in_flight, ttl)
        run, cluster = _play(chosen, rows, plan)
    cluster["what"] = what
    document = report.document(trace, rows, run, plan, cluster)
    rate = prefill_tokens_per_second
    document["saved"] = report.saving(document["result"], plan, None if rate else model, rate)
    if check:
        document["check"] = compare(rows, run, plan, cluster["capacity_bytes"])
    files = report.write(document, output)
    report.show(session, document, files)
    if run.wrong or (check and not document["check"]["ok"]):
        stop(MISS)


def _refuse(is_wrong: bool, message: str) -> None:
    if is_wrong:
        raise AerospikeConfigError(message)


def _read_speed(text: str) -> float:
    try:
        value = float("inf") if text.lower() == "max" else float(text)
    except ValueError:
        value = 0.0
    _refuse(not value > 0, f"--speed: '{text}', expected a number above 0, or max")
    return value


def _simulate(
    session: Session, rows: Sequence[Request], room: int, ttl: float | None, policy: str
) -> None:
    """Prints what caches of this capacity and life would do."""
    found = simulate(rows, capacity=room, ttl=ttl or float("inf"), policy=policy)
    tokens = sum(row.input_tokens for row in rows)
    values = {
        "requests": len(rows),
        "blocks": found.blocks,
        "distinct_blocks": len({block for row in rows for block in row.blocks}),
        "tokens": tokens,
        "capacity_blocks": room or None,
        "ttl_seconds": ttl or None,
        "policy": policy,
        "hit_blocks": found.hit_blocks,
        "hit_ratio_blocks": found.hit_ratio,
        "refused": found.refused,
        "evicted": found.evicted,
        "expired": found.expired,
        "present_at_end": found.present,
    }
    if session.json:
        session.write_json(values)
        return
    holds = f"holds {room:,} blocks" if room else "has no limit"
    lives = f"for {ttl:g} s" if ttl else "for ever"
    session.output.print(
        f"{len(rows):,} requests, {found.blocks:,} blocks, {values['distinct_blocks']:,} different."
        f"\nA cache that {holds} and keeps them {lives}: "
        f"[bold]{found.hit_ratio:.2%}[/] of all blocks are hits."
        f"\n{found.refused:,} refused, {found.evicted:,} evicted, {found.expired:,} had expired, "
        f"{found.present:,} present at the end."
    )


@contextlib.contextmanager
def _cluster(session: Session, room: int) -> Iterator[tuple[Session, str]]:
    """The session with the hosts to use, and what they are."""
    set_name = session.set_name or "replay"
    given = session.hosts or os.environ.get("LMCACHE_AEROSPIKE_HOSTS")
    if given:
        _refuse(bool(room), "--capacity: a cluster has its own, expected no --hosts beside it")
        yield dataclasses.replace(session, hosts=given, set_name=set_name), f"a cluster at {given}"
        return
    name = Config.resolve(session.given(), complete=False).values["namespace"]
    namespace = {
        "name": name,
        "size_bytes": room or _CAPACITY,
        "max_record_bytes": _RECORD_BYTES_MAX,
        "nsup_period_s": 10,
    }
    with local_server(namespaces=[namespace]) as hosts:
        yield dataclasses.replace(session, hosts=hosts, set_name=set_name), "a development server"


def _plan(
    session: Session,
    pace: float,
    size: int,
    block_tokens: int,
    in_flight: int,
    ttl: float | None,
) -> Plan:
    values = Config.resolve(session.given()).values
    life = int(values["default_ttl_seconds"])
    if ttl is not None:
        real = ttl if pace == float("inf") else ttl / pace
        _refuse(0 < real < 1, f"--ttl: {real:g} s at this speed, expected at least 1")
        life = round(real) or -1
    salt = f"{os.getpid():x}-{time.time_ns():x}"
    return Plan(size, block_tokens, pace, in_flight, life, values["refresh_ttl_on_read"], salt)


def _play(session: Session, rows: Sequence[Request], plan: Plan) -> tuple[Run, dict[str, Any]]:
    """The run, and what there is to say about the cluster."""
    config = Config.resolve(session.given())
    bar = Progress(
        TextColumn("replay"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeRemainingColumn(),
        console=session.messages,
        transient=True,
        disable=not session.messages.is_terminal,
    )
    with session.open() as store, bar:
        connector = _native.Connector(config.native())
        task = bar.add_task("replay", total=len(rows))
        try:
            drive = _drive(connector, plan, rows, lambda _: bar.advance(task), session)
            run = asyncio.run(drive)
            stats = connector.stats()
        finally:
            connector.close()
        namespace = config.values["namespace"]
        cluster = {
            "namespace": namespace,
            "capacity_bytes": report.capacity_of(store, namespace),
            "nodes": len(stats["nodes"]),
            "requests": stats["requests"],
            "retries": stats["retries"],
            "misses_by_reason": stats["misses_by_reason"],
        }
    return run, cluster


async def _drive(
    connector: _native.Connector,
    plan: Plan,
    rows: Sequence[Request],
    progress: Callable[[Outcome], None],
    session: Session,
) -> Run:
    driver = Driver(connector, plan, progress)

    def interrupt() -> None:
        session.say("stopping; what is under way ends first")
        driver.stop()

    loop = asyncio.get_running_loop()
    loop.add_signal_handler(signal.SIGINT, interrupt)
    try:
        return await driver.play(rows)
    finally:
        loop.remove_signal_handler(signal.SIGINT)
        left = await driver.clean()
        if left:
            session.say(f"{left:,} of the blocks that were stored could not be deleted")
