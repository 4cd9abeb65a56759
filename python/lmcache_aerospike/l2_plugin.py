# SPDX-License-Identifier: Apache-2.0
"""The class that LMCache's adapter type ``plugin`` loads: an L2 adapter of its own.

Beside what LMCache's native adapter does with the same engine it has locks that hold against
deletion, an account of the objects that follows the server, the server's own usage for eviction,
and listings.
"""

from __future__ import annotations

import itertools
import logging
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType
from typing import Any, ClassVar, Final

from lmcache.lmcache_native import Bitmap
from lmcache.v1.distributed.api import KeyListPage, MemoryLayoutDesc, ObjectKey
from lmcache.v1.distributed.internal_api import L2StoreResult
from lmcache.v1.distributed.l2_adapters.base import AdapterUsage, L2AdapterInterface
from lmcache.v1.distributed.l2_adapters.config import L2AdapterConfigBase
from lmcache.v1.memory_management import MemoryObj

from lmcache_aerospike import _lmcache, _log, _native, metrics
from lmcache_aerospike._l2_channel import Channel, Errors, Result, Task, run_batch
from lmcache_aerospike._l2_config import OWN_OPTIONS, L2Options
from lmcache_aerospike._l2_keys import text_of
from lmcache_aerospike._l2_ledger import Ledger, Locks
from lmcache_aerospike._l2_listing import Listing
from lmcache_aerospike._l2_usage import ClusterUsage, UsageProbe
from lmcache_aerospike.errors import AerospikeConnectorError, ClosedError

__all__ = ["AerospikeL2Plugin", "AerospikeL2PluginConfig"]

logger = logging.getLogger("lmcache_aerospike")

_lmcache.register_serdes()

# A call of delete() ends after so many keys were in vain, and works on so many at once.
_DELETE_BATCH: Final = 2000
_ADOPT_BATCH: Final = 1000
_STATUS_COUNTERS: Final = (
    "retries",
    "stalls",
    "connection_errors",
    "bytes_in_flight",
    "damaged_keys",
    "stores_shed_by_reason",
    "store_bytes_queued",
)


class AerospikeL2PluginConfig(L2AdapterConfigBase):  # type: ignore[misc]
    """Checked `adapter_params`.

    Args:
        options: The result of the check.
    """

    def __init__(self, options: L2Options) -> None:
        self.options = options

    @classmethod
    def from_dict(cls, d: dict[str, Any]) -> AerospikeL2PluginConfig:
        """Checks `adapter_params`.

        Raises:
            ValueError: An option is unknown, missing or has a bad value; it is named.
        """
        return cls(L2Options.resolve({n: v for n, v in d.items() if n != "type"}))

    @classmethod
    def help(cls) -> str:
        """The options in words."""
        own = "".join(f"- {o.name} ({o.expected}): {o.effect}\n" for o in OWN_OPTIONS)
        return (
            "Aerospike L2 plugin, adapter_params:\n"
            "- hosts (str): nodes to start from, host:port[,host:port...] (required)\n"
            "- namespace, set_name and all other options of lmcache-aerospike config --options\n"
            f"{own}"
        )


