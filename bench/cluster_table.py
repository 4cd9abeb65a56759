# SPDX-License-Identifier: Apache-2.0
"""From the operations of a run to the rows of the table, and the table as text."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import results
from cluster_clients import OFFICIAL, OURS
from cluster_load import LOAD, LOAD_LARGE, LOOKUP, STORE, STORE_LARGE

SLOW_SECONDS = 0.25
_LOADS = (LOAD, LOAD_LARGE)
_STORES = (STORE, STORE_LARGE)

# (begin, seconds, kind, result)
Operation = Sequence[Any]


def _is_failure(result: str) -> bool:
    return result.startswith("error") or result == "wrong"


def _counts(operations: Sequence[Operation], kinds: Sequence[str], begin: float) -> dict[str, Any]:
    mine = [operation for operation in operations if operation[2] in kinds]
    by_result = Counter(operation[3].partition(" ")[0] for operation in mine)
    bad = [o for o in mine if _is_failure(o[3])]
    errors = Counter(o[3].removeprefix("error ").partition(":")[0] for o in bad)
    worst = max((o[1] for o in mine), default=0.0)
    return {
        "count": len(mine),
        "failed": len(bad),
        "slow": sum(o[1] > SLOW_SECONDS for o in mine),
        "worst_ms": round(1000 * worst, 1),
        "lost": by_result["lost"],
        "old": by_result["old"],
        "wrong": by_result["wrong"],
        "errors": dict(errors),
        "example": next((o[3] for o in bad), ""),
        "last_failure_s": round(max((o[0] + o[1] - begin for o in bad), default=0.0), 2),
        "failed_for_s": round(
            max((o[0] + o[1] for o in bad), default=0.0) - min((o[0] for o in bad), default=0.0), 2
        ),
    }


def _one_client(
    operations: Sequence[Operation], begin: float, end: float, loses: bool
) -> dict[str, Any]:
    inside = [o for o in operations if o[0] + o[1] >= begin and o[0] < end]
    parts = {
        "loads": _counts(inside, _LOADS, begin),
        "large_loads": _counts(inside, (LOAD_LARGE,), begin),
        "lookups": _counts(inside, (LOOKUP,), begin),
        "stores": _counts(inside, _STORES, begin),
    }

    def is_unclean(operation: Operation) -> bool:
        is_read = operation[2] not in _STORES
        slow = is_read and operation[1] > SLOW_SECONDS
        missing = operation[3] in {"lost", "old"} and not loses
        return slow or missing or _is_failure(operation[3])

    unclean = [o[0] + o[1] - begin for o in inside if is_unclean(o)]
    clean_after = max(0.0, round(max(unclean, default=0.0), 2))
    return {**parts, "clean_after_s": clean_after, "wrong": parts["loads"]["wrong"]}


def row(
    name: str,
    operations: Mapping[str, Sequence[Operation]],
    begin: float,
    end: float,
    map_wrong_s: float,
    loses: bool,
) -> dict[str, Any]:
    """What one event did to each client, between two moments."""
    clients = {kind: _one_client(list_, begin, end, loses) for kind, list_ in operations.items()}
    return {
        "event": name,
        "seconds": round(end - begin, 1),
        "map_wrong_s": round(map_wrong_s, 2),
        "loses": loses,
        **clients,
    }


_HEAD = (
    "event",
    "client",
    "loads",
    "failed",
    "later than 250 ms",
    "worst, ms",
    "missing",
    "old",
    "lookups failed",
    "stores",
    "failed",
    "failing until, s",
    "clean after, s",
    "wrong bytes",
)


def _cells(entry: Mapping[str, Any], kind: str) -> list[str]:
    client = entry[kind]
    loads, stores = client["loads"], client["stores"]
    title = f"{entry['event']} (map wrong for {entry['map_wrong_s']:.1f} s)"
    if entry["map_wrong_s"] == 0:
        title = entry["event"]
    failing = f"{stores['last_failure_s']:.1f}" if stores["failed"] else "-"
    numbers = [loads["count"], loads["failed"], loads["slow"], round(loads["worst_ms"])]
    numbers += [loads["lost"], loads["old"], client["lookups"]["failed"]]
    numbers += [stores["count"], stores["failed"]]
    return [
        title if kind == OURS else "",
        kind,
        *(f"{number:,}" for number in numbers),
        failing,
        f"{client['clean_after_s']:.1f}",
        str(client["wrong"]),
    ]


def event_table(events: Sequence[Mapping[str, Any]]) -> str:
    return results.table(
        _HEAD, [_cells(entry, kind) for entry in events for kind in (OURS, OFFICIAL)]
    )


def start_table(starts: Sequence[Mapping[str, Any]]) -> str:
    rows = []
    title = ""
    for start in starts:
        wait = start["start_timeout_ms"]
        name = start["client"] + (f", start_timeout_ms {wait}" if wait else "")
        outcome = "starts, but does not work"
        if start["works"]:
            outcome = f"stores and loads after {start['works_after']:.1f} s"
        if start["error"]:
            outcome = "refused: " + start["error"].partition("\n")[0][:120].replace("|", "/")
        first = start["start"] if start["start"] != title else ""
        title = start["start"]
        rows.append([first, name, f"{start['seconds']:.2f}", outcome])
    return results.table(("start", "client", "seconds", "outcome"), rows)


def tables(report: Mapping[str, Any]) -> str:
    parts = []
    if report["events"]:
        parts.append(event_table(report["events"]))
    if report["starts"]:
        parts.append(start_table(report["starts"]))
    return "\n\n".join(parts) + "\n"


def write_page(report: Mapping[str, Any], page: Path) -> None:
    """Replaces what is between the marks of the page."""
    machine = report["machine"]
    line = (
        f"{machine['cores']} cores ({machine['cpu']}), Linux {machine['kernel']}, Python "
        f"{machine['python']}. The whole run took {report['seconds']:.0f} s."
    )
    head, begin, rest = page.read_text().partition("<!-- cluster events -->\n")
    _, end, tail = rest.partition("<!-- end of cluster events -->")
    if not begin or not end:
        message = f"{page}: no marks for the cluster events"
        raise ValueError(message)
    page.write_text(head + begin + "\n" + line + "\n\n" + tables(report) + "\n" + end + tail)
