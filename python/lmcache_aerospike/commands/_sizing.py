# SPDX-License-Identifier: Apache-2.0
"""The arithmetic of ``plan``; docs/reference/cli.md has the formulas."""

from __future__ import annotations

import math
from dataclasses import dataclass

INDEX_BYTES = 64  # of the primary index, for each record and copy
SAFETY_BYTES = 64 << 10  # of a record limit, left to the server
TARGET_BYTES = 4 << 20  # of a segment, if the limit allows it
SEGMENT_BYTES_MIN = 64 << 10
ROUNDING_BYTES = 16  # sizes on the device
SEGMENT_OVERHEAD = 80  # header, set name, expiry and bin `sum` of a segment record
META_OVERHEAD = 320  # the same and the bins of a meta record with a key of about 120 bytes
SUM_BYTES = 8  # in the meta record, for each segment
FILL = 0.65  # of the space: writes stop at 70 % (stop-writes-used-pct)
RAM_SHARE = 0.8  # of a node's memory; the rest is the system's and the server's own
LINK_SHARE = 0.7  # of a node's link

DTYPE_BYTES = {"bfloat16": 2.0, "float16": 2.0, "float32": 4.0, "float8": 1.0}


@dataclass(frozen=True)
class Model:
    """What the KV cache of a model looks like.

    Attributes:
        layers: With attention.
        kv_heads: Key-value heads, over all GPUs.
        head_dim: Elements of a head.
        latent: Elements of a token and layer of multi-head latent attention, which has no heads;
            0 = none.
    """

    layers: int
    kv_heads: int = 0
    head_dim: int = 0
    latent: int = 0

    def token_bytes(self, dtype_bytes: float) -> int:
        """Bytes of the KV cache for each token."""
        elements = self.latent or 2 * self.kv_heads * self.head_dim
        return math.ceil(self.layers * elements * dtype_bytes)


PRESETS = {
    "llama-3.1-8b": Model(32, 8, 128),
    "llama-3.1-70b": Model(80, 8, 128),
    "llama-3.1-405b": Model(126, 8, 128),
    "mistral-7b": Model(32, 8, 128),
    "qwen2.5-7b": Model(28, 4, 128),
    "qwen2.5-32b": Model(64, 8, 128),
    "qwen2.5-72b": Model(80, 8, 128),
    "qwen3-8b": Model(36, 8, 128),
    "qwen3-32b": Model(64, 8, 128),
    "deepseek-v3": Model(61, latent=576),
}


@dataclass(frozen=True)
class Fleet:
    """What is to be kept, and what the machines are.

    Attributes:
        chunks: To keep, of all users.
        chunk_tokens: Tokens of a chunk.
        parts: Objects of a chunk: one for each GPU that holds its own heads.
        ratio: Bytes behind the serde for each byte before it.
        record_bytes: max-record-size.
        replication: Copies.
        ttl: Seconds that an object lives.
        node_ram: Bytes.
        node_ssd: Bytes; 0 = objects are kept in memory.
        node_link: Bytes a second in each direction.
        load_rate: Tokens a second, all engines together.
        store_rate: The same; what keeps the cache full for the TTL if None.
    """

    chunks: int
    chunk_tokens: int = 256
    parts: int = 1
    ratio: float = 1.0
    record_bytes: int = 1 << 20
    replication: int = 1
    ttl: int = 86_400
    node_ram: int = 64 << 30
    node_ssd: int = 0
    node_link: float = 25e9 / 8
    load_rate: float = 0.0
    store_rate: float | None = None


@dataclass(frozen=True)
class Plan:
    """What follows. Bytes and records are of the whole cluster, copies included, unless said.

    Attributes:
        token_bytes: Of the KV cache for each token.
        chunk_bytes: Of the KV cache for each chunk.
        object_bytes: Of one stored object.
        segments: Of one object.
        segment_bytes: Of one segment.
        objects: Without copies.
        records: Meta and segment records, without copies.
        index_bytes: Memory of the primary index.
        payload_bytes: What users store, without copies.
        storage_bytes: With overhead and copies.
        load_bytes: A second.
        store_bytes: A second, copies included.
        nodes_memory: That the memory asks for.
        nodes_ssd: That the devices ask for.
        nodes_link: That the links ask for.
        nodes: The most of those, and no fewer than copies.
        data_size: Of each node, for aerospike.conf.
    """

    token_bytes: int
    chunk_bytes: int
    object_bytes: int
    segments: int
    segment_bytes: int
    objects: int
    records: int
    index_bytes: int
    payload_bytes: int
    storage_bytes: int
    load_bytes: float
    store_bytes: float
    nodes_memory: int
    nodes_ssd: int
    nodes_link: int
    nodes: int
    data_size: int


