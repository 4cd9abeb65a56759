# SPDX-License-Identifier: Apache-2.0
"""LMCache's remote connector over the engine, for its in-process mode."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from typing import Any, Final

import torch
from lmcache.v1.storage_backend.connector.base_connector import RemoteConnector

from lmcache_aerospike import limits
from lmcache_aerospike._causes import QuietLog
from lmcache_aerospike._loading import Loaded, Loader
from lmcache_aerospike.client import AerospikeClientHolder, KeyResult
from lmcache_aerospike.config import AerospikeConfig
from lmcache_aerospike.errors import (
    AerospikeConnectionError,
    AerospikeConnectorError,
    AerospikeTimeoutError,
    ClosedError,
    InvalidArgumentError,
    map_aerospike_error,
)
from lmcache_aerospike.keys import HasText, logical_key
from lmcache_aerospike.serde import build_remote_metadata

__all__ = ["AerospikeRemoteConnector"]

logger = logging.getLogger("lmcache_aerospike")

# In the class, `list` is its method.
_Keys = list[str]
_Errors = list[AerospikeConnectorError | None]

_PLUGIN: Final = "aerospike"
_PING_KEY: Final = "lmcache-aerospike-ping"
_LIST_COUNT: Final = 1000


class AerospikeRemoteConnector(RemoteConnector):  # type: ignore[misc]
    """Chunks of KV cache in an Aerospike cluster.

    Coroutines run on any event loop, which only waits for a descriptor of the engine. The other
    methods wait for their result, on any thread, also on that of the loop.

    A load that times out is a miss. That no node can be reached is an error, unless other keys of
    the same call were answered; so is every store that was not done.

    Args:
        config: LMCache's configuration.
        metadata: LMCache's description of the KV cache.
        local_cpu_backend: LMCache's allocator.
        loop: LMCache's event loop.
        aerospike_config: The options; read from `config` if not given.
        client_holder: The shared client; acquired if not given, and released at the end.

    Raises:
        AerospikeConnectorError: One of its subclasses: the options, or the cluster, cannot be used.
    """

    def __init__(
        self,
        *,
        config: Any,  # noqa: ANN401 - LMCache's
        local_cpu_backend: Any,  # noqa: ANN401
        loop: asyncio.AbstractEventLoop,
        metadata: Any = None,  # noqa: ANN401
        aerospike_config: AerospikeConfig | None = None,
        client_holder: AerospikeClientHolder | None = None,
    ) -> None:
        if metadata is None:
            metadata = getattr(local_cpu_backend, "metadata", None)
        super().__init__(config, metadata)
        if aerospike_config is None:
            aerospike_config = AerospikeConfig.from_extra_config(config.extra_config, _PLUGIN)
        self.cfg = aerospike_config
        self.loop = loop
        self.local_cpu_backend = local_cpu_backend
        self._closed = False
        self._told_of_list = False
        self._limits_ready = False
        self._resolved: limits.ResolvedLimits | None = None
        self._log = QuietLog(logger)
        self._holder = client_holder or AerospikeClientHolder.get_or_create(aerospike_config)
        try:
            self._client = self._holder.client
            self._store = self._client.store(aerospike_config)
        except BaseException:
            if client_holder is None:
                self._holder.release()
            raise
        self._ensure_limits()
        self._loader = Loader(
            self._store,
            self,
            local_cpu_backend,
            layerwise=bool(getattr(config, "use_layerwise", False)),
            log=self._log,
        )

    def _ensure_limits(self) -> None:
        """The engine has asked the cluster when it connected; this takes note, once."""
        if not self._limits_ready:
            self._resolved = limits.limits_of_engine(self.cfg, self._store.native.limits())
            self._limits_ready = True

    def post_init(self) -> None:
        """Nothing is left to do."""
        self._ensure_limits()

    # ---- lookups ------------------------------------------------------------------------------

    async def exists(self, key: HasText) -> bool:
        """Whether a chunk is there."""
        self._check_open("exists")
        results = await self._store.exists([logical_key(key)])
        return self._bit("exists", results[0])

    def exists_sync(self, key: HasText) -> bool:
        """Whether a chunk is there; for any thread."""
        self._check_open("exists")
        return self._bit("exists", self._look_up([logical_key(key)])[0])

    def support_batched_contains(self) -> bool:
        """It does."""
        return True

    def batched_contains(self, keys: Sequence[HasText]) -> int:
        """How many chunks are there, counted up to the first that is not; for any thread.

        An error counts as absent: what is before it can be used.
        """
        if self._closed or not keys:
            return 0
        return self._prefix(self._look_up([logical_key(key) for key in keys]))

    async def batched_async_contains(
        self,
        lookup_id: str,  # noqa: ARG002 - the interface
        keys: Sequence[HasText],
        pin: bool = False,  # noqa: ARG002 - chunks in the cluster live as long as their TTL
    ) -> int:
        """The same as batched_contains()."""
        if self._closed or not keys:
            return 0
        try:
            return self._prefix(await self._store.exists([logical_key(key) for key in keys]))
        except AerospikeConnectorError as error:
            self._log.warning("lookup", f"lookup: {error}")
            return 0

    def _look_up(self, keys: list[str]) -> list[KeyResult]:
        try:
            found = self._store.native.exists_many(keys)
        except ClosedError as error:
            return [("error", 0, None, error)] * len(keys)
        return [
            ("hit" if bit else "miss", 0, None, None)
            if isinstance(bit, bool)
            else ("error", 0, None, bit)
            for bit in found
        ]

    def _prefix(self, results: list[KeyResult]) -> int:
        for count, (outcome, _, _, error) in enumerate(results):
            if outcome != "hit":
                if error is not None:
                    self._log.warning("lookup", f"lookup: {error}")
                return count
        return len(results)

    def _bit(self, operation: str, result: KeyResult) -> bool:
        outcome, _, _, error = result
        if error is None:
            return outcome == "hit"
        self._read_failed(operation, error)
        return False

    def _read_failed(self, operation: str, error: AerospikeConnectorError) -> None:
        """Turns a timeout into a miss and raises everything else."""
        if not isinstance(error, AerospikeTimeoutError):
            raise map_aerospike_error(operation, error)
        self._log.warning(operation, f"{operation}: {error}")

    # ---- loads --------------------------------------------------------------------------------

    async def get(self, key: HasText) -> Any:  # noqa: ANN401 - a memory object of LMCache
        """Loads a chunk; None if it is absent or there is no room for it."""
        self._check_open("get")
        loaded = (await self._loader.load([logical_key(key)]))[0]
        if isinstance(loaded, AerospikeConnectorError):
            self._read_failed("get", loaded)
            return None
        return loaded

    def support_batched_get(self) -> bool:
        """It does."""
        return True

    async def batched_get(self, keys: Sequence[HasText]) -> list[Any]:
        """Loads chunks, all at once; None for each that is absent or failed.

        Raises:
            AerospikeConnectionError: No node could be reached for any of them.
        """
        self._check_open("batched_get")
        if not keys:
            return []
        loaded = await self._loader.load([logical_key(key) for key in keys])
        errors = [one for one in loaded if isinstance(one, AerospikeConnectorError)]
        if errors:
            self._log.warning(
                "batched_get", f"batched_get: {len(errors)} of {len(keys)} failed: {errors[0]}"
            )
            if len(errors) == len(keys) and isinstance(errors[0], AerospikeConnectionError):
                failure = map_aerospike_error("batched_get", errors[0])
                raise failure
        return [None if isinstance(one, AerospikeConnectorError) else one for one in loaded]

    async def batched_get_non_blocking(
        self,
        lookup_id: str,  # noqa: ARG002 - the interface
        keys: Sequence[HasText],
    ) -> list[Any]:
        """Loads chunks, all at once; keeps those before the first that is absent or failed."""
        if self._closed or not keys:
            return []
        try:
            loaded = await self._loader.load([logical_key(key) for key in keys])
        except AerospikeConnectorError as error:
            self._log.warning("batched_get", f"batched_get: {error}")
            return []
        return self._keep_prefix(loaded)

    def _keep_prefix(self, loaded: list[Loaded]) -> list[Any]:
        kept: list[Any] = []
        is_whole = True
        for one in loaded:
            if isinstance(one, AerospikeConnectorError):
                self._log.warning("batched_get", f"batched_get: {one}")
                is_whole = False
            elif one is None:
                is_whole = False
            elif is_whole:
                kept.append(one)
            else:
                one.ref_count_down()
        return kept

    def reshape_partial_chunk(self, memory_obj: Any, bytes_read: int) -> Any:  # noqa: ANN401
        """Cuts a memory object of a full chunk to what was loaded, all of its groups.

        Raises:
            ValueError: `bytes_read` is no number of whole tokens of a chunk.
        """
        full, token = self.full_chunk_size_bytes, self.single_token_size
        groups = len(self.meta_shapes)
        if groups == 1 or bytes_read >= full or bytes_read < token or bytes_read % token:
            memory_obj = super().reshape_partial_chunk(memory_obj, bytes_read)
            if groups == 1:
                memory_obj.meta.shapes = [memory_obj.meta.shape]
            return memory_obj
        # LMCache's own cuts the first group only.
        shapes = [torch.Size([*s[:2], bytes_read // token, *s[3:]]) for s in self.meta_shapes]
        ends = [0]
        for shape, dtype in zip(shapes, self.meta_dtypes, strict=True):
            ends.append(ends[-1] + shape.numel() * dtype.itemsize)
        memory_obj.raw_data = memory_obj.raw_data[:bytes_read]
        memory_obj.meta.shape, memory_obj.meta.shapes = shapes[0], shapes
        memory_obj.group_prefix_sum = ends
        return memory_obj

    # ---- stores -------------------------------------------------------------------------------

    async def put(self, key: HasText, memory_obj: Any) -> None:  # noqa: ANN401 - LMCache's
        """Stores a chunk. The reference to it remains the caller's.

        Raises:
            AerospikeConnectorError: It was not stored, or perhaps not: see `in_doubt`.
        """
        await self._put("put", [key], [memory_obj])

    def support_batched_put(self) -> bool:
        """It does."""
        return True

    async def batched_put(self, keys: Sequence[HasText], memory_objs: Sequence[Any]) -> None:
        """Stores chunks, all at once, each on its own.

        Raises:
            AerospikeConnectorError: The first that was met; others may have been stored.
        """
        if len(keys) != len(memory_objs):
            msg = f"batched_put: {len(memory_objs)} objects, expected {len(keys)} as there are keys"
            raise InvalidArgumentError(msg)
        if keys:
            await self._put("batched_put", keys, memory_objs)

    async def put_each(
        self,
        keys: Sequence[HasText],
        memory_objs: Sequence[Any],
        ttl_seconds: int | None = None,
        pin: bool = False,
    ) -> _Errors:
        """Stores chunks, all at once, each on its own; the error of each that was not stored."""
        self._check_open("put")
        buffers = [memory.byte_array for memory in memory_objs]
        metadata = None
        if self.save_chunk_meta:
            metadata = [build_remote_metadata(memory).serialize() for memory in memory_objs]
            for one, buffer in zip(metadata, buffers, strict=True):
                self._loader.expect(one, len(buffer))
        held: list[Any] = []
        has_ended = False

        def let_go() -> None:
            nonlocal has_ended
            has_ended = True
            while held:
                held.pop().ref_count_down()

        texts = [logical_key(key) for key in keys]
        future = self._store.put(texts, buffers, metadata, let_go, ttl_seconds, pin)
        try:
            return [error for _, _, _, error in await future]
        except asyncio.CancelledError:
            # The caller lets go of its objects now. If the engine still reads them, they are held
            # until it has ended; that may have happened between the cancellation and this line.
            if future.cancelled() and not has_ended:
                for memory in memory_objs:
                    memory.ref_count_up()
                    held.append(memory)
            raise

    async def _put(
        self,
        operation: str,
        keys: Sequence[HasText],
        memory_objs: Sequence[Any],
        ttl_seconds: int | None = None,
        pin: bool = False,
    ) -> None:
        self._check_open(operation)
        found = await self.put_each(keys, memory_objs, ttl_seconds, pin)
        errors = [error for error in found if error is not None]
        if errors:
            attempt = f"{operation}: {len(errors)} of {len(keys)}"
            raise map_aerospike_error(attempt, errors[0])

    def remove_sync(self, key: HasText) -> bool:
        """Removes a chunk; whether it was there. For any thread."""
        self._check_open("remove")
        return self._store.native.delete(logical_key(key))

    # ---- the rest -----------------------------------------------------------------------------

    async def list(self) -> _Keys:
        """All keys of the set, by a scan, if the option `enable_list` allows it."""
        self._check_open("list")
        if not self.cfg.enable_list:
            if not self._told_of_list:
                logger.info("list: off; set %s to have it", self.cfg.key("enable_list"))
            self._told_of_list = True
            return []
        return await asyncio.get_running_loop().run_in_executor(None, self._scan)

    def _scan(self) -> _Keys:
        keys: _Keys = []
        cursor = 0
        while cursor < 4096:
            objects, cursor = self._store.native.list(cursor, _LIST_COUNT)
            keys += [one["key"] for one in objects if one["key"] is not None and one["ready"]]
        return keys

    def support_ping(self) -> bool:
        """It does."""
        return True

    async def ping(self) -> int:
        """0 if the cluster answers a lookup, 1 if not."""
        if self._closed or not self._client.get_node_names():
            return 1
        try:
            results = await self._store.exists([_PING_KEY])
        except AerospikeConnectorError:
            return 1
        return 0 if results[0][3] is None else 1

    async def close(self) -> None:
        """Ends what is under way, with errors, and releases the client. Idempotent, bounded.

        When it returns, no memory object is touched any more.
        """
        if self._closed:
            return
        self._closed = True
        try:
            self._store.close()
        finally:
            self._holder.release()
        # Coroutines that waited see their errors now, and release their memory.
        await asyncio.sleep(0)

    def _check_open(self, operation: str) -> None:
        if self._closed:
            msg = f"{operation}: the connector is closed"
            raise ClosedError(msg)

    def __repr__(self) -> str:
        hosts = ",".join(f"{host}:{port}" for host, port, *_ in self.cfg.hosts)
        where = f"{hosts}/{self.cfg.namespace}/{self.cfg.set_name}"
        return f"<{type(self).__name__} {self.cfg.plugin_name} {where}>"
