# SPDX-License-Identifier: Apache-2.0
"""Measures through LMCache: its command ``lmcache bench l2``, and its adapters side by side.

``lmcache bench l2`` compares nothing by itself: one call measures one adapter, in rounds that
follow each other. `command_rounds` calls it for the contestants in turn. `adapter_rounds` keeps all
adapters open in this process and turns from one to the next after every single batch, with the
functions that the command itself measures with; on a machine that is not quiet that is the fairer
of the two, and it can tell the CPU seconds of a store from those of a load.
"""

from __future__ import annotations

import json
import logging
import os
import resource
import sys
import tempfile
import warnings
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

os.environ.setdefault("LMCACHE_LOG_LEVEL", "ERROR")
os.environ.setdefault("LMCACHE_DISABLE_BANNER", "1")
warnings.simplefilter("ignore")

from contestants import Contestant  # noqa: E402

# (kibibytes of an object, objects of a batch)
SIZES = ((64, 128), (256, 32), (1024, 32), (4096, 16), (16384, 4))
LOOKUP_KEYS = 1000

# LMCache's adapter with nothing behind it.
NO_STORE = "no store at all"

KIB = 1024
MIB = 1024 * 1024
GIB = 1024 * MIB

# results[metric][size in KiB][contestant] = one value for each round
Results = dict[str, dict[int, dict[str, list[float]]]]


def new_results() -> Results:
    """An empty table."""
    return defaultdict(lambda: defaultdict(lambda: defaultdict(list)))


@dataclass(frozen=True)
class Plan:
    """How long to measure."""

    command_repeats: int = 7
    command_rounds: int = 6
    adapter_rounds: int = 15
    lookup_rounds: int = 60


FULL = Plan()
QUICK = Plan(command_repeats=1, command_rounds=3, adapter_rounds=5, lookup_rounds=15)


def turned(items: list[Any], by: int) -> list[Any]:
    """The same items, starting with another one."""
    by %= len(items)
    return items[by:] + items[:by]


# ---- the command ------------------------------------------------------------------------------


@contextmanager
def _arguments(arguments: list[str]) -> Iterator[None]:
    before, sys.argv = sys.argv, arguments
    try:
        yield
    finally:
        sys.argv = before


def bench_l2(
    contestant: Contestant, kib: int, keys: int, rounds: int, only: str = ""
) -> dict[str, Any]:
    """Runs the program ``lmcache`` with the arguments ``bench l2 ...``; returns op -> metrics.

    It runs in this process, so that importing torch is paid once and not for each of many calls.
    """
    from lmcache.cli.main import main

    with tempfile.TemporaryDirectory() as directory:
        output = Path(directory) / "result.json"
        arguments = ["lmcache", "bench", "l2", "--l2-adapter", contestant.adapter_json()]
        arguments += ["--data-size-kb", str(kib), "--num-keys", str(keys)]
        arguments += ["--rounds", str(rounds), "--lookup-max-hit-rate", "1.0"]
        arguments += ["--only", only] if only else []
        arguments += ["--format", "json", "--output", str(output), "--quiet"]
        with _arguments(arguments):
            try:
                main()
            except SystemExit as end:
                if end.code not in (0, None):
                    message = f"{' '.join(arguments)}: exit status {end.code}"
                    raise RuntimeError(message) from end
        metrics = json.loads(output.read_text())["metrics"]
    operations = {}
    for section in metrics.values():
        if "operation" not in section:
            continue
        if section["total_success"] != section["total_keys"] or section["rounds_timed_out"]:
            message = f"{contestant.name}, {kib} KiB: {section}"
            raise RuntimeError(message)
        operations[section["operation"].lower()] = section
    return operations