class AerospikeL2Plugin(L2AdapterInterface):  # type: ignore[misc]
    """Keeps LMCache's objects in an Aerospike cluster.

    Thread-safe. No call but delete(), list_l2_keys(), touch(), pin() and close() waits for the
    network, and those are bounded in time.

    Args:
        config: What AerospikeL2PluginConfig made of `adapter_params`, or these as a dict.
        l1_memory_desc: LMCache's memory; not needed, no buffer has to be registered.

    Raises:
        AerospikeConfigError: An option is unknown, missing or has a bad value.
        AerospikeConnectionError: No node could be reached.
        AerospikeDeniedError: Login, namespace or TTL was refused.
    """

    config_class_name: ClassVar[str] = "AerospikeL2PluginConfig"

    def __init__(
        self,
        config: AerospikeL2PluginConfig | Mapping[str, Any],
        l1_memory_desc: object = None,  # noqa: ARG002 - LMCache's signature
    ) -> None:
        if not isinstance(config, AerospikeL2PluginConfig):
            config = AerospikeL2PluginConfig.from_dict(dict(config))
        options = self._options = config.options
        super().__init__(max_capacity_bytes=options.max_capacity_bytes)
        values = options.engine.values
        _log.start()
        metrics.attach()
        self._store = _native.Store(options.engine.native())
        self._closed = threading.Event()
        self._close_mutex = threading.Lock()
        try:
            self._stores = Channel(self._store)
            self._lookups = Channel(self._store)
            self._loads = Channel(self._store)
            self._listing = Listing(self._store, values["send_key"])
            self._probe = UsageProbe(self._store, values["namespace"], values["set_name"])
            self._usage: ClusterUsage | None = None
            self._numbers = itertools.count()
            self._done_mutex = threading.Lock()
            self._done_stores: dict[int, L2StoreResult] = {}
            self._done_lookups: dict[int, Bitmap] = {}
            self._done_loads: dict[int, Bitmap] = {}
            self._locks = Locks()
            ttl = values["default_ttl_seconds"]
            self._ledger = Ledger(float(ttl) if ttl > 0 else None)
            self._errors = Errors()
            self._ask_usage()
            self._keeper = threading.Thread(target=self._keep, name="aerospike-l2", daemon=True)
            self._keeper.start()
        except BaseException:
            self._store.close()
            raise

    # ---- descriptors ----------------------------------------------------------------------------

    def get_store_event_fd(self) -> int:
        """Readable when a store has ended."""
        return self._stores.fd

    def get_lookup_and_lock_event_fd(self) -> int:
        """Readable when a lookup has ended."""
        return self._lookups.fd

    def get_load_event_fd(self) -> int:
        """Readable when a load has ended."""
        return self._loads.fd

    # ---- store ----------------------------------------------------------------------------------

    def submit_store_task(self, keys: list[ObjectKey], objects: list[MemoryObj]) -> int:
        """Starts to store objects; each succeeds or fails for itself."""
        task = self._task(keys)
        buffers = _buffers(keys, objects)
        self._stores.submit(task, lambda c: c.submit_batch_set(task.names, buffers))
        return task.number

    def pop_completed_store_tasks(self) -> dict[int, L2StoreResult]:
        """The stores that have ended. A store is successful if each of its objects is stored."""
        for task, results in self._stores.collect():
            self._finish_store(task, results)
        with self._done_mutex:
            done, self._done_stores = self._done_stores, {}
            return done

    def _finish_store(self, task: Task, results: Sequence[Result]) -> None:
        stored: list[ObjectKey] = []
        grown: list[int] = []
        failed: list[str] = []
        for key, name, (outcome, size, _, _) in zip(task.keys, task.names, results, strict=True):
            if outcome == "hit":
                stored.append(key)
                grown.append(self._ledger.add(name, key, size))
            else:
                failed.append(name)
        # The engine takes back what it could not store whole, also an older object.
        lost = self._ledger.remove(failed)
        with self._done_mutex:
            self._done_stores[task.number] = L2StoreResult(not failed, sum(grown))
        self._errors.note("store", results)
        if stored:
            self._tell(self._notify_keys_stored, stored, grown)
        self._forget(lost)

    # ---- lookup and lock ------------------------------------------------------------------------

    def submit_lookup_and_lock_task(
        self,
        keys: list[ObjectKey],
        group_layout_descs: dict[int, MemoryLayoutDesc],  # noqa: ARG002 - a hint that we do not need
    ) -> int:
        """Starts to look objects up. Those found are locked until submit_unlock()."""
        names = [text_of(key) for key in keys]
        gone = self._locks.hold(names)
        task = Task(next(self._numbers), list(keys), names, self._ledger.turn(), gone)
        try:
            self._lookups.submit(task, lambda c: c.submit_batch_exists(names))
        except BaseException:
            self._locks.release(n for i, n in enumerate(names) if i not in gone)
            raise
        return task.number

    def query_lookup_and_lock_result(self, task_id: int) -> Bitmap | None:
        """The bits of a lookup, once; None while it is under way and after that."""
        return self._query(self._lookups, self._finish_lookup, self._done_lookups, task_id)

    def _finish_lookup(self, task: Task, results: Sequence[Result]) -> None:
        bits = Bitmap(len(task.names))
        unlocked: list[str] = []
        absent: list[str] = []
        for place, (name, result) in enumerate(zip(task.names, results, strict=True)):
            if place in task.gone:
                continue
            if result[0] == "hit":
                bits.set(place)
                continue
            unlocked.append(name)
            if result[0] == "miss":
                absent.append(name)
        self._locks.release(unlocked)
        with self._done_mutex:
            self._done_lookups[task.number] = bits
        self._errors.note("lookup", results)
        self._forget(self._ledger.remove(absent, before=task.turn))

    def submit_unlock(self, keys: list[ObjectKey]) -> None:
        """Takes back one lock of each."""
        self._locks.release([text_of(key) for key in keys])

    # ---- load -----------------------------------------------------------------------------------

    def submit_load_task(self, keys: list[ObjectKey], objects: list[MemoryObj]) -> int:
        """Starts to load objects into the memory of LMCache's."""
        task = self._task(keys)
        buffers = _buffers(keys, objects)
        self._loads.submit(task, lambda c: c.submit_batch_get(task.names, buffers))
        return task.number

    def query_load_result(self, task_id: int) -> Bitmap | None:
        """The bits of a load, once; None while it is under way and after that."""
        return self._query(self._loads, self._finish_load, self._done_loads, task_id)

    def _finish_load(self, task: Task, results: Sequence[Result]) -> None:
        bits = Bitmap(len(task.names))
        loaded: list[ObjectKey] = []
        present: list[str] = []
        absent: list[str] = []
        for place, (key, name, result) in enumerate(
            zip(task.keys, task.names, results, strict=True)
        ):
            if result[0] == "hit":
                bits.set(place)
                loaded.append(key)
                present.append(name)
            elif result[0] == "miss" and result[1] == 0:  # otherwise it is there, but larger
                absent.append(name)
        with self._done_mutex:
            self._done_loads[task.number] = bits
        self._errors.note("load", results)
        if self._options.engine.values["refresh_ttl_on_read"]:
            self._ledger.renew(present)
        if loaded:
            self._tell(self._notify_keys_accessed, loaded)
        self._forget(self._ledger.remove(absent, before=task.turn))

    # ---- deletion and expiry --------------------------------------------------------------------

    def delete(self, keys: list[ObjectKey]) -> None:
        """Deletes objects, but those that are locked, and waits for it.

        What could not be deleted stays known, so that eviction comes back to it. Never raises:
        the loops of LMCache that call it end with an exception.
        """
        by_name = {text_of(key): key for key in keys}
        names = list(by_name)
        for start in range(0, len(names), _DELETE_BATCH):
            if self._closed.is_set():
                return
            free = list(self._locks.begin_delete(names[start : start + _DELETE_BATCH]))
            if free and not self._delete_free(by_name, free):
                return

    def _delete_free(self, by_name: Mapping[str, ObjectKey], names: list[str]) -> bool:
        """Deletes objects that nobody uses; whether any answer came."""
        results: list[bool | AerospikeConnectorError]
        try:
            results = self._store.delete_many(names)
        except AerospikeConnectorError as error:
            results = [error] * len(names)
        finally:
            self._locks.end_delete(names)
        self._errors.note("delete", results)
        gone = [n for n, r in zip(names, results, strict=True) if isinstance(r, bool)]
        known = dict(self._ledger.remove(gone))
        deleted = {by_name[n] for n, r in zip(names, results, strict=True) if r is True}
        self._forget([(key, known.get(key, 0)) for key in deleted | known.keys()])
        return bool(gone)

    def touch(self, keys: list[ObjectKey], ttl_seconds: int | None = None) -> list[bool]:
        """Renews the life of objects, by default with `default_ttl_seconds`, and waits for it.

        Returns:
            For each whether it is there.
        """
        names = [text_of(key) for key in keys]
        if not names:
            return []
        seconds_max = self._options.engine.values["write_timeout_ms"] / 1000 + 5
        results = run_batch(
            self._store, lambda c: c.submit_batch_touch(names, ttl_seconds), seconds_max
        )
        self._errors.note("touch", results)
        there = [result[0] == "hit" for result in results] or [False] * len(names)
        if ttl_seconds is None:
            self._ledger.renew(n for n, is_there in zip(names, there, strict=True) if is_there)
        return there

    def pin(self, keys: list[ObjectKey]) -> list[bool]:
        """Keeps objects: they do not expire, and this process does not delete them.

        Returns:
            For each whether it is there, and so is pinned.
        """
        names = [text_of(key) for key in keys]
        gone = self._locks.hold(names)
        pinned = [t and i not in gone for i, t in enumerate(self.touch(keys, ttl_seconds=-1))]
        for place, (key, name) in enumerate(zip(keys, names, strict=True)):
            if pinned[place]:
                if name in self._ledger:
                    self._ledger.add(name, key, 0, life=None)
            elif place not in gone:
                self._locks.release([name])
        return pinned

    def unpin(self, keys: list[ObjectKey]) -> list[bool]:
        """Takes back pin(): the life of the objects starts anew."""
        self.submit_unlock(keys)
        there = self.touch(keys)
        for key, is_there in zip(keys, there, strict=True):
            if is_there and (name := text_of(key)) in self._ledger:
                self._ledger.add(name, key, 0)
        return there

    # ---- listing and usage ----------------------------------------------------------------------

    def list_l2_keys(
        self, model_name: str | None = None, page_size: int = 500, cursor: str | None = None
    ) -> KeyListPage:
        """One page of the objects in the set, whoever stored them.

        Raises:
            ValueError: `page_size` is not positive, or `cursor` is not of an earlier page.
            NotImplementedError: The option send_key is off, so that objects have no names.
            AerospikeConnectorError: The cluster could not be asked.
        """
        return self._listing.page(model_name, page_size, cursor)

    @property
    def supports_global_eviction(self) -> bool:
        """Whether there is a capacity, ours or the server's, to compare the usage with."""
        return bool(self.get_usage().total_capacity_bytes > 0)

    def get_usage(self) -> AdapterUsage:
        """The fuller one of the set, against `max_capacity_gb`, and the namespace.

        As the server said it some seconds ago, plus what this process has stored and deleted
        since. Never waits. Bytes of each salt are those that this process knows of.
        """
        own: AdapterUsage = super().get_usage()
        server = self._usage
        if self._options.usage == "process" or server is None:
            return own
        since = own.total_bytes_used - server.counted
        pairs = []
        if server.namespace_total:
            pairs.append((server.namespace_used, server.namespace_total))
        if self._max_capacity_bytes or not pairs:
            pairs.append((server.set_used, self._max_capacity_bytes))
        used, capacity = max(pairs, key=lambda pair: pair[0] / pair[1] if pair[1] else 0.0)
        return AdapterUsage(
            total_bytes_used=max(0, used + since),
            total_capacity_bytes=capacity,
            bytes_by_cache_salt=MappingProxyType(dict(own.bytes_by_cache_salt)),
        )

    # ---- state and end --------------------------------------------------------------------------

    def report_status(self) -> dict[str, Any]:
        """Health and counters, as JSON can take them. Healthy: some node answers."""
        options = self._options
        status: dict[str, Any] = {
            "is_healthy": False,
            "type": type(self).__name__,
            "namespace": options.engine.values["namespace"],
            "set_name": options.engine.values["set_name"],
            "closed": self._closed.is_set(),
            "tasks": {
                "store": len(self._stores),
                "lookup": len(self._lookups),
                "load": len(self._loads),
            },
            "locked_key_count": len(self._locks),
            "refused_delete_count": self._locks.refused,
            "known_object_count": len(self._ledger),
            "last_errors": self._errors.newest(),
            "usage": self._usage_status(),
        }
        if status["closed"]:
            return status
        stats = self._store.stats()
        nodes = stats["nodes"]
        status["nodes"] = nodes
        status["nodes_up"] = sum(not node["suspect"] for node in nodes)
        status["stats"] = {
            operation: {n: counts[n] for n in ("items", "hits", "misses", "errors", "bytes")}
            for operation, counts in stats["operations"].items()
        }
        for name in _STATUS_COUNTERS:
            status["stats"][name] = stats[name]
        answered = self._probe.nodes_answered > 0
        status["is_healthy"] = status["nodes_up"] > 0 and answered and self._keeper.is_alive()
        return status

    def _usage_status(self) -> dict[str, Any]:
        usage = self._usage
        status: dict[str, Any] = {
            "source": self._options.usage,
            "nodes_asked": self._probe.nodes_asked,
            "nodes_answered": self._probe.nodes_answered,
            "last_error": self._probe.last_error,
        }
        if usage is not None:
            status |= {
                "namespace_used_bytes": usage.namespace_used,
                "namespace_total_bytes": usage.namespace_total,
                "set_used_bytes": usage.set_used,
                "stop_writes": usage.stop_writes,
                "age_seconds": round(time.monotonic() - usage.taken_at, 3),
            }
        return status

    def close(self) -> None:
        """Ends what is under way, which fails, and lets go of all buffers. Idempotent, bounded."""
        with self._close_mutex:
            if self._closed.is_set():
                return
            self._closed.set()
            self._store.close()
            for channel in (self._stores, self._lookups, self._loads):
                channel.close()
            if self._keeper is not threading.current_thread():
                # It may wait for one node's answer; nothing else keeps it.
                self._keeper.join(self._options.engine.values["connect_timeout_ms"] / 1000 + 5)

    # ---- inside ---------------------------------------------------------------------------------

    def _task(self, keys: Sequence[ObjectKey]) -> Task:
        names = [text_of(key) for key in keys]
        return Task(next(self._numbers), list(keys), names, self._ledger.turn())

    def _query(
        self,
        channel: Channel,
        finish: Callable[[Task, Sequence[Result]], None],
        done: dict[int, Bitmap],
        task_id: int,
    ) -> Bitmap | None:
        ended = channel.collect()
        for task, results in ended:
            finish(task, results)
        if any(task.number != task_id for task, _ in ended):
            channel.wake()  # their own event was taken with ours
        with self._done_mutex:
            return done.pop(task_id, None)

    def _forget(self, gone: Iterable[tuple[ObjectKey, int]]) -> None:
        pairs = list(gone)
        if pairs:
            keys, sizes = [key for key, _ in pairs], [size for _, size in pairs]
            self._tell(self._notify_keys_deleted, keys, sizes)

    @staticmethod
    def _tell(notify: Callable[..., None], *arguments: list[Any]) -> None:
        """Calls the listeners; one that fails must not take results away from others."""
        try:
            notify(*arguments)
        except Exception:
            logger.exception("L2: a listener failed")

    def _keep(self) -> None:
        """The thread that follows the server."""
        adopt_at = time.monotonic()
        while True:
            try:
                self._forget(self._ledger.remove_ended())
                if self._options.adopt_seconds > 0 and adopt_at <= time.monotonic():
                    self._adopt()
                    adopt_at = time.monotonic() + self._options.adopt_seconds
            except ClosedError:
                return
            except AerospikeConnectorError as error:
                self._errors.note("scan", [error])
            except Exception:
                logger.exception("L2: the account of objects is behind")
            if self._closed.wait(self._options.usage_refresh_seconds):
                return
            self._ask_usage()

    def _ask_usage(self) -> None:
        counted = self._total_bytes_used
        try:
            usage = self._probe.ask()
        except ClosedError:
            return
        except AerospikeConnectorError as error:
            self._errors.note("usage", [error])
            return
        if usage is None:
            return
        if self._options.engine.values["default_ttl_seconds"] == 0:
            self._ledger.life_seconds = float(usage.default_ttl_seconds) or None
        self._usage = replace(usage, counted=counted)

    def _adopt(self) -> None:
        """Makes the account agree with a scan of the set."""
        turn = self._ledger.turn()
        seen: set[str] = set()
        found: list[tuple[str, ObjectKey, int, int | None]] = []
        for item in self._listing.all_objects():
            if self._closed.is_set():
                return
            seen.add(item[0])
            if item[0] not in self._ledger:
                found.append(item)
            if len(found) == _ADOPT_BATCH:
                self._adopt_found(found)
                found = []
        self._adopt_found(found)
        absent = [name for name in self._ledger.names() if name not in seen]
        self._forget(self._ledger.remove(absent, before=turn))

    def _adopt_found(self, found: Sequence[tuple[str, ObjectKey, int, int | None]]) -> None:
        if not found:
            return
        grown = [self._ledger.add(name, key, size, life) for name, key, size, life in found]
        # The server's number has them already: this process' growth is not the server's.
        if self._usage is not None:
            self._usage = replace(self._usage, counted=self._usage.counted + sum(grown))
        self._tell(self._notify_keys_stored, [key for _, key, _, _ in found], grown)


def _buffers(keys: Sequence[ObjectKey], objects: Sequence[MemoryObj]) -> list[Any]:
    if len(keys) != len(objects):
        msg = f"{len(objects)} memory objects, expected {len(keys)} as there are keys"
        raise ValueError(msg)
    return [item.byte_array for item in objects]
