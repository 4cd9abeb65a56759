# SPDX-License-Identifier: Apache-2.0
"""The report of a replay: one page of HTML that needs no other file."""

from __future__ import annotations

import html
from collections.abc import Sequence
from typing import Any

from lmcache_aerospike.commands._replay.charts import Axis, Line, bar_chart, line_chart
from lmcache_aerospike.commands.session import bytes_text

_STYLE = """
:root { color-scheme: light dark; --ink: #1c1f23; --soft: #5c6570; --rule: #e3e6ea; --page: #fff;
  --card: #f6f7f9; --a: #2563b8; --b: #d9822b; --c: #3f9a72; --good: #1d7f4e; --bad: #b3261e; }
@media (prefers-color-scheme: dark) { :root { --ink: #e8eaed; --soft: #9aa4af; --rule: #343a41;
  --page: #16181b; --card: #1f2327; --a: #6ea8f0; --b: #f0a85c; --c: #6cc79d; --good: #6cc79d;
  --bad: #f28b82; } }
body { margin: 0 auto; padding: 2rem 1.25rem 4rem; max-width: 44rem; background: var(--page);
  color: var(--ink); font: 16px/1.55 system-ui, sans-serif; }
h1 { font-size: 1.6rem; line-height: 1.25; margin: 0 0 .5rem; }
h2 { font-size: 1.1rem; margin: 2.4rem 0 .3rem; }
p { margin: .4rem 0; } .soft { color: var(--soft); font-size: .9rem; }
.tiles { display: grid; grid-template-columns: repeat(auto-fit, minmax(11rem, 1fr)); gap: .7rem;
  margin: 1.4rem 0; }
.tile { background: var(--card); border-radius: .5rem; padding: .7rem .9rem; }
.tile b { display: block; font-size: 1.5rem; line-height: 1.3; font-weight: 600; }
.tile span { color: var(--soft); font-size: .85rem; }
.verdict { border-left: 4px solid var(--good); padding: .2rem .8rem; margin: 1rem 0; }
.verdict.bad { border-color: var(--bad); }
svg { width: 100%; height: auto; display: block; margin: .6rem 0; }
.line { fill: none; stroke-width: 2; stroke-linejoin: round; }
.line.a { stroke: var(--a); } .line.b { stroke: var(--b); } .line.c { stroke: var(--c); }
.bar.a { fill: var(--a); } .bar.b { fill: var(--b); } .bar.c { fill: var(--c); }
.grid { stroke: var(--rule); } .axis { stroke: var(--soft); }
.tick, .key { font: 12px system-ui, sans-serif; fill: var(--soft); } .key { fill: var(--ink); }
.wide { overflow-x: auto; }
table { border-collapse: collapse; width: 100%; font-size: .92rem; margin: .6rem 0; }
th { text-align: left; font-weight: 600; color: var(--soft); }
th, td { padding: .3rem .6rem .3rem 0; border-bottom: 1px solid var(--rule); }
td.n, th.n { text-align: right; font-variant-numeric: tabular-nums; }
code { font-size: .88em; overflow-wrap: anywhere; }
"""


def page(report: dict[str, Any]) -> str:
    """The whole page.

    Args:
        report: The document that is also written as JSON.
    """
    result, trace = report["result"], report["trace"]
    title = f"Replay of {trace['name']}"
    parts = [
        f"<h1>{html.escape(title)}</h1>",
        f"<p>{html.escape(lead(report))}</p>",
        _verdicts(report),
        _tiles(report),
        "<h2>Hit ratio</h2>",
        _note(
            "Part of all prompt tokens that were hits: so far, and in each sixtieth of the trace."
        ),
        _hit_chart(report),
        "<h2>Misses</h2>",
        _table(
            ("reason", "blocks", "of all blocks"),
            [
                (reason, f"{count:,}", f"{count / result['blocks']:.1%}")
                for reason, count in result["misses_by_reason"].items()
            ],
        ),
        "<h2>Latency</h2>",
        _note(
            "Of all blocks of a request: a lookup, a load of what it found, a store of the rest."
        ),
        _latency_chart(report),
        _latency_table(result),
        "<h2>Bytes over time</h2>",
        _bytes_chart(report),
    ]
    if report["plan"]["speed"] != "max":
        parts += _queueing(report)
    parts += [_saving(report), _method(report)]
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>{html.escape(title)}</title><style>{_STYLE}</style></head>\n<body>"
        + "\n".join(parts)
        + "</body></html>\n"
    )


