# SPDX-License-Identifier: Apache-2.0
"""The numbers of a replay, as they are shown and written as JSON."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any

from lmcache_aerospike.commands._replay.driver import Outcome, Plan, Run
from lmcache_aerospike.commands._replay.models import ASSUMPTION, Model
from lmcache_aerospike.commands._replay.trace import Request

_BINS = 60
_LATE_SECONDS = 0.05


def percentiles(seconds: Iterable[float]) -> dict[str, float]:
    """Count, p50, p95, p99 and the maximum, in milliseconds."""
    ordered = sorted(seconds)
    out: dict[str, float] = {"count": len(ordered)}
    for name, part in (("p50_ms", 0.5), ("p95_ms", 0.95), ("p99_ms", 0.99), ("max_ms", 1.0)):
        # The smallest value that at least this part of all values does not exceed.
        at = max(0, math.ceil(part * len(ordered)) - 1)
        out[name] = round(ordered[at] * 1000, 3) if ordered else 0.0
    return out


def ratio(part: float, whole: float) -> float:
    """A part of a whole; of nothing, 0."""
    return part / whole if whole else 0.0


def of_trace(requests: Sequence[Request]) -> dict[str, Any]:
    """What the requests ask for."""
    return {
        "requests": len(requests),
        "seconds": requests[-1].arrival,
        "input_tokens": sum(request.input_tokens for request in requests),
        "blocks": sum(len(request.blocks) for request in requests),
        "distinct_blocks": len({block for request in requests for block in request.blocks}),
    }


def of_run(run: Run, requests: Sequence[Request], plan: Plan) -> dict[str, Any]:
    """What happened."""
    outcomes = run.outcomes
    blocks = sum(outcome.blocks for outcome in outcomes)
    tokens = sum(outcome.tokens for outcome in outcomes)
    hits = sum(outcome.hit_blocks for outcome in outcomes)
    hit_tokens = sum(outcome.hit_tokens for outcome in outcomes)
    stored = sum(outcome.stored_blocks for outcome in outcomes)
    misses: Counter[str] = Counter()
    for outcome in outcomes:
        misses.update(outcome.misses)
    return {
        "requests": len(outcomes),
        "seconds": round(run.seconds, 3),
        "speed_reached": round(_speed(outcomes, requests), 2),
        "blocks": blocks,
        "hit_blocks": hits,
        "hit_ratio_blocks": ratio(hits, blocks),
        "tokens": tokens,
        "hit_tokens": hit_tokens,
        "hit_ratio_tokens": ratio(hit_tokens, tokens),
        "stored_blocks": stored,
        "bytes_loaded": hits * plan.chunk_bytes,
        "bytes_stored": stored * plan.chunk_bytes,
        "misses_by_reason": dict(misses.most_common()),
        "latency": {
            "lookup": percentiles(o.lookup_seconds for o in outcomes if o.blocks),
            "load": percentiles(o.load_seconds for o in outcomes if o.load_seconds is not None),
            "store": percentiles(o.store_seconds for o in outcomes if o.store_seconds is not None),
        },
        "queueing": {
            **percentiles(outcome.queued_seconds for outcome in outcomes),
            "late_requests": sum(outcome.queued_seconds > _LATE_SECONDS for outcome in outcomes),
        },
        "held_back_requests": run.held_back,
        "store_errors": dict(run.store_errors.most_common(10)),
        "wrong_chunks": len(run.wrong),
        "wrong": run.wrong[:100],
    }


def of_saving(
    result: dict[str, Any], plan: Plan, model: Model | None, rate: float
) -> dict[str, Any]:
    """Prefill time that hits save, and for a known model what they would have to move.

    Args:
        result: Of of_run().
        plan: How it was played.
        model: Whose sizes are meant, if one was named.
        rate: Prompt tokens a second.
    """
    out: dict[str, Any] = {
        "model": model.name if model else None,
        "gpus": model.gpus if model else None,
        "prefill_tokens_per_second": round(rate),
        "assumption": ASSUMPTION if model else "as given with --prefill-tokens-per-second",
        "prefill_seconds": result["tokens"] / rate,
        "prefill_seconds_saved": result["hit_tokens"] / rate,
    }
    if model:
        block = plan.block_tokens * model.kv_bytes
        out["kv_bytes_per_token"] = model.kv_bytes
        out["bytes_to_load"] = result["hit_tokens"] * model.kv_bytes
        out["bytes_to_keep"] = result["stored_blocks"] * block
        # Loads beat the prefill of the same tokens as long as they are faster than this.
        out["break_even_bytes_per_second"] = rate * model.kv_bytes
    return out


def _speed(outcomes: Sequence[Outcome], requests: Sequence[Request]) -> float:
    """Seconds of the trace for each second of the run."""
    if not outcomes:
        return 0.0
    span = requests[outcomes[-1].index].arrival - requests[outcomes[0].index].arrival
    return ratio(span, max(outcome.started for outcome in outcomes) - outcomes[0].started)


def series(run: Run, requests: Sequence[Request], plan: Plan) -> dict[str, list[list[float]]]:
    """What the charts show: points [x, y].

    Returns:
        hit_ratio: Of all tokens so far, over seconds of the trace.
        hit_ratio_now: Of the tokens within a sixtieth of the trace.
        loaded, stored: Bytes a second, over seconds of the run.
        queued: Seconds, over seconds of the run.
    """
    out: dict[str, list[list[float]]] = {
        name: [] for name in ("hit_ratio", "hit_ratio_now", "loaded", "stored", "queued")
    }
    outcomes = run.outcomes
    if not outcomes:
        return out
    last = max(requests[outcomes[-1].index].arrival, 1e-9)
    tokens, hits = [0] * _BINS, [0] * _BINS
    for outcome in outcomes:
        at = min(_BINS - 1, int(requests[outcome.index].arrival / last * _BINS))
        tokens[at] += outcome.tokens
        hits[at] += outcome.hit_tokens
    for at in range(_BINS):
        x = round((at + 1) * last / _BINS, 3)
        if tokens[at]:
            out["hit_ratio_now"].append([x, round(hits[at] / tokens[at], 4)])
        if sum(tokens[: at + 1]):
            so_far = sum(hits[: at + 1]) / sum(tokens[: at + 1])
            out["hit_ratio"].append([x, round(so_far, 4)])
    width = max(run.seconds, 1e-9) / _BINS
    for name, attribute in (("loaded", "hit_blocks"), ("stored", "stored_blocks")):
        amounts = [0] * _BINS
        for outcome in outcomes:
            at = min(_BINS - 1, int(outcome.ended / width))
            amounts[at] += getattr(outcome, attribute) * plan.chunk_bytes
        rows = enumerate(amounts)
        out[name] = [[round((at + 0.5) * width, 4), round(total / width)] for at, total in rows]
    for at in range(_BINS):
        waits = [o.queued_seconds for o in outcomes if int(o.started / width) == at]
        if waits:
            out["queued"].append([round((at + 0.5) * width, 4), round(max(waits), 4)])
    return out


def distributions(run: Run) -> dict[str, list[list[float]]]:
    """Cumulative distributions of the latencies: points [milliseconds, part of all]."""
    out = {}
    for name in ("lookup", "load", "store"):
        values = [getattr(outcome, f"{name}_seconds") for outcome in run.outcomes if outcome.blocks]
        ordered = sorted(value * 1000 for value in values if value is not None)
        count = len(ordered)
        steps = sorted({round(i * (count - 1) / 200) for i in range(201)}) if count else []
        out[name] = [[round(ordered[i], 4), round((i + 1) / count, 4)] for i in steps]
    return out