def command_rounds(
    contestants: list[Contestant], plan: Plan, say: Callable[[str], None]
) -> Results:
    """``lmcache bench l2`` for every size and contestant, each time against an empty new server."""
    results = new_results()
    for repeat in range(plan.command_repeats):
        for kib, keys in SIZES:
            for contestant in turned(contestants, repeat):
                contestant.restart()
                fresh = bench_l2(contestant, kib, keys, plan.command_rounds)
                again = bench_l2(contestant, kib, keys, plan.command_rounds, only="store")
                mib = kib * keys / KIB
                name = contestant.name

                def add(metric: str, value: float, kib: int = kib, name: str = name) -> None:
                    results[metric][kib][name].append(value)

                add("store_fresh", mib / (fresh["store"]["duration_p50_ms"] / 1e3))
                add("store_again", mib / (again["store"]["duration_p50_ms"] / 1e3))
                add("load", mib / (fresh["load"]["duration_p50_ms"] / 1e3))
                add("lookup_small", keys / (max(fresh["lookup"]["duration_p50_ms"], 0.01) / 1e3))
        for contestant in turned(contestants, repeat):
            contestant.restart()
            found = bench_l2(contestant, 1, LOOKUP_KEYS, plan.command_rounds * 2)
            seconds = found["lookup"]["duration_p50_ms"] / 1e3
            results["lookup"][1][contestant.name].append(LOOKUP_KEYS / seconds)
        say(f"lmcache bench l2: {repeat + 1} of {plan.command_repeats}")
    return results


# ---- adapters side by side --------------------------------------------------------------------


class _NoStore:
    """A native connector without a store: all keys are there, at once.

    What LMCache's adapter needs around it is the most that any connector can reach.
    """

    def __init__(self) -> None:
        self._fd = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        self._done: list[tuple[int, bool, str, list[bool]]] = []
        self._last = 0

    def event_fd(self) -> int:
        return self._fd

    def submit_batch_exists(self, keys: list[str]) -> int:
        self._last += 1
        self._done.append((self._last, True, "", [True] * len(keys)))
        os.eventfd_write(self._fd, 1)
        return self._last

    def drain_completions(self) -> list[tuple[int, bool, str, list[bool]]]:
        with suppress(BlockingIOError):
            os.eventfd_read(self._fd)
        done, self._done = self._done, []
        return done

    def close(self) -> None:
        if self._fd >= 0:
            os.close(self._fd)
        self._fd = -1


class _Adapter:
    """One of LMCache's adapters and the batches it is measured with."""

    def __init__(self, contestant: Contestant | None, buffer: Any) -> None:
        if contestant is None:
            from lmcache.v1.distributed.l2_adapters.native_connector_l2_adapter import (
                NativeConnectorL2Adapter,
            )

            self.name = NO_STORE
            self.adapter = NativeConnectorL2Adapter(_NoStore())
            return
        import argparse

        from lmcache.cli.commands.bench.l2_adapter_bench import data
        from lmcache.v1.distributed.l2_adapters import create_l2_adapter
        from lmcache.v1.distributed.l2_adapters.config import parse_args_to_l2_adapters_config

        arguments = argparse.Namespace(l2_adapter=[contestant.adapter_json()])
        config = parse_args_to_l2_adapters_config(arguments).adapters[0]
        self.contestant = contestant
        self.name = contestant.name
        description = data.create_l1_memory_desc(buffer, align_bytes=1)
        self.adapter = create_l2_adapter(config, l1_memory_desc=description)

    def measure(self, operation: str, keys: list[Any], objects: list[Any], size: int) -> Sample:
        from lmcache.cli.commands.bench.l2_adapter_bench import runner

        shape = {"in_flight": 1, "num_keys": len(keys), "rounds": 1, "log": lambda _: None}
        shape["keys_for_round"] = lambda _: [keys]
        cpu = _cpu_seconds()
        if operation == "lookup":
            result = runner.bench_lookup(self.adapter, **shape)
        else:
            shape["objs_for_round"] = lambda _: [objects]
            function = runner.bench_store if operation == "store" else _load_without_clearing
            result = function(self.adapter, data_size=size, **shape)
        cpu = _cpu_seconds() - cpu
        if result.total_success != len(keys) or result.timed_out_rounds:
            message = f"{self.name}: {operation}: {result.total_success} of {len(keys)} keys"
            raise RuntimeError(message)
        if operation == "lookup":
            self.adapter.submit_unlock(keys)
        return Sample(result.round_durations[0], cpu)


@dataclass(frozen=True)
class Sample:
    """One batch: seconds on the clock, CPU seconds of this process."""

    seconds: float
    cpu: float


def _load_without_clearing(adapter: Any, **shape: Any) -> Any:
    # bench_load() zeroes its buffers inside what is measured for the CPU (not for the clock), the
    # same for all; here they are not touched between rounds, and contents are checked afterwards.
    from lmcache.cli.commands.bench.l2_adapter_bench import runner

    class _Kept:
        """A memory object whose zeroing does nothing."""

        def __init__(self, memory: Any) -> None:
            self._memory = memory
            self.raw_data = self

        def zero_(self) -> None:
            """Leaves the buffer as it is."""

        def __getattr__(self, name: str) -> Any:
            return getattr(self._memory, name)

    provider = shape["objs_for_round"]
    shape["objs_for_round"] = lambda r: [[_Kept(o) for o in batch] for batch in provider(r)]
    return runner.bench_load(adapter, **shape)