def lead(report: dict[str, Any]) -> str:
    """What was done, in two sentences."""
    plan, result = report["plan"], report["result"]
    pace = (
        "as fast as it went" if plan["speed"] == "max" else f"at {plan['speed']:g} times its speed"
    )
    return (
        f"{result['requests']:,} requests, {pace}, against {report['server']['what']}; "
        f"a stand-in of {bytes_text(plan['chunk_bytes'])} for the KV cache of each block of "
        f"{plan['block_tokens']} tokens. {result['hit_ratio_blocks']:.2%} of all blocks and "
        f"{result['hit_ratio_tokens']:.2%} of all tokens were hits."
    )


def _verdicts(report: dict[str, Any]) -> str:
    result = report["result"]
    rows = []
    if result["wrong_chunks"]:
        named = "; ".join(result["wrong"][:5])
        rows.append((False, f"{result['wrong_chunks']:,} chunks came back wrong: {named}"))
    elif result["hit_blocks"]:
        rows.append((True, f"Each of {bytes_text(result['bytes_loaded'])} loaded was right."))
    if report.get("check"):
        rows.append((report["check"]["ok"], report["check"]["words"]))
    for message, count in result["store_errors"].items():
        rows.append((False, f"{count:,} blocks were not stored: {message}"))
    return "\n".join(
        f'<p class="verdict{"" if good else " bad"}">{html.escape(text)}</p>' for good, text in rows
    )


def _tiles(report: dict[str, Any]) -> str:
    result, saved = report["result"], report["saved"]
    tiles = (
        (f"{result['hit_ratio_tokens']:.1%}", "of all tokens were hits"),
        (bytes_text(result["bytes_loaded"]), "loaded"),
        (bytes_text(result["bytes_stored"]), "stored"),
        (f"{result['latency']['lookup']['p99_ms']:.1f} ms", "p99 of lookups"),
        (f"{result['latency']['load']['p99_ms']:.1f} ms", "p99 of loads"),
        (duration(saved["prefill_seconds_saved"]), "of prefill saved"),
    )
    cells = (f"<div class=tile><b>{html.escape(a)}</b><span>{b}</span></div>" for a, b in tiles)
    return f"<div class=tiles>{''.join(cells)}</div>"


def _hit_chart(report: dict[str, Any]) -> str:
    points = report["series"]
    lines = [
        Line(name, [[x / 60, y] for x, y in points[key]], style)
        for name, key, style in (
            ("in each sixtieth", "hit_ratio_now", "b"),
            ("so far", "hit_ratio", "a"),
        )
    ]
    x = Axis("minutes of the trace", 0, max(report["trace"]["seconds"] / 60, 1e-3))
    return line_chart("hit ratio over time", x, Axis("tokens", 0, 1, "{:.0%}".format), lines)


def _latency_chart(report: dict[str, Any]) -> str:
    curves = report["distributions"]
    lines = [
        Line(name, curves[name], style)
        for name, style in (("lookup", "c"), ("load", "a"), ("store", "b"))
        if curves[name]
    ]
    values = [point[0] for line in lines for point in line.points] or [1.0]
    low, high = max(min(values), 1e-3), max(values)
    low_power, high_power = 1e-3, 1e-2
    while low_power * 10 <= low:
        low_power *= 10
    while high_power < high:
        high_power *= 10
    x = Axis("milliseconds", low_power, high_power, "{:g}".format, is_log=True)
    y = Axis("requests that took at most so long", 0, 1, "{:.0%}".format)
    return line_chart("distribution of latencies", x, y, lines, steps=True)


def _bytes_chart(report: dict[str, Any]) -> str:
    points = report["series"]
    lines = [Line("loaded", points["loaded"], "a"), Line("stored", points["stored"], "b")]
    pairs = zip(points["loaded"], points["stored"], strict=True)
    top = max((a[1] + b[1] for a, b in pairs), default=0) or 1
    unit, name = next(
        (size, name) for size, name in ((1 << 30, "GiB"), (1 << 20, "MiB"), (1, "B"))
        if top >= size
    )  # fmt: skip
    scaled = [
        Line(line.name, [[x, amount / unit] for x, amount in line.points], line.style)
        for line in lines
    ]
    x = Axis("seconds of the run", 0, report["result"]["seconds"], "{:g}".format)
    y = Axis(f"{name}/s", 0, top / unit, "{:.3g}".format)
    return bar_chart("bytes over time", x, y, scaled)


