# SPDX-License-Identifier: Apache-2.0
"""Chaos through Python: the native connector and LMCache over a cluster that events happen to.

    python tests/chaos/chaos.py --seed 7 --seconds 30 [--nodes 4] [--events 12] [--tries 2]

Plays the schedule of a seed (schedule.py) with every byte of every hit compared. After a failure
the shortest prefix of the schedule that fails again is looked for, and printed with the seed. Every
run is a process of its own.
"""

from __future__ import annotations

import argparse
import collections
import contextlib
import os
import re
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
sys.path[:0] = [
    str(HERE),
    str(HERE.parent),
    str(HERE.parent / "soak"),
    str(HERE.parent / "lmcache"),
]

from schedule import Event, Recipe, make_schedule  # noqa: E402
from server_process import read_ready_line  # noqa: E402
from shrink import Attempt, shrink  # noqa: E402
from soak import MIB, resources  # noqa: E402
from workers import Player, make_players  # noqa: E402

RECOVERY_SECONDS_MAX = 60.0
OPEN_SECONDS_MAX = 60.0
CALM_SECONDS = 1.0
JOIN_SECONDS_MAX = 90.0
# A whole StorageManager comes and goes between the two measurements.
RSS_MARGIN_BYTES = 96 * MIB
VANISH_SECONDS = 5.0
# LMCache keeps every StorageManager of a process in registries of its own, also closed ones, and
# with it our closed store and the few descriptors of that object.
MANAGER_DESCRIPTORS = 8


