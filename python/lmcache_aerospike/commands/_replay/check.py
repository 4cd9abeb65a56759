# SPDX-License-Identifier: Apache-2.0
"""Compares what a cluster did with the simulation of the same cache."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from lmcache_aerospike.commands._replay.driver import EXPIRED, REFUSED, Plan, Run
from lmcache_aerospike.commands._replay.simulate import simulate
from lmcache_aerospike.commands._replay.trace import Request

# What a record of a chunk counts beside its payload.
_RECORD_BYTES = 176
# A full server refuses part of a batch, in an order of its own; what is then lost differs a little.
_FULL_TOLERANCE = 0.005
# The server rounds the end of a life to whole seconds.
_CLOCK_SECONDS = 1.0


def blocks_in(capacity: int, chunk_bytes: int) -> int:
    """How many chunks of this size a namespace holds; at least one."""
    return max(1, capacity // ((chunk_bytes + _RECORD_BYTES + 15) // 16 * 16))


def compare(
    requests: Sequence[Request], run: Run, plan: Plan, capacity: int | None
) -> dict[str, Any]:
    """The hit ratios of both, whether they agree, and that in words.

    They have to be equal, request by request. Only where lives ended during the run is a span
    allowed, between the shortest and the longest life that the server's clock and the time of the
    stores leave possible; and half a percent point where the server was full.

    Args:
        requests: The trace.
        run: What happened.
        plan: How it was played.
        capacity: Bytes of the cluster, if they are known.
    """
    outcomes = run.outcomes
    rows = [requests[outcome.index] for outcome in outcomes]
    times = [outcome.started for outcome in outcomes]
    measured = [outcome.hit_blocks for outcome in outcomes]
    misses = {reason for outcome in outcomes for reason in outcome.misses}
    ttl = float(plan.ttl_seconds) if plan.ttl_seconds > 0 else float("inf")
    longest = max((outcome.ended - outcome.started for outcome in outcomes), default=0.0)
    room = blocks_in(capacity, plan.chunk_bytes) if capacity and REFUSED in misses else 0
    spans = [0.0] if EXPIRED not in misses else [-_CLOCK_SECONDS, longest + _CLOCK_SECONDS]
    both = [
        simulate(rows, times=times, capacity=room, ttl=ttl + span, refresh=plan.refresh)
        for span in spans
    ]
    low, high = (both[at].hit_ratio for at in (0, -1))
    hits, blocks = sum(measured), both[0].blocks
    ratio = hits / blocks if blocks else 0.0
    out: dict[str, Any] = {"measured": ratio, "simulated": low, "simulated_high": high}
    different = [i for i, hit in enumerate(both[0].hits) if hit != measured[i]]
    if not different:
        out["ok"] = True
        out["words"] = (
            f"The hit ratio, {hits:,} of {blocks:,} blocks, equals that of an independent "
            "simulation, request by request."
        )
        return out
    tolerance = _FULL_TOLERANCE if room else 0.0
    is_exact = len(both) == 1 and not room
    out["ok"] = not is_exact and low - tolerance <= ratio <= high + tolerance
    span = f" to {high:.4%}" if len(both) > 1 else ""
    out["words"] = f"The hit ratio is {ratio:.4%}; a simulation has {low:.4%}{span}"
    if is_exact:
        first = outcomes[different[0]].index + 1
        out["words"] += f": {len(different):,} requests differ, the first is number {first}."
    else:
        why = "the server was full" if room else "lives ended during the run"
        out["words"] += f" ({why}, so they need not be equal"
        out["words"] += f", but within {tolerance:.1%})." if room else ")."
    return out
