# SPDX-License-Identifier: Apache-2.0
# ruff: noqa: PYI021 - docstrings of an extension module have no better place; editors show them
"""The engine. The classes of the package itself take checked options; these take them as a dict."""

from collections.abc import Sequence
from types import TracebackType
from typing import Any, TypedDict

from typing_extensions import Buffer, Self

from lmcache_aerospike._native_devserver import CertificateFiles as CertificateFiles
from lmcache_aerospike._native_devserver import DevServer as DevServer
from lmcache_aerospike._native_devserver import FaultCounter as FaultCounter
from lmcache_aerospike._native_devserver import ServerStats as ServerStats
from lmcache_aerospike._native_devserver import make_certificates as make_certificates
from lmcache_aerospike.errors import AerospikeConnectorError

__version__: str

class Histogram(TypedDict):
    """Values in powers of two: counts[i] are those up to 2**i and above 2**(i - 1)."""

    counts: list[int]
    sum: int

class OperationStats(TypedDict):
    items: int
    hits: int
    misses: int
    errors: int
    bytes: int
    round_trips: int
    in_flight: int
    errors_by_code: dict[str, int]
    batch_microseconds: Histogram

class NodeStats(TypedDict):
    name: str
    address: str
    suspect: bool
    probed: bool
    requests: int
    failures: int
    connections: int
    store_window_bytes: int

class StoreStats(TypedDict):
    """Counters since the store was opened; `operations` by get, put, exists, delete, touch.

    `stop_writes` is 1 while stores are shed since the namespace takes no writes.

    Stores of one process with equal connection options share an engine. `engine` tells which; from
    `requests` to `bytes_in_flight_peak`, and `nodes`, what it tells is of the engine.
    """

    operations: dict[str, OperationStats]
    misses_by_reason: dict[str, int]
    stores_shed_by_reason: dict[str, int]
    store_bytes_queued: int
    store_bytes_queued_peak: int
    stop_writes: int
    engine: int
    requests: int
    retries: int
    stalls: int
    hedges: int
    hedges_won: int
    probes: int
    connection_errors: int
    bytes_in_flight: int
    bytes_in_flight_peak: int
    stored_segment_counts: Histogram
    stored_segment_bytes: Histogram
    damaged_keys: int
    nodes: list[NodeStats]

class StoreTotals(StoreStats):
    """The counters of all stores that a process has and had, as one; `engine` is 0.

    Counters of an engine are in it once, however many stores share it. `nodes` are those of open
    stores. `serde_failures` counts objects, by serialize and deserialize.
    """

    open_stores: int
    open_engines: int
    serde_failures: dict[str, int]

class StoreLimits(TypedDict):
    """What the cluster allows, from which key of its answer, and the sizes that follow."""

    record_bytes_max: int
    record_bytes_source: str
    target_segment_bytes: int
    max_segment_bytes: int
    min_segment_bytes: int
    single_record_threshold_bytes: int
    warnings: list[str]

class ObjectInfo(TypedDict):
    """An object in a listing.

    `key` is None if its record does not carry it; `created_at` is in Unix seconds; `expires_in`
    in seconds, None = never.
    """

    key: str | None
    digest: str
    bytes: int
    segment_count: int
    segment_bytes: int
    created_at: int
    expires_in: int | None
    generation: int
    pin: bool
    ready: bool
    serde: str | None
    raw_bytes: int

class RecordInfo(TypedDict):
    """A record of an object; `sum_agrees` is None unless it is a segment with sums."""

    user_key: str
    digest: str
    present: bool
    generation: int
    expires_in: int | None
    node: str
    sum_agrees: bool | None

class ObjectDetails(ObjectInfo):
    """All records of an object, the meta record first."""

    has_sums: bool
    has_crc32: bool
    metadata_bytes: int
    records: list[RecordInfo]

