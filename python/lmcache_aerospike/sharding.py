# SPDX-License-Identifier: Apache-2.0
"""How an object is cut into records: the rule of the engine, to look at and to calculate with."""

from __future__ import annotations

from dataclasses import dataclass

from lmcache_aerospike.errors import AerospikeConfigError

__all__ = ["ShardPlan", "plan"]


@dataclass(frozen=True)
class ShardPlan:
    """The records of one object.

    Attributes:
        nseg: How many segments; 1 = the meta record holds the payload.
        seg_b: Bytes of each segment but the last, which has the rest.
    """

    nseg: int
    seg_b: int


def plan(
    payload_bytes: int,
    *,
    target_segment_bytes: int,
    max_segment_bytes: int,
    min_segment_bytes: int,
    single_record_threshold_bytes: int,
) -> ShardPlan:
    """Cuts an object into segments of about equal size.

    Args:
        payload_bytes: Size of the object.
        target_segment_bytes: Preferred size of a segment.
        max_segment_bytes: No record is larger.
        min_segment_bytes: Smaller segments are avoided where one record can hold the object.
        single_record_threshold_bytes: Objects up to this size are one record.

    Raises:
        AerospikeConfigError: The preferred size is no size, or over the largest.
    """
    if payload_bytes < 0 or target_segment_bytes < 1:
        msg = f"plan: {payload_bytes} bytes in segments of {target_segment_bytes}, expected sizes"
        raise AerospikeConfigError(msg)
    fits_one = payload_bytes <= max_segment_bytes
    if payload_bytes == 0 or (fits_one and payload_bytes <= single_record_threshold_bytes):
        return ShardPlan(1, payload_bytes)
    nseg = -(-payload_bytes // target_segment_bytes)
    seg_b = -(-payload_bytes // nseg)
    if seg_b > max_segment_bytes:
        msg = (
            f"option 'target_segment_bytes': {target_segment_bytes}, expected at most "
            f"max_segment_bytes, which is {max_segment_bytes}"
        )
        raise AerospikeConfigError(msg)
    if nseg > 1 and seg_b < min_segment_bytes and fits_one:
        return ShardPlan(1, payload_bytes)
    return ShardPlan(nseg, seg_b)
