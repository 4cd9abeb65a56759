# SPDX-License-Identifier: Apache-2.0
"""``bench``: how fast this cluster is, and which segment size suits it."""

from __future__ import annotations

import contextlib
import dataclasses
import os
import time
from collections.abc import Iterator
from datetime import datetime, timezone
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

from lmcache_aerospike import __version__, _native
from lmcache_aerospike.commands import bench_report
from lmcache_aerospike.commands.bench_cases import Buffers, Case, Samples, Shape, verify
from lmcache_aerospike.commands.bench_report import size_text
from lmcache_aerospike.commands.local_server import local_server
from lmcache_aerospike.commands.session import MISS, Session, stop
from lmcache_aerospike.commands.specs import parse_bytes
from lmcache_aerospike.config import Config
from lmcache_aerospike.errors import AerospikeConfigError

_SEGMENT_MIN, _SEGMENT_MAX = 64 << 10, 8 << 20
_PAYLOAD_MAX = 1 << 30
_BATCHES_MAX = 64
# Objects that a run which is killed leaves behind are gone after a quarter of an hour.
_TTL_SECONDS = 900

_Segments = Annotated[str, typer.Option(help="Segment sizes, with commas between.")]
_Payloads = Annotated[str, typer.Option(help="Object sizes, with commas between.")]
_BatchSize = Annotated[int, typer.Option(min=1, max=1024, help="Objects of a batch.")]
_InFlight = Annotated[
    int, typer.Option(min=1, max=4096, help="Objects under way in the sustained phases.")
]
_Memory = Annotated[str, typer.Option(help="Limit of each of two buffers; fewer are under way.")]
_Rounds = Annotated[int, typer.Option(min=1, max=100, help="Each measures all sizes once.")]
_Seconds = Annotated[float, typer.Option(min=1, max=86400, help="Time for all of it.")]
_Output = Annotated[Path, typer.Option("--output", "-o", help="Writes FILE.json and FILE.png.")]


def bench(
    session: Session,
    segments: _Segments = "1M,2M,4M,8M",
    payloads: _Payloads = "256K,4M,16M",
    batch: _BatchSize = 4,
    in_flight: _InFlight = 64,
    memory: _Memory = "256M",
    rounds: _Rounds = 3,
    seconds: _Seconds = 60.0,
    output: _Output = Path("bench"),
) -> None:
    """Measure stores, loads and lookups for several segment sizes, and say which to use.

    Starts a development server unless --hosts names a cluster. Deletes what it stored.
    """
    wanted = _sizes("--segments", segments, _SEGMENT_MIN, _SEGMENT_MAX)
    objects = _sizes("--payloads", payloads, 1, _PAYLOAD_MAX)
    limit = parse_bytes("--memory", memory)
    shapes = [_shape(size, batch, in_flight, limit) for size in objects]
    with _cluster(session, limit) as (chosen, what), contextlib.ExitStack() as open_ones:
        notes = [f"measured on {what}"]
        connectors = _connect(chosen, wanted, open_ones, notes)
        samples, is_right = _measure(chosen, connectors, shapes, rounds, seconds)
        capped = min(c.limits()["max_segment_bytes"] for c in connectors.values())
    rows = [
        bench_report.row(segment, shape, samples[segment, shape.payload])
        for shape in shapes
        for segment in connectors
    ]
    document: dict[str, Any] = {
        "version": __version__,
        "date": datetime.now(timezone.utc).isoformat(timespec="seconds"),
        "notes": notes,
        "segment_bytes": list(connectors),
        "payload_bytes": objects,
        "batch": batch,
        "rounds": rounds,
        "loaded_bytes_right": is_right,
        "rows": rows,
        "recommendation": bench_report.recommend(rows, capped),
    }
    said = bench_report.write(document, output)
    if session.json:
        session.write_json(document)
    else:
        bench_report.show(session, document)
    for line in said:
        session.say(line)
    if not is_right:
        session.say("lmcache-aerospike: bench: loads returned other bytes than were stored")
        stop(MISS)