def _latency_table(result: dict[str, Any]) -> str:
    rows = [
        (name, f"{row['count']:,}", *(f"{row[part]:.2f}" for part in
         ("p50_ms", "p95_ms", "p99_ms", "max_ms")))
        for name, row in result["latency"].items()
    ]  # fmt: skip
    return _table(("", "requests", "p50 ms", "p95 ms", "p99 ms", "max ms"), rows)


def _queueing(report: dict[str, Any]) -> list[str]:
    result = report["result"]
    wait = result["queueing"]
    words = (
        f"{wait['late_requests']:,} of {result['requests']:,} requests started more than 50 ms "
        f"after they were due; p99 {wait['p99_ms']:.1f} ms, at most {wait['max_ms']:.1f} ms. "
        f"The speed that was reached is {result['speed_reached']:g}."
    )
    parts = ["<h2>Queueing</h2>", f"<p>{words}</p>"]
    if wait["late_requests"]:
        points = report["series"]["queued"]
        x = Axis("seconds of the run", 0, result["seconds"], "{:g}".format)
        y = Axis("seconds, longest wait", 0, max(point[1] for point in points), "{:g}".format)
        parts.append(line_chart("waits over time", x, y, [Line("wait", points, "b")]))
    return parts


def _saving(report: dict[str, Any]) -> str:
    saved = report["saved"]
    name = saved["model"] or "the stated model"
    rows = [
        ("prefill rate", f"{saved['prefill_tokens_per_second']:,} tokens/s"),
        ("prefill without a cache", duration(saved["prefill_seconds"])),
        ("prefill saved", duration(saved["prefill_seconds_saved"])),
    ]
    if saved["model"]:
        rows += [
            ("KV cache of a token", bytes_text(saved["kv_bytes_per_token"])),
            ("bytes that the hits would move", bytes_text(saved["bytes_to_load"])),
            ("bytes that would have been stored", bytes_text(saved["bytes_to_keep"])),
            (
                "loads win if faster than",
                f"{bytes_text(saved['break_even_bytes_per_second'])}/s",
            ),
        ]
    where = f" on {saved['gpus']} H100" if saved["gpus"] else ""
    return (
        f"<h2>What it means for {html.escape(name)}{where}</h2>"
        + _table(("", ""), rows, numbers_from=1)
        + f"<p class=soft>An estimate: {html.escape(saved['assumption'])}.</p>"
    )


def _method(report: dict[str, Any]) -> str:
    plan, trace, server = report["plan"], report["trace"], report["server"]
    result = report["result"]
    size = server["capacity_bytes"]
    held = result["held_back_requests"]
    blocks = f"{trace['blocks']:,} blocks, {trace['distinct_blocks']:,} different ones"
    room = bytes_text(size) if size else "unknown"
    life = f"{plan['ttl_seconds']:,} s" if plan["ttl_seconds"] > 0 else "no end"
    others = f"{held:,} waited for an earlier one's stores of the same blocks"
    rows = [
        ("trace", f"{trace['name']}, {trace['requests']:,} requests, {blocks}"),
        ("cluster", f"{server['what']}, namespace {server['namespace']}, capacity {room}"),
        ("life of a block", life),
        ("at the same time", f"{plan['in_flight']} requests; {others}"),
        ("duration", f"{result['seconds']:.2f} s for {duration(trace['seconds'])} of the trace"),
        ("requests to the server", f"{server['requests']:,}, {server['retries']:,} retried"),
        ("made by", f"lmcache-aerospike {report['version']}, {report['date']}"),
    ]
    return (
        "<h2>How it was run</h2>"
        + _table(("", ""), rows, numbers_from=9)
        + f"<p><code>{html.escape(report['command'])}</code></p>"
    )


def _note(text: str) -> str:
    return f"<p class=soft>{html.escape(text)}</p>"


def duration(value: float) -> str:
    """A time span with one digit behind the point."""
    if value >= 7200:
        return f"{value / 3600:.1f} h"
    return f"{value / 60:.1f} min" if value >= 120 else f"{value:.1f} s"


def _table(head: Sequence[str], rows: Sequence[Sequence[str]], numbers_from: int = 1) -> str:
    def cells(tag: str, row: Sequence[str]) -> str:
        return "".join(
            f"<{tag}{' class=n' if i >= numbers_from else ''}>{html.escape(cell)}</{tag}>"
            for i, cell in enumerate(row)
        )

    top = f"<thead><tr>{cells('th', head)}</tr></thead>" if any(head) else ""
    body = "".join(f"<tr>{cells('td', row)}</tr>" for row in rows)
    return f"<div class=wide><table>{top}<tbody>{body}</tbody></table></div>"