def _cpu_seconds() -> float:
    usage = resource.getrusage(resource.RUSAGE_SELF)
    return usage.ru_utime + usage.ru_stime


def _one_size(
    adapters: list[_Adapter], buffer: Any, kib: int, keys: int, plan: Plan, results: Results
) -> None:
    from lmcache.cli.commands.bench.l2_adapter_bench import data

    size = kib * KIB
    sources = data.make_memory_objects(buffer, keys, size, 0)
    targets = data.make_memory_objects(buffer, keys, size, keys * size, fill_offset=1)
    gib = size * keys / GIB
    mib = size * keys / MIB
    warmup = 2
    for round_number in range(-warmup, plan.adapter_rounds):
        names = data.make_object_keys(keys, key_offset=(round_number + warmup) * keys)
        steps = (("store", "store_fresh"), ("store", "store_again"), ("load", "load"))
        for operation, metric in steps:
            for adapter in turned(adapters, round_number):
                objects = targets if operation == "load" else sources
                if operation == "load":
                    for target in targets:
                        target.raw_data.zero_()
                sample = adapter.measure(operation, names, objects, size)
                if operation == "load" and not data.verify_round_trip(
                    names, sources, targets, lambda _: None
                ):
                    message = f"{adapter.name}: loaded bytes differ from stored bytes"
                    raise RuntimeError(message)
                if round_number < 0:
                    continue
                results[metric][kib][adapter.name].append(mib / sample.seconds)
                results[metric + "_cpu"][kib][adapter.name].append(sample.cpu / gib)
    for adapter in adapters:
        adapter.contestant.flush()


def _lookups(adapters: list[_Adapter], buffer: Any, plan: Plan, results: Results) -> None:
    from lmcache.cli.commands.bench.l2_adapter_bench import data

    names = data.make_object_keys(LOOKUP_KEYS, key_offset=1 << 20)
    objects = data.make_memory_objects(buffer, LOOKUP_KEYS, KIB, 0)
    for adapter in adapters:
        adapter.measure("store", names, objects, KIB)
    all_adapters = [*adapters, _Adapter(None, buffer)]
    for round_number in range(-2, plan.lookup_rounds):
        for adapter in turned(all_adapters, round_number):
            sample = adapter.measure("lookup", names, [], 0)
            if round_number >= 0:
                results["lookup"][1][adapter.name].append(LOOKUP_KEYS / sample.seconds)
                results["lookup_cpu"][1][adapter.name].append(sample.cpu * 1e6 / LOOKUP_KEYS)
    all_adapters[-1].adapter.close()


def adapter_rounds(
    contestants: list[Contestant], plan: Plan, say: Callable[[str], None]
) -> Results:
    """Stores, loads and lookups of all adapters in turn, one batch each."""
    import torch
    from lmcache.cli.commands.bench.l2_adapter_bench import data

    # Buffers are cleared and compared between batches; with several threads torch's idle ones would
    # then spin for a while on the cores that are being measured.
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    results = new_results()
    buffer = data.make_aligned_tensor(2 * max(kib * keys for kib, keys in SIZES) * KIB, 4096)
    for contestant in contestants:
        contestant.restart()
    adapters = [_Adapter(contestant, buffer) for contestant in contestants]
    try:
        for kib, keys in SIZES:
            _one_size(adapters, buffer, kib, keys, plan, results)
            say(f"adapters side by side: {kib} KiB x {keys}")
        _lookups(adapters, buffer, plan, results)
        say(f"adapters side by side: lookups of {LOOKUP_KEYS} keys")
    finally:
        torch.set_num_threads(threads)
        for adapter in adapters:
            adapter.adapter.close()
    return results


def prepare() -> None:
    """Imports what the first call would import, and keeps LMCache quiet."""
    import lmcache.cli.commands.bench.l2_adapter_bench.command
    import lmcache.v1.distributed.l2_adapters  # noqa: F401

    logging.getLogger("lmcache").setLevel(logging.ERROR)
