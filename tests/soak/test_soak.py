# SPDX-License-Identifier: Apache-2.0
"""Nothing grows, and no hit lies, however long mixed traffic and restarts go on.

SOAK_S seconds, 15 if not given; ``make soak`` takes 600.
"""

from __future__ import annotations

import itertools
import os
import random
import statistics
from pathlib import Path

import pytest
from programs import run_program
from soak import MIB, Sample, Soak, resources

from lmcache_aerospike import _log

SECONDS = float(os.environ.get("SOAK_S", "15"))
SEED = int(os.environ.get("SOAK_SEED", random.randrange(1 << 30)))
ROUND_SECONDS = 1.5 if SECONDS < 60 else 5.0

# Each kind of round has been once, with all its code, buffers and connections.
WARM_UP_ROUNDS = 3
# What the allocator keeps differs from round to round; a leak of one buffer each round is more.
RSS_MARGIN_BYTES = 24 * MIB
# Connections of the stores that live on, some for each of three nodes, differ as well.
DESCRIPTORS_MARGIN = 16


@pytest.mark.timeout(SECONDS * 2 + 120)
def test_soak() -> None:
    # In a process of its own: what other tests have left in this one moves its memory, too.
    done = run_program(Path(__file__), SECONDS * 2 + 100, SOAK_S=str(SECONDS), SOAK_SEED=str(SEED))
    print(done.stdout)


def run_soak() -> None:
    _log.start()  # its thread stays for the life of the process
    _, descriptors, threads = resources()
    soak = Soak(SECONDS, ROUND_SECONDS, SEED)
    soak.run()
    print(f"\nseed {SEED}\n{soak.table()}")
    assert not soak.problems, soak.problems[:10]

    settled = soak.samples[WARM_UP_ROUNDS:]
    assert len(settled) >= 2, "too few rounds: the machine is too busy, or SOAK_S too small"
    size = max(1, len(settled) // 4)
    first, last = settled[:size], settled[-size:]
    growth = median(last, "rss") - median(first, "rss")
    assert growth < RSS_MARGIN_BYTES, f"{growth / MIB:.1f} MiB more memory than after the warm-up"
    more = median(last, "descriptors") - median(first, "descriptors")
    assert more < DESCRIPTORS_MARGIN, f"{more} more descriptors than after the warm-up"
    assert {s.threads for s in settled} == {settled[0].threads}, "threads come or stay"

    check_progress(soak)
    # With everything closed, exactly what there was before.
    soak.workers.clear()
    _, descriptors_after, threads_after = resources()
    assert (descriptors_after, threads_after) == (descriptors, threads)


def median(samples: list[Sample], name: str) -> float:
    return statistics.median(getattr(sample, name) for sample in samples)


def check_progress(soak: Soak) -> None:
    """There was traffic, and it hit, also after what happened to the cluster."""
    hits = [sample.counts["get hit"] for sample in soak.samples]
    assert all(after > before for before, after in itertools.pairwise(hits)), hits
    for worker in soak.workers:
        for operation in ("put", "get", "exists"):
            assert worker.counts[f"{operation} hit"] > 0, (worker.name, worker.counts)


if __name__ == "__main__":
    run_soak()