class Cluster:
    """The server's process."""

    def __init__(self, recipe: Recipe) -> None:
        self.process = subprocess.Popen(
            [sys.executable, str(HERE / "chaos_server.py"), str(recipe.seed), str(recipe.nodes)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
        )
        self.hosts = read_ready_line(self.process)

    def tell(self, command: str) -> str:
        """Sends a command; the answer is empty if all is well."""
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.write(f"{command}\n".encode())
        self.process.stdin.flush()
        answer = self.process.stdout.readline().decode().strip()
        return "" if answer == "ok" else answer or "the server has ended"

    def close(self) -> None:
        """Ends the process."""
        self.process.kill()
        self.process.wait()
        for pipe in (self.process.stdin, self.process.stdout):
            if pipe is not None:
                pipe.close()


@dataclass
class Report:
    """What one run has seen."""

    events: int = 0
    problems: list[str] = field(default_factory=list)
    counts: dict[str, dict[str, int]] = field(default_factory=dict)


class Play:
    """One run: events, and players beside them."""

    def __init__(self, recipe: Recipe, kinds: list[str], defect: str = "") -> None:
        self._cluster = Cluster(recipe)
        self._hurt = threading.Event()
        self._stop = threading.Event()
        self.players = make_players(self._cluster.hosts, recipe, kinds)
        for player in self.players:
            player.plant(defect, self._hurt)

    def run(self, events: list[Event]) -> Report:
        """Ends with the first problem."""
        report = Report()
        threads = [threading.Thread(target=self._play, args=(p,)) for p in self.players]
        try:
            # One after the other: LMCache takes long to start on a busy machine.
            for player, thread in zip(self.players, threads, strict=True):
                thread.start()
                self._await_opened(player, report)
            if not report.problems:
                self._perform(events, report)
            if not self._problems() and not report.problems:
                self._recover(report)
        finally:
            self._stop.set()
            for thread in threads:
                if thread.ident is not None:
                    thread.join(JOIN_SECONDS_MAX)
            stuck = [p.name for p, t in zip(self.players, threads, strict=True) if t.is_alive()]
            report.problems += [f"{name} is stuck" for name in stuck]
            self._cluster.close()
        report.problems += self._problems()
        report.counts = {player.name: dict(player.counts) for player in self.players}
        return report

    def _play(self, player: Player) -> None:
        """Opens, plays and closes; what is raised is a problem."""
        try:
            player.play(self._stop)
        except BaseException as error:
            player.problems.append(f"{player.name}: {error!r}")

    def _problems(self) -> list[str]:
        return [problem for player in self.players for problem in player.problems]

    def _perform(self, events: list[Event], report: Report) -> None:
        begun = time.monotonic()
        for event in events:
            self._sleep_until(begun + event.at_ms / 1000)
            if self._problems() or report.problems:
                return
            if event.verb in ("stop", "pause"):
                self._hurt.set()
            answer = self._cluster.tell(" ".join([event.verb, *event.arguments]))
            if answer:
                report.problems.append(answer)
            report.events += 1
        self._sleep_until(begun + 0.5)

    def _await_opened(self, player: Player, report: Report) -> None:
        deadline = time.monotonic() + OPEN_SECONDS_MAX
        while not player.is_ready and not report.problems:
            if time.monotonic() > deadline or self._problems():
                report.problems.append(f"{player.name} could not begin")
            time.sleep(0.02)

    def _sleep_until(self, moment: float) -> None:
        while (left := moment - time.monotonic()) > 0 and not self._problems():
            time.sleep(min(left, 0.05))

    def _recover(self, report: Report) -> None:
        """After the last event everything works again, for those who went through it all."""
        for command in ("restore", "settled"):
            answer = self._cluster.tell(command)
            if answer:
                report.problems.append(f"{command}: {answer}")
                return
        before = {player.name: player.successes() for player in self.players}
        deadline = time.monotonic() + RECOVERY_SECONDS_MAX
        waiting = list(self.players)
        while waiting and time.monotonic() < deadline and not self._problems():
            waiting = [p for p in waiting if not p.has_recovered(before[p.name])]
            time.sleep(0.05)
        if waiting and not self._problems():
            names = ", ".join(f"{p.name} {p.successes()}" for p in waiting)
            report.problems.append(f"does not work again after the last event: {names}")
        self._sleep_until(time.monotonic() + CALM_SECONDS)


def play(recipe: Recipe, events: int, kinds: list[str], defect: str = "") -> Report:
    """Plays the first events of a schedule."""
    return Play(recipe, kinds, defect).run(make_schedule(recipe)[:events])


def leftover(now: tuple[int, int, int], descriptors: int, threads: int) -> bool:
    """Whether something has not gone yet."""
    return now[1] > descriptors or now[2] > threads


def open_files() -> collections.Counter[str]:
    """What the descriptors of this process stand for, without the numbers of sockets and pipes."""
    found: collections.Counter[str] = collections.Counter()
    for entry in Path("/proc/self/fd").iterdir():
        with contextlib.suppress(OSError):  # that of the listing itself
            found[re.sub(r"[0-9]+", "N", str(entry.readlink()))] += 1
    return found


def play_and_count(recipe: Recipe, events: int, kinds: list[str]) -> Report:
    """The same, after a run without events; what is left over is a problem."""
    report = play(recipe, 0, kinds)
    if report.problems:
        return report
    rss, descriptors, threads = resources()
    before = open_files()
    report = play(recipe, events, kinds)
    if report.problems:
        return report
    deadline = time.monotonic() + VANISH_SECONDS
    while leftover(now := resources(), descriptors, threads) and time.monotonic() < deadline:
        time.sleep(0.1)
    kept = MANAGER_DESCRIPTORS if "lmcache" in kinds else 0
    if now[1] > descriptors + kept:
        more = list((open_files() - before).elements())
        report.problems.append(f"{now[1] - descriptors} more descriptors than before: {more}")
    if now[2] > threads:
        report.problems.append(f"{now[2] - threads} more threads than before the run")
    if now[0] > rss + RSS_MARGIN_BYTES:
        report.problems.append(f"{(now[0] - rss) / MIB:.0f} MiB more than before the run")
    return report


def command(recipe: Recipe, events: int | None) -> list[str]:
    """The arguments that play it again."""
    words = ["--seed", recipe.seed, "--seconds", recipe.seconds, "--nodes", recipe.nodes]
    return [str(word) for word in words + ([] if events is None else ["--events", events])]


def run_apart(recipe: Recipe, events: int | None, *, show: bool) -> Attempt:
    """One run in a process of its own."""
    program = [sys.executable, "-W", "ignore", str(HERE / "chaos.py"), "--one"]
    planned = len(make_schedule(recipe)) if events is None else events
    try:
        done = subprocess.run(
            [*program, *command(recipe, events)],
            capture_output=True,
            text=True,
            env={**os.environ, "LMCACHE_LOG_LEVEL": "ERROR"},
            timeout=recipe.seconds * 3 + 240,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return Attempt(failed=True, events=planned, why="it did not end")
    if show or done.returncode not in (0, 1):
        print(done.stdout + done.stderr[-3000:], flush=True)
    applied = [line.split()[1] for line in done.stdout.splitlines() if line.startswith("applied ")]
    why = [line for line in done.stdout.splitlines() if "PROBLEM" in line]
    return Attempt(
        failed=done.returncode != 0,
        events=int(applied[0]) if applied else planned,
        why=why[0].strip() if why else f"exit code {done.returncode}",
    )


def play_and_shrink(recipe: Recipe, events: int | None, tries: int) -> bool:
    """False after a failure, which is told with the shortest prefix that fails again."""
    print("== chaos.py", *command(recipe, events), flush=True)
    first = run_apart(recipe, events, show=True)
    if not first.failed:
        return True
    print(f"FAILED with seed {recipe.seed} after {first.events} events: {first.why}", flush=True)

    def attempt(count: int) -> Attempt:
        result = run_apart(recipe, count, show=False)
        print(f"  {count} events: {result.why if result.failed else 'good'}", flush=True)
        return result

    shrunk = shrink(first, tries, attempt)
    print(
        f"the shortest prefix has {shrunk.events} events and failed in {shrunk.failures} of "
        f"{shrunk.tries} runs: {shrunk.why}"
    )
    print(*make_schedule(recipe)[: shrunk.events], sep="\n")
    print("again: python tests/chaos/chaos.py", *command(recipe, shrunk.events), flush=True)
    return False


def show(report: Report, planned: int, write: Callable[[str], Any] = print) -> None:
    """For people, and for run_apart()."""
    write(f"{report.events} of {planned} events")
    for name, counts in report.counts.items():
        write(f"  {name}: " + ", ".join(f"{key} {counts[key]}" for key in sorted(counts)))
    for problem in report.problems:
        write(f"  PROBLEM: {problem}")
    write(f"applied {report.events}")


def main() -> int:
    """The command."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--seconds", type=int, default=10)
    parser.add_argument("--nodes", type=int, choices=(3, 4, 5))
    parser.add_argument("--events", type=int)
    parser.add_argument("--tries", type=int, default=2)
    parser.add_argument("--one", action="store_true", help="one run, in this process")
    arguments = parser.parse_args()
    failures = 0
    for seed in range(arguments.seed, arguments.seed + arguments.seeds):
        recipe = Recipe(seed, arguments.seconds, arguments.nodes or 3 + seed % 3)
        planned = len(make_schedule(recipe)[: arguments.events])
        if arguments.one:
            report = play_and_count(recipe, planned, ["native", "lmcache"])
            show(report, planned)
            sys.stdout.flush()
            with contextlib.suppress(Exception):
                # A stuck thread must not keep the process.
                os._exit(1 if report.problems else 0)
        failures += not play_and_shrink(recipe, arguments.events, arguments.tries)
    print(f"chaos.py: {arguments.seeds} seeds of {arguments.seconds} s, {failures} failed")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
