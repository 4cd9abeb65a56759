# SPDX-License-Identifier: Apache-2.0
"""What happens to loads and stores while nodes die, freeze and return.

Plays the events of a real cluster on the development server, with that cluster's timings, under a
light load through our store and, beside it, the same load through the official client. Writes a
table: failed and slow loads, failed stores, seconds until all was well again, wrong bytes.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import cluster_table
import results
from cluster_clients import OFFICIAL, OURS
from cluster_map import MapWatcher

HERE = Path(__file__).resolve().parent
SETTLE_SECONDS_MAX = 120.0
AFTERMATH_SECONDS = 1.5
START_SECONDS_MAX = 60.0


@dataclass(frozen=True)
class Event:
    """What is done to a cluster: moments in seconds and commands of the server, then the end.

    `seconds` is how long it lasts; 0 = until the cluster is settled. Loads of objects that were
    stored are hits afterwards, unless the event `loses` data.
    """

    name: str
    steps: tuple[tuple[float, str, int], ...]
    seconds: float = 0.0
    loses: bool = False


SPARE = 3  # a fourth node, which is not there at first

# As recorded, with nodes by number; 2 is the principal, as the node with the highest name.
EVENTS = (
    Event("steady", (), 6.0),
    Event("a node dies", ((0, "stop", 0),)),
    Event("it starts again, empty", ((0, "start", 0),)),
    Event("a node is stopped (SIGTERM)", ((0, "stop", 1),)),
    Event("it starts again", ((0, "start", 1),)),
    Event("the principal dies", ((0, "stop", 2),)),
    Event("the principal starts again", ((0, "start", 2),)),
    Event("a node freezes for 1 s", ((0, "pause", 1), (1.0, "resume", 1)), 5.0),
    Event("a node freezes for 8 s", ((0, "pause", 1),), 8.0),
    Event("it goes on, with old map and data", ((0, "resume", 1),)),
    Event("a node dies and is back after 0.2 s", ((0, "stop", 0), (0.2, "start", 0))),
    Event("one dies, then another", ((0, "stop", 2), (20.0, "stop", 0))),
    Event("both start again", ((0, "start", 2), (0.05, "start", 0))),
    Event("two of three die at once", ((0, "stop", 0), (0.01, "stop", 1)), loses=True),
    Event("both start again, empty", ((0, "start", 0), (0.05, "start", 1)), loses=True),
    Event("a node is added", ((0, "start", SPARE),)),
    Event("a node leaves, its data first", ((0, "remove", SPARE),)),
    Event(
        "all die, and start 10 s later",
        tuple((0.0, "stop", node) for node in range(3))
        + tuple((10.0, "start", node) for node in range(3)),
        loses=True,
    ),
)

# With one copy of everything.
SINGLE_COPY = (
    Event("one copy: a node dies", ((0, "stop", 0),), loses=True),
    Event("one copy: it starts again, empty", ((0, "start", 0),)),
    Event("one copy: a node freezes for 1 s", ((0, "pause", 1), (1.0, "resume", 1)), 5.0),
)

QUICK = {"steady", "a node dies", "it starts again, empty"}


class LoadProcess:
    """One client under load."""

    def __init__(self, kind: str, hosts: str, folder: Path) -> None:
        self.kind = kind
        self._output = folder / f"{kind}.json"
        program = [sys.executable, str(HERE / "cluster_load.py"), kind, hosts, str(self._output)]
        self._process = subprocess.Popen(
            program, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )

    def answer(self) -> dict[str, Any]:
        """Waits for the line that says that all objects are stored."""
        assert self._process.stdout is not None
        answer: dict[str, Any] = json.loads(self._process.stdout.readline())
        return answer

    def refill(self) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write("refill\n")
        self._process.stdin.flush()

    def end(self) -> list[Any]:
        """Ends the load; returns what became of every operation."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        if self._process.wait(60) != 0:
            message = f"the load of {self.kind} failed"
            raise RuntimeError(message)
        operations: list[Any] = json.loads(self._output.read_text())
        return operations

    def kill(self) -> None:
        if self._process.poll() is None:
            self._process.kill()
            self._process.wait()


def say(text: str) -> None:
    sys.stderr.write(text + "\n")
    sys.stderr.flush()


def obey(server: Any, verb: str, node: int) -> None:
    getattr(server, f"{verb}_node")(node)


def play(server: Any, event: Event) -> tuple[float, float]:
    """Does what the event says, and waits until it is over; its first and its last moment."""
    begin = time.monotonic()
    for moment, verb, node in event.steps:
        time.sleep(max(0.0, begin + moment - time.monotonic()))
        obey(server, verb, node)
    if event.seconds > 0:
        time.sleep(max(0.0, begin + event.seconds - time.monotonic()))
    else:
        server.await_settled(SETTLE_SECONDS_MAX)
        time.sleep(AFTERMATH_SECONDS)
    return begin, time.monotonic()