def _sizes(option: str, text: str, low: int, high: int) -> list[int]:
    sizes = sorted({parse_bytes(option, part) for part in text.split(",")})
    if not low <= sizes[0] or sizes[-1] > high:
        msg = f"{option}: '{text}', expected sizes from {size_text(low)} to {size_text(high)}"
        raise AerospikeConfigError(msg)
    return sizes


def _shape(payload: int, batch: int, in_flight: int, memory: int) -> Shape:
    """As many batches as are wanted and fit into the memory."""
    fit = min(in_flight, memory // payload)
    if fit < batch:
        msg = f"--memory: too small for a batch of {batch} objects of {size_text(payload)}"
        raise AerospikeConfigError(msg)
    return Shape(payload, batch, max(1, min(_BATCHES_MAX, fit // batch)))


@contextlib.contextmanager
def _cluster(session: Session, memory: int) -> Iterator[tuple[Session, str]]:
    """The session with the hosts to use, and what they are."""
    set_name = session.set_name or "bench"
    given = session.hosts or os.environ.get("LMCACHE_AEROSPIKE_HOSTS")
    if given:
        yield (
            dataclasses.replace(session, hosts=given, set_name=set_name),
            f"the cluster at {given}",
        )
        return
    name = Config.resolve(session.given(), complete=False).values["namespace"]
    namespace = {
        "name": name,
        "size_bytes": 4 * memory + (64 << 20),
        "max_record_bytes": 8 << 20,
        "nsup_period_s": 10,
    }
    with local_server(namespaces=[namespace]) as hosts:
        where = "a development server on this machine, which shares its processors"
        yield dataclasses.replace(session, hosts=hosts, set_name=set_name), where


def _connect(
    session: Session, wanted: list[int], open_ones: contextlib.ExitStack, notes: list[str]
) -> dict[int, _native.Connector]:
    """A connector for each segment size that the server allows; tells what became of the others."""
    limits = open_ones.enter_context(session.open()).limits()
    given = session.given()
    given.setdefault("default_ttl_seconds", _TTL_SECONDS)
    found: dict[int, _native.Connector] = {}
    for size in wanted:
        actual = min(size, limits["max_segment_bytes"])
        if actual != size:
            notes.append(
                f"segments of {size_text(size)} are {size_text(actual)} here: "
                f"{limits['record_bytes_source']} of the server is "
                f"{size_text(limits['record_bytes_max'])}"
                + (", measured already" if actual in found else "")
            )
        if actual not in found:
            given["target_segment_bytes"] = actual
            connector = _native.Connector(Config.resolve(given).native())
            open_ones.callback(connector.close)
            found[actual] = connector
    return found


def _measure(
    session: Session,
    connectors: dict[int, _native.Connector],
    shapes: list[Shape],
    rounds: int,
    seconds: float,
) -> tuple[dict[tuple[int, int], Samples], bool]:
    """Goes through all sizes in each round, so that what else the machine does meets all alike."""
    buffers = Buffers(max(shape.objects * shape.payload for shape in shapes))
    samples = {(s, shape.payload): Samples() for s in connectors for shape in shapes}
    run = f"bench@{os.getpid():x}-{time.time_ns():x}"
    cases = len(samples) * rounds
    deadline = time.monotonic() + seconds
    is_right = True
    bar = Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        TimeRemainingColumn(),
        console=session.messages,
        transient=True,
        disable=not session.messages.is_terminal,
    )
    with bar:
        task = bar.add_task("bench", total=cases)
        for number in range(rounds):
            for shape in shapes:
                order = list(connectors.items())
                at = number % len(order)  # no size is always the first one
                for segment, connector in order[at:] + order[:at]:
                    title = f"objects of {size_text(shape.payload)} in {size_text(segment)}"
                    bar.update(task, description=title)
                    share = max(0.0, deadline - time.monotonic()) / cases
                    case = Case(connector, shape, buffers, f"{run}@{number}@{segment:x}")
                    with case:
                        case.measure(samples[segment, shape.payload], share)
                        is_right = is_right and verify(buffers, shape)
                    cases -= 1
                    bar.advance(task)
    return samples, is_right