class Connector:
    """Batches with one completion each, as LMCache drives them. Thread-safe.

    Each submit returns at once with the id of the batch, and never waits for the network. The
    engine holds the buffers until the completion was drained, or close() has returned; do not
    touch them before. Every batch completes exactly once, within its deadline.

    Raises (submits):
        InvalidArgumentError: No keys, as many buffers as keys are not given, a key that is empty,
            too long or cannot be encoded, or a buffer that is not contiguous, not of bytes or, for
            a load, read-only. Nothing has been started.
        TypeError: A key is no str, or a buffer no buffer.
        ClosedError: After close(), or in a forked child.
    """

    def __init__(self, options: dict[str, Any] | Store) -> None:
        """Connect; waits for about twice `connect_timeout_ms`, or for `start_timeout_ms`.

        Given a Store instead, share it, with its counters, at once. Closing the store then ends
        the open batches of this connector; closing this connector waits for its own batches.
        """

    def event_fd(self) -> int:
        """The descriptor that is readable while completions wait; the same for ever."""

    def submit_batch_get(self, keys: Sequence[str], memoryviews: Sequence[Buffer]) -> int:
        """Start loading objects into writable buffers.

        An object shorter than its buffer fills the front and is a hit; what is behind it in the
        buffer is undefined then. A longer one is a miss. Nothing is written outside the buffer.
        """

    def submit_batch_set(
        self,
        keys: Sequence[str],
        memoryviews: Sequence[Buffer],
        metadata: Sequence[Buffer | None] | None = None,
        ttl_seconds: int | None = None,
        pin: bool = False,
    ) -> int:
        """Start storing objects. `ok` of the completion means that every one was stored.

        Args:
            keys: One for each object.
            memoryviews: Their payloads.
            metadata: Up to 64 KiB for each, which loads return with the payload.
            ttl_seconds: Instead of the option default_ttl_seconds.
            pin: They never expire.

        Returns:
            The id of the batch.
        """

    def submit_batch_exists(self, keys: Sequence[str]) -> int:
        """Start looking objects up. `ok` is true unless nothing could be asked at all."""

    def submit_batch_delete(self, keys: Sequence[str]) -> int:
        """Start deleting objects; a bit says whether the object was there."""

    def submit_batch_touch(self, keys: Sequence[str], ttl_seconds: int | None = None) -> int:
        """Start renewing the expiry of objects, by default with `default_ttl_seconds`."""

    def drain_completions(self) -> list[tuple[int, bool, str, list[bool] | None]]:
        """Take what has ended, oldest first: (id, ok, error, one bit per key)."""

    def drain_results(
        self,
    ) -> list[tuple[int, list[tuple[str, int, bytes | None, AerospikeConnectorError | None]]]]:
        """Take what has ended, oldest first, instead of drain_completions().

        Returns:
            The id of each batch, and for each of its keys: "hit", "miss" or "error"; the payload
            bytes, also of a load that missed because the buffer is too small; the metadata; the
            error.
        """

    def close(self) -> None:
        """End open batches, which complete with an error, and let go of all buffers.

        Idempotent, bounded in time, callable from any thread. Completions can still be drained.
        """

    def stats(self) -> StoreStats: ...
    def limits(self) -> StoreLimits: ...

