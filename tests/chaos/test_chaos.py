# SPDX-License-Identifier: Apache-2.0
"""Some seconds of chaos through Python, and the proof that it can fail.

`make chaos` plays longer, with the C++ part.
"""

from __future__ import annotations

import random
import subprocess
import sys
from pathlib import Path

import given_server
import pytest
from chaos import command, play
from schedule import Recipe, make_schedule
from shrink import Attempt, Shrunk, shrink

HERE = Path(__file__).parent
SECONDS = 10
SEED = random.randrange(1 << 20)


@pytest.fixture(autouse=True)
def _own_server() -> None:
    if given_server.HOSTS:
        given_server.skip("one that events happen to")


def test_schedules_are_those_of_the_cpp_part() -> None:
    text = ""
    for seed, seconds, nodes in ((1, 20, 3), (2, 20, 4), (77, 60, 5)):
        text += f"# {seed} {seconds} {nodes}\n"
        text += "".join(f"{event}\n" for event in make_schedule(Recipe(seed, seconds, nodes)))
    assert (HERE / "schedule_golden.txt").read_text() == text


@pytest.mark.parametrize("culprit", [0, 1, 17, 39])
def test_shrinking_finds_the_shortest_prefix(culprit: int) -> None:
    def attempt(events: int) -> Attempt:
        return Attempt(failed=events > culprit, events=min(events, culprit + 1), why="again")

    found = shrink(Attempt(failed=True, events=40, why="first"), 2, attempt)
    assert found == Shrunk(events=culprit + 1, failures=2, tries=2, why="again")


@pytest.mark.lmcache
@pytest.mark.timeout(300)
def test_some_seconds_leave_nothing_wrong_and_nothing_behind() -> None:
    recipe = Recipe(SEED, SECONDS, 3 + SEED % 3)
    program = [sys.executable, "-W", "ignore", str(HERE / "chaos.py"), "--one"]
    done = subprocess.run(
        [*program, *command(recipe, None)], capture_output=True, text=True, timeout=280, check=False
    )
    again = "again: python tests/chaos/chaos.py " + " ".join(command(recipe, None))
    print(done.stdout)
    assert done.returncode == 0, f"{again}\n{done.stdout}{done.stderr[-3000:]}"
    assert f"applied {len(make_schedule(recipe))}\n" in done.stdout


def test_a_planted_defect_is_found_and_the_schedule_cut_to_what_wakes_it() -> None:
    recipe, culprit = next(
        (recipe, culprit)
        for recipe in (Recipe(seed, 3, 3) for seed in range(100))
        for culprit in [first_hurt(recipe)]
        if 0 < culprit < len(make_schedule(recipe)) - 1
    )

    def attempt(events: int) -> Attempt:
        report = play(recipe, events, ["native"], "flip")
        return Attempt(bool(report.problems), report.events, " ".join(report.problems))

    first = attempt(len(make_schedule(recipe)))
    assert first.failed
    found = shrink(first, 1, attempt)
    assert (found.events, found.failures) == (culprit + 1, 1)
    assert "say version" in found.why


def first_hurt(recipe: Recipe) -> int:
    """The index of the first death or freeze."""
    verbs = [event.verb for event in make_schedule(recipe)]
    return min((verbs.index(verb) for verb in ("stop", "pause") if verb in verbs), default=0)
