# SPDX-License-Identifier: Apache-2.0
"""``make bench``: everything that is compared, in one run.

1. The engine without Python: CPU seconds for a GB beside bare socket loops, lookups, what latency
   costs, memory (aerokv_engine_bench); its pure parts by themselves (aerokv_micro_bench).
2. ``lmcache bench l2`` for this project, LMCache's Redis connector and its file connector.
3. The same adapters side by side in one process, one batch in turn.
4. The serdes: errors on real tensors, speed beside LMCache's own and memcpy, slow links
   (aerokv_serde_bench and Python).

Writes results.json, results.md, throughput.png and serdes.png.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import engine_results
import lmcache_bench
import results
import serde_results
from contestants import start_all

ROOT = Path(__file__).resolve().parent.parent
ENGINE = ROOT / "build" / "bench" / "bench" / "aerokv_engine_bench"

_MICRO_KEYS = ("name", "cpu_time", "time_unit", "items_per_second", "bytes_per_second")

_STARTED = time.monotonic()


def say(text: str) -> None:
    print(f"[{time.monotonic() - _STARTED:4.0f} s] {text}", file=sys.stderr, flush=True)


def run_engine(program: Path, quick: bool, output: Path) -> dict[str, Any]:
    path = output / "engine.json"
    arguments = [str(program), "--json", str(path)] + (["--quick"] if quick else [])
    subprocess.run(arguments, check=True)
    report: dict[str, Any] = json.loads(path.read_text())
    path.unlink()
    micro = program.with_name("aerokv_micro_bench")
    shortest = "0.05" if quick else "0.3"
    done = subprocess.run(
        [str(micro), "--benchmark_format=json", f"--benchmark_min_time={shortest}"],
        check=True,
        capture_output=True,
    )
    report["micro"] = [
        {key: entry[key] for key in _MICRO_KEYS if key in entry}
        for entry in json.loads(done.stdout)["benchmarks"]
        if not entry.get("error_occurred")
    ]
    return report


def tables(report: dict[str, Any]) -> str:
    parts = []
    if "engine" in report:
        parts += ["## The engine without Python", engine_results.tables(report["engine"])]
    for key, title in (("command", "`lmcache bench l2`"), ("adapters", "Adapters side by side")):
        if key in report:
            parts += [f"## {title}", results.throughput_table(report[key])]
            parts += [results.lookup_table(report[key])]
    if "adapters" in report:
        parts += [results.cpu_table(report["adapters"])]
    if "serde" in report:
        parts += ["## Serdes", serde_results.tables(report["serde"])]
    return "\n\n".join(parts) + "\n"


def machine_line(report: dict[str, Any]) -> str:
    machine = report["machine"]
    return (
        f"{machine['cores']} cores ({machine['cpu']}), {machine['memory_gib']:.0f} GiB, Linux "
        f"{machine['kernel']}, Python {machine['python']}, LMCache {machine['lmcache']}, torch "
        f"{machine['torch']}, {machine['redis']}. The whole run took {report['seconds']:.0f} s."
    )


def goal_table(report: dict[str, Any]) -> str:
    rows = [
        [goal["by"], goal["what"], f"{goal['goal']:,}", f"{goal['reached']:,.2f}"]
        + ["yes" if goal["met"] else "no"]
        for goal in report["goals"]
        if goal["by"] not in {"adapters", "serde"}
    ]
    return results.table(["measured by", "what", "goal", "reached", "met"], rows)


def write_between(page: Path, name: str, parts: list[str]) -> None:
    """Replaces what is between two marks of a page."""
    head, begin, rest = page.read_text().partition(f"<!-- {name} -->\n")
    _, end, tail = rest.partition(f"<!-- end of {name} -->")
    if not begin or not end:
        message = f"{page}: no marks for {name}"
        raise ValueError(message)
    body = "\n\n".join(parts).replace("\n## ", "\n### ")
    page.write_text(head + begin + "\n" + body + "\n\n" + end + tail)


def write_page(report: dict[str, Any], page: Path) -> None:
    """Replaces the results on a documentation page that this run has, and the plots beside it."""
    if "serde" in report:
        parts = [machine_line(report), "![Serdes](serdes.png)"]
        write_between(page, "serdes", [*parts, serde_results.tables(report["serde"])])
        serde_results.plot(report["serde"], page.with_name("serdes.png"))
    if "command" in report:
        rest = {key: value for key, value in report.items() if key != "serde"}
        parts = [machine_line(report), "![Throughput](benchmarks.png)", tables(rest).strip()]
        write_between(page, "results", [*parts, "## Goals", goal_table(rest)])
        results.plot(report["command"], page.with_suffix(".png"))


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--quick", action="store_true", help="about a minute, fewer rounds")
    parser.add_argument("--output", type=Path, default=ROOT / "bench" / "results")
    parser.add_argument("--engine", type=Path, default=ENGINE, help="aerokv_engine_bench")
    parser.add_argument("--docs", type=Path, help="write the results into this page, too")
    parser.add_argument(
        "--from", dest="source", type=Path, help="with --docs: results.json of an earlier run"
    )
    parser.add_argument(
        "--parts",
        default="engine,command,adapters,serde",
        help="what to run, of: engine, command, adapters, serde",
    )
    return parser.parse_args()


def main() -> int:
    arguments = parse_arguments()
    if arguments.source is not None:
        write_page(json.loads(arguments.source.read_text()), arguments.docs)
        return 0
    parts = arguments.parts.split(",")
    plan = lmcache_bench.QUICK if arguments.quick else lmcache_bench.FULL
    arguments.output.mkdir(parents=True, exist_ok=True)
    report: dict[str, Any] = {"machine": results.machine(), "quick": arguments.quick}
    reached: list[dict[str, Any]] = []
    if "engine" in parts:
        report["engine"] = run_engine(arguments.engine, arguments.quick, arguments.output)
        reached += [{"by": "engine", **goal} for goal in engine_results.goals(report["engine"])]
        say("engine without Python: done")
    if "command" in parts or "adapters" in parts:
        lmcache_bench.prepare()
        contestants = start_all()
        try:
            for part, function in (
                ("command", lmcache_bench.command_rounds),
                ("adapters", lmcache_bench.adapter_rounds),
            ):
                if part in parts:
                    report[part] = results.summary(function(contestants, plan, say))
                    reached += [{"by": part, **g} for g in results.goals(report[part])]
        finally:
            for contestant in contestants:
                contestant.close()
    if "serde" in parts:
        program = arguments.engine.with_name("aerokv_serde_bench")
        report["serde"] = serde_results.run(program, arguments.quick)
        reached += [{"by": "serde", **goal} for goal in serde_results.goals(report["serde"])]
        serde_results.plot(report["serde"], arguments.output / "serdes.png")
        say("serdes: done")
    report["goals"] = reached
    report["seconds"] = round(time.monotonic() - _STARTED, 1)
    (arguments.output / "results.json").write_text(json.dumps(report, indent=1) + "\n")
    text = tables(report)
    (arguments.output / "results.md").write_text(text)
    if arguments.docs is not None:
        write_page(report, arguments.docs)
    for key in ("command", "adapters"):
        if key in report:
            results.plot(report[key], arguments.output / "throughput.png")
            break
    print(text)
    for goal in reached:
        if not goal["met"]:
            what = f"{goal['what']}: {goal['reached']:.2f}, goal {goal['goal']}"
            print(f"goal not met ({goal['by']}): {what}")
    print(f"written to {arguments.output} after {report['seconds']:.0f} s")
    return 0


if __name__ == "__main__":
    sys.exit(main())