def play_all(events: Sequence[Event], replication: int) -> list[dict[str, Any]]:
    """Plays events one after the other; a row of the table for each."""
    from lmcache_aerospike.devserver import DevServer

    spans = []
    with (
        tempfile.TemporaryDirectory() as name,
        DevServer(nodes=3, spare_nodes=1, replication=replication) as dev,
    ):
        seeds = ",".join(f"{host}:{port}" for host, port in dev.endpoints()[:SPARE])
        loads = [LoadProcess(kind, seeds, Path(name)) for kind in (OURS, OFFICIAL)]
        watcher = MapWatcher(dev.endpoints())
        try:
            for load in loads:
                load.answer()
            for event in events:
                say(event.name)
                spans.append((event, *play(dev, event)))
                if event.loses or len(spans) == len(events):
                    for load in loads:
                        load.refill()
                    for load in loads:
                        load.answer()
            operations = {load.kind: load.end() for load in loads}
        finally:
            watcher.stop()
            for load in loads:
                load.kill()
    return [
        cluster_table.row(
            event.name, operations, begin, end, watcher.seconds_wrong(begin, end), event.loses
        )
        for event, begin, end in spans
    ]


def start_in_process(kind: str, **options: Any) -> subprocess.Popen[str]:
    program = [sys.executable, str(HERE / "cluster_clients.py"), kind, json.dumps(options)]
    return subprocess.Popen(program, stdout=subprocess.PIPE, text=True)


def try_starts(title: str, variants: Sequence[tuple[str, dict[str, Any]]]) -> list[dict[str, Any]]:
    """Starts clients at the same time; how long each took and what it said."""
    processes = [(kind, options, start_in_process(kind, **options)) for kind, options in variants]
    rows = []
    for kind, options, process in processes:
        try:
            text, _ = process.communicate(timeout=START_SECONDS_MAX)
            result = json.loads(text)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
            result = {"error": "hangs", "works": False, "seconds": START_SECONDS_MAX}
        wait = options.get("start_timeout_ms", 0)
        rows.append({**result, "client": kind, "start": title, "start_timeout_ms": wait})
    return rows


def starts(with_wait: bool) -> list[dict[str, Any]]:
    """A start while some or all of the seeds are away."""
    from lmcache_aerospike.devserver import DevServer

    rows = []
    with DevServer(nodes=3) as dev:
        plain = {"hosts": dev.hosts, "set_name": "starts"}
        both: list[tuple[str, dict[str, Any]]] = [(OURS, plain), (OFFICIAL, plain)]
        dev.stop_node(0)
        rows += try_starts("the first seed died just now", both)
        dev.await_settled(SETTLE_SECONDS_MAX)
        rows += try_starts("the first seed is dead", both)
        dev.stop_node(1)
        dev.await_settled(SETTLE_SECONDS_MAX)
        rows += try_starts("only one of three seeds lives, alone", both)
        dev.stop_node(2)
        rows += try_starts("all seeds are dead", both)
        dev.start_node(0)
        dev.start_node(1)
        dev.start_node(2)
        rows += try_starts("all seeds start at this moment", both)
        dev.await_settled(SETTLE_SECONDS_MAX)
        dev.pause_node(0)
        rows += try_starts("the first seed is frozen", both)
        dev.resume_node(0)
        dev.await_settled(SETTLE_SECONDS_MAX)
        if with_wait:
            rows += wait_for_seeds(dev, plain)
    return rows


def wait_for_seeds(dev: Any, plain: dict[str, Any]) -> list[dict[str, Any]]:
    """All seeds come back after ten seconds; ours was told to wait for them."""
    import threading

    for node in range(3):
        dev.stop_node(node)

    def start_all() -> None:
        for node in range(3):
            dev.start_node(node)

    timer = threading.Timer(10.0, start_all)
    timer.start()
    waiting = {**plain, "start_timeout_ms": 30000}
    rows = try_starts(
        "all seeds are dead for 10 s", [(OURS, waiting), (OURS, plain), (OFFICIAL, plain)]
    )
    timer.join()
    return rows


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--quick", action="store_true", help="half a minute: one node dies")
    parser.add_argument("--only", help='events whose name contains this; "seed": starts alone')
    parser.add_argument("--output", type=Path, default=HERE / "results")
    parser.add_argument("--docs", type=Path, help="write the table into this page, too")
    parser.add_argument(
        "--from", dest="source", type=Path, help="with --docs: cluster_events.json of a run"
    )
    return parser.parse_args()


def chosen(events: Sequence[Event], arguments: argparse.Namespace) -> list[Event]:
    if arguments.quick:
        return [event for event in events if event.name in QUICK]
    if arguments.only:
        return [event for event in events if arguments.only in event.name]
    return list(events)


def main() -> int:
    arguments = parse_arguments()
    if arguments.source is not None:
        cluster_table.write_page(json.loads(arguments.source.read_text()), arguments.docs)
        return 0
    begun = time.monotonic()
    report: dict[str, Any] = {"machine": results.machine(), "events": [], "starts": []}
    for events, replication in ((EVENTS, 2), (SINGLE_COPY, 1)):
        played = chosen(events, arguments)
        report["events"] += play_all(played, replication) if played else []
    if not arguments.quick and (not arguments.only or arguments.only == "seed"):
        from lmcache_aerospike._options import BY_NAME

        report["starts"] = starts("start_timeout_ms" in BY_NAME)
    report["seconds"] = round(time.monotonic() - begun, 1)
    arguments.output.mkdir(parents=True, exist_ok=True)
    (arguments.output / "cluster_events.json").write_text(json.dumps(report, indent=1) + "\n")
    text = cluster_table.tables(report)
    (arguments.output / "cluster_events.md").write_text(text)
    if arguments.docs is not None:
        cluster_table.write_page(report, arguments.docs)
    sys.stdout.write(text)
    wrong = sum(row[kind]["wrong"] for row in report["events"] for kind in (OURS, OFFICIAL))
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