def segments_of(object_bytes: int, record_bytes: int) -> tuple[int, int]:
    """How many segments an object has and how long they are, as docs/formats/record.md says."""
    limit = record_bytes - SAFETY_BYTES
    target = min(TARGET_BYTES, limit)
    if object_bytes <= target:
        return 1, object_bytes
    count = -(-object_bytes // target)
    size = -(-object_bytes // count)
    if size < SEGMENT_BYTES_MIN and object_bytes <= limit:
        return 1, object_bytes
    return count, size


def _rounded(size: int) -> int:
    return -(-size // ROUNDING_BYTES) * ROUNDING_BYTES


def stored_bytes(object_bytes: int, record_bytes: int) -> int:
    """What one copy of an object takes on the device, with all of its records."""
    count, size = segments_of(object_bytes, record_bytes)
    meta = META_OVERHEAD + SUM_BYTES * count
    if count == 1:
        return _rounded(meta + object_bytes)
    last = object_bytes - (count - 1) * size
    whole = (count - 1) * _rounded(SEGMENT_OVERHEAD + size)
    return whole + _rounded(SEGMENT_OVERHEAD + last) + _rounded(meta)


def make_plan(model: Model, dtype_bytes: float, fleet: Fleet) -> Plan:
    """Computes all that follows from a model and a fleet."""
    token_bytes = model.token_bytes(dtype_bytes)
    chunk_bytes = token_bytes * fleet.chunk_tokens
    object_bytes = math.ceil(chunk_bytes / fleet.parts * fleet.ratio)
    segments, segment_bytes = segments_of(object_bytes, fleet.record_bytes)
    objects = fleet.chunks * fleet.parts
    records = objects * (1 if segments == 1 else segments + 1)
    index_bytes = records * INDEX_BYTES * fleet.replication
    storage_bytes = objects * stored_bytes(object_bytes, fleet.record_bytes) * fleet.replication
    stored_per_token = object_bytes * fleet.parts / fleet.chunk_tokens
    tokens = fleet.chunks * fleet.chunk_tokens
    store_rate = tokens / fleet.ttl if fleet.store_rate is None else fleet.store_rate
    load_bytes = fleet.load_rate * stored_per_token
    store_bytes = store_rate * stored_per_token * fleet.replication
    space = storage_bytes / FILL
    memory = index_bytes + (0 if fleet.node_ssd else space)
    nodes_memory = max(1, math.ceil(memory / (fleet.node_ram * RAM_SHARE)))
    nodes_ssd = math.ceil(space / fleet.node_ssd) if fleet.node_ssd else 0
    # Loads leave a node and stores come in, each direction has the whole link; copies do both.
    per_direction = max(load_bytes + store_bytes * (1 - 1 / fleet.replication), store_bytes)
    nodes_link = math.ceil(per_direction / (fleet.node_link * LINK_SHARE))
    nodes = max(nodes_memory, nodes_ssd, nodes_link, fleet.replication)
    gib = 1 << 30
    return Plan(
        token_bytes=token_bytes,
        chunk_bytes=chunk_bytes,
        object_bytes=object_bytes,
        segments=segments,
        segment_bytes=segment_bytes,
        objects=objects,
        records=records,
        index_bytes=index_bytes,
        payload_bytes=objects * object_bytes,
        storage_bytes=storage_bytes,
        load_bytes=load_bytes,
        store_bytes=store_bytes,
        nodes_memory=nodes_memory,
        nodes_ssd=nodes_ssd,
        nodes_link=nodes_link,
        nodes=nodes,
        data_size=max(1, math.ceil(space / nodes / gib)) * gib,
    )


def _size_text(size: int) -> str:
    return f"{size >> 20}M" if size % (1 << 20) == 0 else f"{size >> 10}K"


def conf_lines(plan: Plan, fleet: Fleet, namespace: str) -> list[str]:
    """The section of aerospike.conf that follows; names of devices are the reader's to fill in."""
    size = f"{plan.data_size >> 30}G"
    if fleet.node_ssd:
        engine = [
            "    storage-engine device {",
            "        device <one line for each SSD partition>",
        ]
    else:
        engine = ["    storage-engine memory {", f"        data-size {size}"]
    return [
        f"namespace {namespace} {{",
        f"    replication-factor {fleet.replication}",
        "    nsup-period 120",
        "    default-ttl 0",
        f"    max-record-size {_size_text(fleet.record_bytes)}",
        *engine,
        f"        evict-used-pct {FILL * 100:.0f}",
        "        stop-writes-used-pct 70",
        "    }",
        "}",
    ]
