# SPDX-License-Identifier: Apache-2.0
"""``fsck``: what in the set belongs to nobody, cannot be loaded, or ends at the wrong time."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text

from lmcache_aerospike._native import Survey
from lmcache_aerospike.commands._verify import Verifier
from lmcache_aerospike.commands.progress import StepBar
from lmcache_aerospike.commands.session import (
    MISS,
    UNAVAILABLE,
    Session,
    bytes_text,
    confirm,
    duration_text,
    stop,
)
from lmcache_aerospike.errors import AerospikeConnectorError
from lmcache_aerospike.store import Store

if TYPE_CHECKING:
    from lmcache_aerospike._native import Finding, RecordVersion, SurveyReport

# A store has ended by then, unless its process had gigabytes under way over a slow link.
_GRACE_REPORT = 60
_GRACE_REPAIR = 600
_TICK_SECONDS = 0.2
_REMOVE_BATCH = 10_000

_DAMAGED = ("bad_meta", "segment_missing", "segment_sum", "payload")
_REMOVED = ("orphan", *_DAMAGED)
# Of these a healthy cluster under load has some for a moment.
_MOVING = ("orphan", *_DAMAGED, "expires_early", "expires_never")
_EXPECTED = ("foreign",)

_MEANING = {
    "orphan": "segments that no object names",
    "foreign": "records of others, or of writers without sums",
    "bad_meta": "objects whose meta record is invalid or not ready",
    "segment_missing": "objects that lack segments",
    "segment_sum": "objects with segments of another write",
    "payload": "objects whose bytes do not match their sums",
    "expires_early": "objects whose segments expire before them",
    "expires_never": "objects that expire, but their segments do not",
    "no_expiry": "objects that never expire, though default_ttl_seconds is above 0",
}


@dataclass
class Outcome:
    """What a run has found, and done.

    Attributes:
        report: The last survey.
        findings: Those that both surveys agree on.
        counts: Of all findings by kind, also of those that are not listed.
        unconfirmed: How many of the first survey the second one did not see again.
        grace: Seconds between the two surveys; None if one was enough.
        verified: Objects that were loaded and hashed; None if that was not asked for.
        skipped: Objects that could not be: no key, or another serde than that of the options.
        removed: Records that were removed; None if nothing was to be removed.
        kept: Records that were to be removed, but had gone or were written again.
    """

    report: SurveyReport
    findings: list[Finding]
    counts: dict[str, int]
    unconfirmed: int = 0
    grace: int | None = None
    verified: int | None = None
    skipped: int = 0
    removed: int | None = None
    kept: int = 0


def fsck(
    session: Session,
    verify: Annotated[
        bool, typer.Option("--verify", help="Also load and hash every object.")
    ] = False,
    repair: Annotated[
        bool, typer.Option("--repair", help="Remove orphans and damaged objects.")
    ] = False,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False,
    grace: Annotated[
        int | None,
        typer.Option(
            min=0,
            help="Seconds after which all is looked at again before it counts as wrong; "
            "60, with --repair 600.",
            show_default=False,
        ),
    ] = None,
    examples: Annotated[int, typer.Option(min=0, help="Shown of each kind.")] = 5,
) -> None:
    """Look for orphaned segments, damaged objects and wrong expiry. Exit code 1 if there are some.

    Safe while writers are at work: what looks wrong is looked at again after a grace time, and only
    records that nobody has written since are removed.
    """
    pause = grace if grace is not None else _GRACE_REPAIR if repair else _GRACE_REPORT
    with session.open():  # keeps the engine that all steps share
        _run(session, verify, repair, yes, pause, examples)


def _run(
    session: Session, verify: bool, repair: bool, yes: bool, pause: int, examples: int
) -> None:
    options = session.resolved().native()
    survey, report = _look(session.messages, options, "scan")
    outcome = Outcome(report, report["findings"], dict(report["counts"]))
    if _candidates(report):
        survey, outcome = _look_again(session, options, report, pause)
    if verify:
        _verify(session, outcome, pause)
    wrong = {kind: n for kind, n in outcome.counts.items() if n and kind not in _EXPECTED}
    if repair:
        _repair(survey, outcome, yes)
    _show(session, outcome, examples)
    if report["unexamined"]:
        session.say(f"{report['unexamined']} records could not be read; run it again")
        stop(UNAVAILABLE)
    if any(kind not in _REMOVED for kind in wrong) or (wrong and not repair) or outcome.kept:
        stop(MISS)


def _look(console: Console, options: dict[str, Any], title: str) -> tuple[Survey, SurveyReport]:
    survey = Survey(options)
    with StepBar(console, title) as bar:
        while survey.step():
            bar.update(survey.progress())
    return survey, survey.report()


def _candidates(report: SurveyReport) -> int:
    return sum(report["counts"][kind] for kind in _MOVING if kind in report["counts"])


def _identity(finding: Finding) -> tuple[str, str, int, tuple[tuple[str, int], ...]]:
    segments = tuple((s["digest"], s["generation"]) for s in finding["segments"])
    return finding["kind"], finding["digest"], finding["generation"], segments


def _look_again(
    session: Session, options: dict[str, Any], first: SurveyReport, grace: int
) -> tuple[Survey, Outcome]:
    """What both surveys have seen in the same state has not been under way."""
    _wait(session, _candidates(first), grace)
    survey, second = _look(session.messages, options, "scan again")
    seen = {_identity(finding) for finding in first["findings"]}
    confirmed = [
        finding
        for finding in second["findings"]
        if finding["kind"] not in _MOVING or _identity(finding) in seen
    ]
    counts = dict(second["counts"])
    for kind in _MOVING:
        listed = sum(finding["kind"] == kind for finding in second["findings"])
        if kind in counts and listed == counts[kind]:  # else some are counted only
            counts[kind] = sum(finding["kind"] == kind for finding in confirmed)
    before = sum(finding["kind"] in _MOVING for finding in first["findings"])
    after = sum(finding["kind"] in _MOVING for finding in confirmed)
    return survey, Outcome(second, confirmed, counts, max(0, before - after), grace)


def _wait(session: Session, candidates: int, grace: int) -> None:
    session.say(
        f"{candidates} candidates; looking again in {duration_text(grace)}, since stores under way "
        "look alike (--grace changes that)"
    )
    end = time.monotonic() + grace
    with StepBar(session.messages, "wait") as bar:
        while (left := end - time.monotonic()) > 0:
            bar.update(1 - left / grace)
            time.sleep(min(_TICK_SECONDS, left))


def _verify(session: Session, outcome: Outcome, grace: int) -> None:
    """Loads every object with all checks; what fails is loaded again after the grace."""
    known = {finding["digest"] for finding in outcome.findings if finding["kind"] in _DAMAGED}
    has_serde = session.resolved().values["serde"] is not None
    with Store(**{**session.given(), "verify": "full"}) as store:
        verifier = Verifier(store, known, has_serde=has_serde)
        with StepBar(session.messages, "verify") as bar:
            found = verifier.run(bar.update)
        if found:
            _wait(session, len(found), grace)
            confirmed = verifier.again(found)
            outcome.unconfirmed += len(found) - len(confirmed)
            outcome.grace = grace
            outcome.findings += confirmed
            outcome.counts["payload"] = len(confirmed)
    outcome.verified, outcome.skipped = verifier.verified, verifier.skipped


def _repair(survey: Survey, outcome: Outcome, yes: bool) -> None:
    orphans = [f for f in outcome.findings if f["kind"] == "orphan"]
    damaged = [f for f in outcome.findings if f["kind"] in _DAMAGED]
    outcome.removed = 0
    if not orphans and not damaged:
        return
    confirm(f"remove {len(orphans)} orphans and {len(damaged)} damaged objects?", yes=yes)
    outcome.removed, outcome.kept = _remove(survey, orphans)
    # Meta records first: a reader must not find what it cannot load, and if somebody has stored
    # the object again, its segments stay.
    for batch in _batches(damaged):
        gone = survey.remove(batch)
        segments: list[RecordVersion] = []
        for finding, result in zip(batch, gone, strict=True):
            if isinstance(result, AerospikeConnectorError):
                raise result
            if result:
                outcome.removed += 1
                segments += finding["segments"]
            else:
                outcome.kept += 1
        removed, _ = _remove(survey, segments)
        outcome.removed += removed


def _remove(survey: Survey, records: Iterable[RecordVersion]) -> tuple[int, int]:
    """How many were removed, and how many had changed."""
    removed = 0
    kept = 0
    for batch in _batches(list(records)):
        for result in survey.remove(batch):
            if isinstance(result, AerospikeConnectorError):
                raise result
            removed += result
            kept += not result
    return removed, kept


def _batches(records: list[Any]) -> Iterator[list[Any]]:
    for start in range(0, len(records), _REMOVE_BATCH):
        yield records[start : start + _REMOVE_BATCH]


def _show(session: Session, outcome: Outcome, examples: int) -> None:
    report = outcome.report
    if session.json:
        session.write_json(
            {
                "objects": report["objects"],
                "bytes": report["bytes"],
                "segment_records": report["segment_records"],
                "counts": outcome.counts,
                "findings": _some_of_each(outcome.findings, examples),
                "unconfirmed": outcome.unconfirmed,
                "grace_seconds": outcome.grace,
                "can_tell_orphans": report["can_tell_orphans"],
                "unexamined": report["unexamined"],
                "verified": outcome.verified,
                "skipped": outcome.skipped,
                "removed": outcome.removed,
                "kept": outcome.kept,
            }
        )
        return
    session.say(
        f"{report['objects']} objects, {bytes_text(report['bytes'])}, "
        f"{report['segment_records']} segment records"
    )
    if outcome.verified is not None:
        session.say(f"{outcome.verified} objects were loaded and hashed")
        if outcome.skipped:
            session.say(
                f"{outcome.skipped} were not: they carry no key, or need --option serde=..."
            )
    if not report["can_tell_orphans"]:
        session.say(
            f"{report['keyless']} objects carry neither key nor sums: any segment may be theirs, "
            "orphans were not looked for (store with send_key=true)"
        )
    session.output.print(_table(outcome, examples))
    if outcome.removed is not None:
        session.say(f"removed {outcome.removed} records")
    if outcome.kept:
        session.say(f"{outcome.kept} records have changed meanwhile and stay; run it again")
    wrong = any(outcome.counts.get(kind) for kind in _REMOVED)
    if outcome.removed is None and wrong:
        session.say("--repair removes orphans and damaged objects")


def _some_of_each(findings: list[Finding], examples: int) -> list[Finding]:
    shown: dict[str, int] = {}
    out = []
    for finding in findings:
        shown[finding["kind"]] = shown.get(finding["kind"], 0) + 1
        if shown[finding["kind"]] <= examples:
            out.append(finding)
    return out


def _table(outcome: Outcome, examples: int) -> Table:
    table = Table(box=None, pad_edge=False, header_style="bold")
    table.add_column("", no_wrap=True)
    table.add_column("count", justify="right", no_wrap=True)
    table.add_column("what", overflow="fold")
    for kind, meaning in _MEANING.items():
        count = outcome.counts.get(kind)
        if count is None:
            continue
        state = "ok" if not count else "warn" if kind in _EXPECTED else "fail"
        table.add_row(state, str(count), meaning)
        for finding in _some_of_each(outcome.findings, examples):
            if finding["kind"] != kind:
                continue
            name = finding["key"] or f"record {finding['digest']}"
            detail = f": {finding['detail']}" if finding["detail"] else ""
            table.add_row("", "", Text(f"  {name}{detail}", "dim"))
    return table
