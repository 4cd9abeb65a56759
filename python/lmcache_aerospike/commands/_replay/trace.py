# SPDX-License-Identifier: Apache-2.0
"""Reads request traces in Mooncake's format: JSON lines, one request each."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

from lmcache_aerospike.errors import AerospikeConfigError

_EXPECTED = (
    'expected {"timestamp": ms, "input_length": tokens, "output_length": tokens, '
    '"hash_ids": [block, ...]}'
)
_BLOCKS_MAX = 1 << 20


@dataclass(frozen=True)
class Request:
    """One request of a trace.

    Attributes:
        arrival: Seconds since the first request.
        input_tokens: Length of its prompt.
        output_tokens: Length of its answer.
        blocks: Ids of the blocks of its prompt, in order. Equal ids are equal prefixes.
    """

    arrival: float
    input_tokens: int
    output_tokens: int
    blocks: tuple[int, ...]

    def tokens_of(self, blocks: int, block_tokens: int) -> int:
        """Tokens of its first `blocks` blocks; the last one may be shorter."""
        return min(blocks * block_tokens, self.input_tokens)


def read_trace(path: Path, limit: int = 0) -> list[Request]:
    """The requests in order of arrival, the first `limit` of them unless it is 0.

    Raises:
        AerospikeConfigError: A line is not a request; the message names it.
    """
    requests: list[Request] = []
    with path.open(encoding="utf-8", errors="replace") as lines:
        for number, line in enumerate(lines, 1):
            if limit and len(requests) == limit:
                break
            if line.strip():
                requests.append(_request(f"{path}:{number}", line))
    if not requests:
        msg = f"{path}: no requests; {_EXPECTED} on each line"
        raise AerospikeConfigError(msg)
    requests.sort(key=lambda request: request.arrival)
    first = requests[0].arrival
    return [Request(r.arrival - first, r.input_tokens, r.output_tokens, r.blocks) for r in requests]


def _request(where: str, line: str) -> Request:
    try:
        row = json.loads(line)
        numbers = [row[name] for name in ("timestamp", "input_length", "output_length")]
        blocks = row["hash_ids"]
        if not all(_is_count(value) for value in [*numbers, *blocks]):
            raise ValueError
    except (ValueError, TypeError, KeyError, RecursionError):
        shown = line.strip()[:60]
        msg = f"{where}: '{shown}' is no request, {_EXPECTED}"
        raise AerospikeConfigError(msg) from None
    if len(blocks) > _BLOCKS_MAX:
        msg = f"{where}: {len(blocks)} blocks, expected at most {_BLOCKS_MAX}"
        raise AerospikeConfigError(msg)
    return Request(numbers[0] / 1000, int(numbers[1]), int(numbers[2]), tuple(blocks))


def _is_count(value: object) -> bool:
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return False
    return 0 <= value < 1 << 63 and value == int(value)