class Store:
    """Objects in an Aerospike cluster; every call waits for its result. Thread-safe.

    Keys are text of 1 to 4,096 bytes in UTF-8. Data are anything with the buffer protocol:
    contiguous, one byte per item. A missing or damaged object is None or False, never an error.
    The calls for many keys return errors in place of results, so that one key's failure does not
    touch its neighbours.

    Raises (all calls):
        AerospikeConnectorError: One of its subclasses, see docs/reference/errors.md.
        TypeError: A key is no str, or a buffer no buffer.
    """

    def __init__(self, options: dict[str, Any]) -> None:
        """Connect; waits for about twice `connect_timeout_ms`, or for `start_timeout_ms`."""

    def get(self, key: str) -> bytes | None:
        """Load an object of unknown size. One larger than a record costs a second request."""

    def get_into(self, key: str, buffer: Buffer) -> int | None:
        """Load an object into the front of a writable buffer and return its size.

        None if it is absent or larger than the buffer. What is behind the object in the buffer is
        undefined.
        """

    def put(self, key: str, data: Buffer, ttl: int | None = None, pin: bool = False) -> int:
        """Store an object and return its size.

        Args:
            key: Its name.
            data: Its content.
            ttl: Seconds instead of `default_ttl_seconds`; 0, -1 and -2 as there.
            pin: Mark it as pinned; it never expires.
        """

    def exists(self, key: str) -> bool: ...
    def delete(self, key: str) -> bool:
        """Delete an object; whether it was there."""

    def touch(self, key: str, ttl: int | None = None) -> bool:
        """Renew the expiry of an object, by default with `default_ttl_seconds`."""

    def get_many_into(
        self, keys: Sequence[str], buffers: Sequence[Buffer]
    ) -> list[int | AerospikeConnectorError | None]: ...
    def put_many(
        self,
        keys: Sequence[str],
        data: Sequence[Buffer],
        ttl: int | None = None,
        pin: bool = False,
    ) -> list[int | AerospikeConnectorError | None]: ...
    def exists_many(self, keys: Sequence[str]) -> list[bool | AerospikeConnectorError]: ...
    def delete_many(self, keys: Sequence[str]) -> list[bool | AerospikeConnectorError]: ...
    def list(self, cursor: int = 0, count: int = 1000) -> tuple[list[ObjectInfo], int]:
        """List at least `count` objects, if there are as many.

        Returns:
            The objects, and the cursor of the next call; it is 4096 at the end.
        """

    def inspect(self, key: str) -> ObjectDetails | None:
        """Look at all records of one object."""

    def info(self, command: str) -> dict[str, str | AerospikeConnectorError]:
        """Ask every active node one info command, such as "namespace/lmcache".

        Returns:
            By the node's name: the value as it wrote it, or the error: of the connection, or the
            node's own.
        """

    def stats(self) -> StoreStats: ...
    def limits(self) -> StoreLimits: ...
    def close(self) -> None:
        """End what is under way, with errors, and the threads. Idempotent, bounded."""

    def __enter__(self) -> Self: ...
    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None: ...

class NodeReport(TypedDict):
    """What one node said, by command; the error instead where it did not."""

    node: str
    address: str
    answers: dict[str, str | AerospikeConnectorError]

def ask_cluster(options: dict[str, Any], commands: Sequence[str]) -> list[NodeReport]:
    """Connect as a Store would, without looking at the namespace, and ask all nodes."""

def record_digest(set_name: str, user_key: str) -> str:
    """The digest of the record that has this user key, 40 hex digits."""

class RecordVersion(TypedDict):
    digest: str
    generation: int

class Finding(RecordVersion):
    """Something wrong in a set; `segments` are those of a damaged object that are there."""

    kind: str
    key: str | None
    expires_in: int | None
    detail: str
    segments: list[RecordVersion]

class SurveyReport(TypedDict):
    objects: int
    bytes: int
    segment_records: int
    keyless: int
    unexamined: int
    can_tell_orphans: bool
    counts: dict[str, int]
    findings: list[Finding]

class Survey:
    """Walks through all records of a set by headers and small bins. Not thread-safe."""

    def __init__(
        self, options: dict[str, Any], findings_max: int = ..., records_in_memory: int = ...
    ) -> None:
        """Connect; more findings of a kind are counted only, larger sets are read in parts."""

    def step(self) -> bool:
        """Do a part of the work; false when all is done."""

    def progress(self) -> float: ...
    def report(self) -> SurveyReport: ...
    def remove(self, records: Sequence[RecordVersion]) -> list[bool | AerospikeConnectorError]:
        """Remove records that still have these generations; whether each was removed."""

class Serializer:
    """Turns a tensor into bytes. Immutable, thread-safe; calls release the GIL.

    Raises (all calls):
        InvalidArgumentError: Memory that cannot be used, a type or shape that the format does not
            take, or a target that is too small.
        TypeError: An object without memory.
    """

    def __init__(self, config: dict[str, Any]) -> None:
        """Make one from its configuration: type and parameters."""

    @property
    def tag(self) -> str:
        """The format and all parameters that a reader must share, without secrets."""

    def serialize(self, src: object, dst: object, key: object | None = None) -> int:
        """Write the serialized form of src to the front of dst and return its bytes."""

    def estimate_serialized_size(self, layout: object) -> int:
        """An upper bound of what serialize() writes for tensors of this layout."""

