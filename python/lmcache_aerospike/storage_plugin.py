# SPDX-License-Identifier: Apache-2.0
"""A storage backend for LMCache's in-process mode, loaded through `storage_plugins`.

It stands where the remote connector with LMCache's RemoteBackend around it stands, without that:
each chunk of a store succeeds for itself and only then is reported, pins are kept, a scheduler
without CPU memory can look up, and a cluster that is away at the start is found later.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import logging
import threading
import time
from collections.abc import Callable, Coroutine, Iterable, Mapping, Sequence
from typing import Any, Final

from lmcache.v1.storage_backend.abstract_backend import StoragePluginInterface

from lmcache_aerospike._causes import QuietLog
from lmcache_aerospike.client import AerospikeClientHolder, EngineStore
from lmcache_aerospike.config import AerospikeConfig
from lmcache_aerospike.connector import AerospikeRemoteConnector
from lmcache_aerospike.errors import AerospikeConfigError, AerospikeConnectorError, ClosedError
from lmcache_aerospike.keys import logical_key

__all__ = ["AerospikeStoragePlugin"]

logger = logging.getLogger("lmcache_aerospike")

_PREFIX: Final = "storage_plugin"
_REMOTE_PREFIX: Final = "remote_storage_plugin"
_RETRY_SECONDS: Final = 10.0
_CLOSE_SECONDS: Final = 30.0

_Memory = Any
_Key = Any


class _Connector(AerospikeRemoteConnector):
    """The remote connector, with what only this backend asks for."""

    @property
    def store(self) -> EngineStore:
        """Where the chunks are."""
        return self._store


class _Link:
    """The way to the cluster, made in the background until that succeeds.

    Args:
        connect: Makes a connector, or a bare store where nothing can be loaded.
    """

    def __init__(self, connect: Callable[[], _Connector | EngineStore]) -> None:
        self._connect = connect
        self._mutex = threading.Lock()
        self._made: _Connector | EngineStore | None = None
        self._thread: threading.Thread | None = None
        self._next_at = 0.0
        self._closed = False

    def try_now(self) -> None:
        """The first attempt.

        Raises:
            AerospikeConfigError: Later attempts would fail as well.
        """
        self._attempt()

    def get(self) -> _Connector | EngineStore | None:
        """What was made; None, and another attempt now and then, until it is."""
        with self._mutex:
            if self._made is None and not self._closed and self._thread is None:
                now = time.monotonic()
                if now >= self._next_at:
                    self._next_at = now + _RETRY_SECONDS
                    self._thread = threading.Thread(target=self._again, daemon=True)
                    self._thread.start()
            return self._made

    def _again(self) -> None:
        try:
            self._attempt()
        finally:
            with self._mutex:
                self._thread = None

    def _attempt(self) -> None:
        try:
            made = self._connect()
        except AerospikeConfigError:
            raise
        except AerospikeConnectorError as error:
            self._next_at = time.monotonic() + _RETRY_SECONDS
            logger.warning("no way to the cluster: %s; trying again", error)
            return
        with self._mutex:
            if not self._closed:
                self._made = made
                return
        _end(made)

    def close(self) -> _Connector | EngineStore | None:
        """No more attempts; gives what was made away."""
        with self._mutex:
            self._closed = True
            made, self._made = self._made, None
            thread = self._thread
        if thread is not None:
            thread.join(_CLOSE_SECONDS)
        return made


def _end(made: _Connector | EngineStore) -> None:
    """Closes what no event loop has used."""
    if isinstance(made, EngineStore):
        made.close()
    else:
        asyncio.run(made.close())


class AerospikeStoragePlugin(StoragePluginInterface):  # type: ignore[misc]
    """Chunks of KV cache in an Aerospike cluster, as a storage backend of LMCache's.

    Its options are `storage_plugin.<name>.<option>` in `extra_config`, those of the table. LMCache
    does not tell a backend its name: the one entry of `storage_plugins` with this class is taken.

    Args:
        dst_device: LMCache's; loads end in the memory of `local_cpu_backend`.
        config: LMCache's configuration.
        metadata: LMCache's description of the KV cache.
        local_cpu_backend: LMCache's allocator; without one, as in a scheduler, lookups alone work.
        loop: LMCache's event loop.

    Raises:
        AerospikeConfigError: An option is unknown, missing or has a bad value.
    """

    def __init__(
        self,
        dst_device: str = "cpu",
        config: Any = None,  # noqa: ANN401 - LMCache's
        metadata: Any = None,  # noqa: ANN401
        local_cpu_backend: Any = None,  # noqa: ANN401
        loop: asyncio.AbstractEventLoop | None = None,
    ) -> None:
        super().__init__(dst_device, config, metadata, local_cpu_backend, loop)
        if config is None or loop is None:
            msg = "a storage plugin needs LMCache's configuration and event loop"
            raise AerospikeConfigError(msg)
        self.cfg = _options_of(config, type(self))
        self._name = self.cfg.plugin_name
        self._loop = loop
        self._seconds_max = float(config.blocking_timeout_secs)
        self._log = QuietLog(logger)
        self._mutex = threading.Lock()
        self._putting: set[_Key] = set()
        self._pins: dict[_Key, int] = {}
        self.failed_put_count = 0
        # With MLA all workers have the same chunks: the first one stores them, for all.
        self._is_silent = (
            metadata is not None
            and bool(metadata.use_mla)
            and metadata.world_size > 1
            and metadata.worker_id != 0
            and bool(config.get_extra_config_value("remote_enable_mla_worker_id_as0", True))
        )
        self._link = _Link(self._connect)
        self._link.try_now()

    def _connect(self) -> _Connector | EngineStore:
        if self.local_cpu_backend is not None:
            return _Connector(
                config=self.config,
                metadata=self.metadata,
                local_cpu_backend=self.local_cpu_backend,
                loop=self._loop,
                aerospike_config=self.cfg,
            )
        holder = AerospikeClientHolder.get_or_create(self.cfg)
        try:
            return EngineStore(self.cfg.options().native(), lambda _: holder.release())
        except BaseException:
            holder.release()
            raise

    # ---- lookups --------------------------------------------------------------------------------

    def contains(self, key: _Key, pin: bool = False) -> bool:
        """Whether a chunk is there; never an error. For any thread."""
        return self.batched_contains([key], pin) == 1

    def batched_contains(self, keys: Sequence[_Key], pin: bool = False) -> int:
        """How many chunks are there, counted up to the first that is not; for any thread."""
        store = self._store()
        if store is None or not keys:
            return 0
        try:
            found = store.native.exists_many(self._names(keys))
        except AerospikeConnectorError as error:
            found = [error]
        count = next((i for i, bit in enumerate(found) if bit is not True), len(found))
        if count < len(found) and isinstance(found[count], AerospikeConnectorError):
            self._log.warning("lookup", f"{self._name}: lookup: {found[count]}")
        return self._found(keys, count, pin)

    async def batched_async_contains(
        self,
        lookup_id: str,  # noqa: ARG002 - the interface
        keys: Sequence[_Key],
        pin: bool = False,
    ) -> int:
        """The same, without waiting on the loop."""
        store = self._store()
        if store is None or not keys:
            return 0
        try:
            results = await store.exists(self._names(keys))
        except AerospikeConnectorError as error:
            self._log.warning("lookup", f"{self._name}: lookup: {error}")
            return 0
        count = next((i for i, r in enumerate(results) if r[0] != "hit"), len(results))
        if count < len(results) and results[count][3] is not None:
            self._log.warning("lookup", f"{self._name}: lookup: {results[count][3]}")
        return self._found(keys, count, pin)

    def _found(self, keys: Sequence[_Key], count: int, pin: bool) -> int:
        if pin:
            with self._mutex:
                for key in keys[:count]:
                    self._pins[key] = self._pins.get(key, 0) + 1
        return count

    # ---- loads ----------------------------------------------------------------------------------

    def get_blocking(self, key: _Key) -> _Memory:
        """Loads a chunk; None if it is absent, failed, or there is no room. Not on the loop."""
        return self.batched_get_blocking([key])[0]

    def batched_get_blocking(self, keys: Sequence[_Key]) -> list[_Memory]:
        """Loads chunks, all at once; None for each that is absent or failed. Not on the loop."""
        connector = self._connector()
        if connector is None or not keys:
            return [None] * len(keys)
        future = self._start(connector.batched_get(self._keys(keys)))
        try:
            return list(future.result(self._seconds_max))
        except (AerospikeConnectorError, concurrent.futures.TimeoutError) as error:
            self._abandon(future)
            self._log.warning("load", f"{self._name}: load: {error or 'not in time'}")
            return [None] * len(keys)

    def get_non_blocking(
        self,
        key: _Key,
        location: str | None = None,  # noqa: ARG002 - the interface
    ) -> concurrent.futures.Future[_Memory] | None:
        """Starts to load a chunk."""
        connector = self._connector()
        if connector is None:
            return None
        return self._start(connector.get(self._keys([key])[0]))

    async def batched_get_non_blocking(
        self,
        lookup_id: str,
        keys: Sequence[_Key],
        transfer_spec: Any = None,  # noqa: ANN401, ARG002 - the interface
    ) -> list[_Memory]:
        """Loads chunks, all at once; keeps those before the first that is absent or failed."""
        connector = self._connector()
        if connector is None:
            return []
        return await connector.batched_get_non_blocking(lookup_id, self._keys(keys))

    @staticmethod
    def _abandon(future: concurrent.futures.Future[Any]) -> None:
        """Gives up a load, which ends by its deadline; what it brings nevertheless is released."""

        def release(ended: concurrent.futures.Future[Any]) -> None:
            if ended.cancelled() or ended.exception() is not None:
                return
            for memory in ended.result():
                if memory is not None:
                    memory.ref_count_down()

        future.add_done_callback(release)

    # ---- stores ---------------------------------------------------------------------------------

    def exists_in_put_tasks(self, key: _Key) -> bool:
        """Whether a chunk is being stored."""
        with self._mutex:
            return key in self._putting

    def batched_submit_put_task(
        self,
        keys: Sequence[_Key],
        objs: Sequence[_Memory],
        transfer_spec: Any = None,  # noqa: ANN401, ARG002 - the interface
        on_complete_callback: Callable[[_Key], None] | None = None,
    ) -> list[concurrent.futures.Future[None]] | None:
        """Starts to store chunks, but those that are being stored.

        Args:
            keys: Of the chunks.
            objs: The chunks; they are held until they are stored.
            transfer_spec: Not used.
            on_complete_callback: Called for each chunk that was stored, and for no other.
        """
        connector = self._connector()
        if connector is None or self._is_silent:
            return None
        with self._mutex:
            chosen = {k: o for k, o in zip(keys, objs, strict=True) if k not in self._putting}
            self._putting.update(chosen)
        if not chosen:
            return None
        for memory in chosen.values():
            memory.ref_count_up()
        try:
            return [self._start(self._put(connector, chosen, on_complete_callback))]
        except BaseException:
            self._let_go(chosen)
            raise

    async def _put(
        self,
        connector: _Connector,
        chosen: Mapping[_Key, _Memory],
        stored: Callable[[_Key], None] | None,
    ) -> None:
        errors: list[AerospikeConnectorError | None]
        try:
            errors = await connector.put_each(list(chosen), list(chosen.values()))
        except AerospikeConnectorError as error:
            errors = [error] * len(chosen)
        finally:
            self._let_go(chosen)
        failed = [error for error in errors if error is not None]
        self.failed_put_count += len(failed)
        if failed:
            text = f"{self._name}: {len(failed)} of {len(errors)} chunks not stored: {failed[0]}"
            self._log.warning("store", text)
        if stored is None:
            return
        for key, failure in zip(chosen, errors, strict=True):
            if failure is None:
                try:
                    stored(key)
                except Exception:
                    logger.exception("%s: a callback failed", self._name)

    def _let_go(self, chosen: Mapping[_Key, _Memory]) -> None:
        with self._mutex:
            self._putting.difference_update(chosen)
        for memory in chosen.values():
            memory.ref_count_down()

    # ---- pins and removal -----------------------------------------------------------------------

    def pin(self, key: _Key) -> bool:
        """Keeps a chunk from removals that are not forced, by this process; whether it is there."""
        return self.contains(key, pin=True)

    def unpin(self, key: _Key) -> bool:
        """Takes back one pin; whether there was one."""
        with self._mutex:
            count = self._pins.get(key, 0)
            if count > 1:
                self._pins[key] = count - 1
            else:
                self._pins.pop(key, None)
            return count > 0

    def remove(self, key: _Key, force: bool = True) -> bool:
        """Removes a chunk, a pinned one if `force`; whether it was there. For any thread."""
        return self.batched_remove([key], force) == 1

    def batched_remove(self, keys: Sequence[_Key], force: bool = True) -> int:
        """Removes chunks, pinned ones if `force`; how many were there. For any thread."""
        store = self._store()
        with self._mutex:
            chosen = [key for key in keys if force or key not in self._pins]
        if store is None or not chosen:
            return 0
        try:
            removed = store.native.delete_many(self._names(chosen))
        except AerospikeConnectorError as error:
            removed = [error]
        errors = [one for one in removed if isinstance(one, AerospikeConnectorError)]
        if errors:
            self._log.warning("remove", f"{self._name}: {len(errors)} not removed: {errors[0]}")
        return sum(one is True for one in removed)

    def touch_cache(self) -> None:
        """Nothing: the server renews lives, with `refresh_ttl_on_read`."""

    # ---- the rest -------------------------------------------------------------------------------

    def get_allocator_backend(self) -> Any:  # noqa: ANN401 - LMCache's
        """LMCache's CPU memory, into which chunks are loaded."""
        if self.local_cpu_backend is None:
            msg = "there is no CPU memory to load into"
            raise RuntimeError(msg)
        return self.local_cpu_backend

    def close(self) -> None:
        """Ends what is under way, with errors. Idempotent, bounded. Not on the loop."""
        made = self._link.close()
        if made is None:
            return
        if isinstance(made, EngineStore):
            made.close()
        elif self._loop.is_running():
            self._start(made.close()).result(_CLOSE_SECONDS)
        else:
            asyncio.run(made.close())

    def __str__(self) -> str:
        return type(self).__name__

    def _store(self) -> EngineStore | None:
        made = self._link.get()
        return made.store if isinstance(made, _Connector) else made

    def _connector(self) -> _Connector | None:
        made = self._link.get()
        return made if isinstance(made, _Connector) else None

    def _start(self, coroutine: Coroutine[Any, Any, Any]) -> concurrent.futures.Future[Any]:
        try:
            return asyncio.run_coroutine_threadsafe(coroutine, self._loop)
        except RuntimeError:
            coroutine.close()
            msg = "LMCache's event loop has ended"
            raise ClosedError(msg) from None

    def _keys(self, keys: Iterable[_Key]) -> list[_Key]:
        return [key.with_new_worker_id(0) if self._is_silent else key for key in keys]

    def _names(self, keys: Iterable[_Key]) -> list[str]:
        return [logical_key(key) for key in self._keys(keys)]


def _options_of(config: Any, backend: type) -> AerospikeConfig:  # noqa: ANN401 - LMCache's
    """The options of the storage plugin that is a `backend`."""
    extra = dict(config.extra_config or {})
    names = [
        name
        for name in sorted(set(config.storage_plugins or ()))
        if extra.get(f"{_PREFIX}.{name}.class_name") == backend.__name__
        and extra.get(f"{_PREFIX}.{name}.module_path") == backend.__module__
    ]
    if len(names) != 1:
        msg = (
            f"storage_plugins: {len(names)} of class {backend.__name__}, expected one; "
            "for another one make a subclass and name that"
        )
        raise AerospikeConfigError(msg)
    prefix = f"{_PREFIX}.{names[0]}."
    own = {f"remote_{key}": value for key, value in extra.items() if str(key).startswith(prefix)}
    try:
        return AerospikeConfig.from_extra_config(own, names[0])
    except AerospikeConfigError as error:
        raise AerospikeConfigError(str(error).replace(_REMOTE_PREFIX, _PREFIX)) from None