class Deserializer:
    """Turns bytes back into a tensor. Immutable, thread-safe; calls release the GIL.

    Raises (all calls):
        InvalidArgumentError: Memory that cannot be used, or bytes of another format or size.
        CorruptionError: Truncated or damaged bytes, or those of another key.
        AerospikeDeniedError: Authentication failed.
        TypeError: An object without memory.
    """

    def __init__(self, config: dict[str, Any]) -> None:
        """Make one from its configuration: type and parameters."""

    @property
    def tag(self) -> str:
        """The format and all parameters that the writer must share, without secrets."""

    def deserialize(self, src: object, dst: object, key: object | None = None) -> None:
        """Fill dst from the bytes at the front of src. After an error its content is undefined."""

class MultiSerializer:
    """Turns a group of tensors into bytes; None stands for an absent one."""

    def __init__(self, config: dict[str, Any]) -> None:
        """Make one for k16v8: type, and k_dtype for containers without K."""

    @property
    def group_size(self) -> int: ...
    def serialize(self, src: Sequence[object], dst: object, key: object | None = None) -> int: ...
    def estimate_serialized_size(self, layout_descs: Sequence[object]) -> int: ...

class MultiDeserializer:
    """Turns bytes back into a group of tensors; nothing is made for None."""

    def __init__(self, config: dict[str, Any]) -> None:
        """Make one for k16v8: type."""

    @property
    def group_size(self) -> int: ...
    def deserialize(
        self, src: object, dst: Sequence[object], key: object | None = None
    ) -> None: ...

class SerdeProcessor:
    """Serializes and deserializes on threads of its own. Thread-safe.

    Memory is held from the submit until the result was taken, or close() has returned.

    Raises (all calls but close):
        ClosedError: After close() (submits only), or in a forked child.
    """

    def __init__(self, serializer: Serializer, deserializer: Deserializer, workers: int) -> None:
        """Start 1 to 256 threads for a pair."""

    @staticmethod
    def create(config: dict[str, Any]) -> SerdeProcessor:
        """Make one for a built-in format from its configuration, `max_workers` included."""

    def get_serialize_event_fd(self) -> int: ...
    def get_deserialize_event_fd(self) -> int: ...
    def submit_serialize(
        self,
        src_objs: Sequence[object],
        dst_objs: Sequence[object],
        keys: Sequence[object | None] | None = None,
    ) -> int:
        """Start to serialize objects into buffers; returns the id of the task."""

    def submit_deserialize(
        self,
        src_objs: Sequence[object],
        dst_objs: Sequence[object],
        keys: Sequence[object | None] | None = None,
    ) -> int:
        """Start to deserialize buffers into objects; returns the id of the task."""

    def query_serialize_result(self, task_id: int) -> bool | None:
        """True or False once for each task, None before and after.

        Calls set_used_size() of the targets that have it before it returns True.
        """

    def query_deserialize_result(self, task_id: int) -> bool | None:
        """True or False once for each task, None before and after."""

    def estimate_serialized_size(self, layout: object) -> int: ...
    def last_errors(self) -> list[tuple[int, int, AerospikeConnectorError]]:
        """The newest failures, oldest first: (task id, index in the task, error)."""

    def close(self) -> None:
        """End what has not begun, wait for what has, free threads and buffers. Idempotent."""

def totals() -> StoreTotals: ...
def serde_types() -> list[str]:
    """The names of the built-in formats."""

def open_log() -> int:
    """Start to collect log lines; returns a descriptor that is readable while some wait."""

def take_log_lines() -> list[tuple[int, str]]:
    """Take the waiting lines as (level of the logging module, text)."""

def close_log() -> None:
    """Collect no more lines; those that wait can be taken."""
