# SPDX-License-Identifier: Apache-2.0
"""One client of a cluster for all that a process does with it.

A holder is shared by everyone who names the same hosts, namespace and login. Below it, stores with
different sets, TTLs or serdes share the threads and connections of one engine.
"""

from __future__ import annotations

import asyncio
import logging
import os
import random
import threading
import weakref
from collections.abc import Callable, Sequence
from typing import Any, Final

from typing_extensions import Buffer

from lmcache_aerospike import _log, _native, metrics
from lmcache_aerospike.config import AerospikeConfig
from lmcache_aerospike.errors import AerospikeConnectionError, AerospikeConnectorError, ClosedError

__all__ = ["AerospikeClientHolder", "EngineClient", "EngineStore", "KeyResult"]

logger = logging.getLogger("lmcache_aerospike")

KeyResult = tuple[str, int, "bytes | None", "AerospikeConnectorError | None"]
"""Of one key of a batch: "hit", "miss" or "error"; payload bytes; metadata; error."""

# These belong to the engine: whoever shares a holder gets those of its first user.
# Who differs in one of these, or in how TLS is spoken, has another client.
_LOGIN: Final = ("username", "password", "auth_mode")
_OF_THE_ENGINE: Final = (
    "cluster_name",
    "use_services_alternate",
    "replica",
    "rack_id",
    "hedge_reads",
    "num_io_threads",
    "max_connections_per_node",
    "max_bytes_in_flight",
    "connect_timeout_ms",
    "start_timeout_ms",
    "request_timeout_ms",
    "write_request_timeout_ms",
    "tend_interval_ms",
)


class _Channel:
    """The batches of one event loop. All methods but close() run on that loop."""

    def __init__(self, store: _native.Store, loop: asyncio.AbstractEventLoop) -> None:
        self.native = _native.Connector(store)
        # No strong reference: a loop that ended must be able to go.
        self._loop = weakref.ref(loop)
        self._waiting: dict[int, tuple[asyncio.Future[list[KeyResult]], Callable[[], None]]] = {}
        loop.add_reader(self.native.event_fd(), self._drain)

    def wait_for(
        self, batch: int, loop: asyncio.AbstractEventLoop, abandoned: Callable[[], None]
    ) -> asyncio.Future[list[KeyResult]]:
        """The results of a batch that was just submitted."""
        future: asyncio.Future[list[KeyResult]] = loop.create_future()
        self._waiting[batch] = (future, abandoned)
        return future

    def _drain(self) -> None:
        for batch, results in self.native.drain_results():
            future, abandoned = self._waiting.pop(batch)
            if not future.cancelled():
                future.set_result(results)
                continue
            try:
                abandoned()
            except Exception:
                # Whatever it is, the batches behind it must get their results.
                logger.exception("a cancelled batch could not be cleaned up")

    def close(self) -> None:
        """After the store: what is open has ended with errors, which are handed out."""
        loop = self._loop()
        if loop is None or loop.is_closed():
            self._abandon()
            return
        try:
            on_its_loop = asyncio.get_running_loop() is loop
        except RuntimeError:
            on_its_loop = False
        if on_its_loop or not loop.is_running():
            self._finish(loop)
        else:
            loop.call_soon_threadsafe(self._finish, loop)

    def _finish(self, loop: asyncio.AbstractEventLoop) -> None:
        loop.remove_reader(self.native.event_fd())
        self.native.close()
        self._drain()

    def _abandon(self) -> None:
        self.native.close()
        self.native.drain_results()
        waiting, self._waiting = self._waiting, {}
        for _, abandoned in waiting.values():
            abandoned()


class EngineStore:
    """Objects of one set through a shared engine, for one user; made by EngineClient.store().

    Calls that are coroutines elsewhere are plain here and return a future of the running loop: the
    batch has begun when they return. The others wait, on any thread, for their results.

    Args:
        options: Of the engine, checked.
        on_close: Called once, at its end.
    """

    def __init__(
        self, options: dict[str, Any], on_close: Callable[[EngineStore], None] = lambda _: None
    ) -> None:
        self._on_close = on_close
        self.native = _native.Store(options)
        self._lock = threading.Lock()
        self._channels: weakref.WeakKeyDictionary[asyncio.AbstractEventLoop, _Channel] = (
            weakref.WeakKeyDictionary()
        )
        self._closed = False

    def get_into(
        self, keys: Sequence[str], buffers: Sequence[Buffer], abandoned: Callable[[], None]
    ) -> asyncio.Future[list[KeyResult]]:
        """Starts loading objects into buffers, which must stay as they are until the end.

        Args:
            keys: One or more.
            buffers: One for each.
            abandoned: Called at the end instead of the future, if that was cancelled.
        """
        loop, channel = self._channel()
        return channel.wait_for(channel.native.submit_batch_get(keys, buffers), loop, abandoned)

    def put(
        self,
        keys: Sequence[str],
        buffers: Sequence[Buffer],
        metadata: Sequence[Buffer | None] | None,
        abandoned: Callable[[], None],
        ttl_seconds: int | None = None,
        pin: bool = False,
    ) -> asyncio.Future[list[KeyResult]]:
        """Starts storing objects; the other arguments are those of get_into()."""
        loop, channel = self._channel()
        batch = channel.native.submit_batch_set(keys, buffers, metadata, ttl_seconds, pin)
        return channel.wait_for(batch, loop, abandoned)

    def exists(self, keys: Sequence[str]) -> asyncio.Future[list[KeyResult]]:
        """Starts looking objects up."""
        loop, channel = self._channel()
        return channel.wait_for(channel.native.submit_batch_exists(keys), loop, lambda: None)

    def _channel(self) -> tuple[asyncio.AbstractEventLoop, _Channel]:
        loop = asyncio.get_running_loop()
        with self._lock:
            if self._closed:
                msg = "the client is closed"
                raise ClosedError(msg)
            channel = self._channels.get(loop)
            if channel is None:
                channel = self._channels[loop] = _Channel(self.native, loop)
            return loop, channel

    def close(self) -> None:
        """Ends open batches, with errors. Idempotent, bounded, for any thread."""
        with self._lock:
            if self._closed:
                return
            self._closed = True
            channels = list(self._channels.values())
        self.native.close()
        for channel in channels:
            channel.close()
        self._on_close(self)


class EngineClient:
    """A cluster: its nodes, and stores in it. Thread-safe.

    Args:
        cfg: How to reach it. Waits for about twice `connect_timeout_ms`.

    Raises:
        AerospikeConnectorError: The cluster cannot be used; see docs/reference/errors.md.
    """

    def __init__(self, cfg: AerospikeConfig) -> None:
        _log.start()
        metrics.attach()
        self._options = cfg.options().native()
        self._lock = threading.Lock()
        self._stores: set[EngineStore] = set()
        self._closed = False
        self._native = _native.Store(self._options)

    def store(self, cfg: AerospikeConfig) -> EngineStore:
        """A store with the set, TTLs, serde, ... of `cfg`; the caller closes it.

        Raises:
            AerospikeConnectorError: The cluster cannot be used; see docs/reference/errors.md.
        """
        options = cfg.options().native()
        other = [name for name in _OF_THE_ENGINE if options[name] != self._options[name]]
        if other:
            logger.warning(
                "%s: %s as another connector of this process to the same cluster has set it",
                cfg.plugin_name,
                ", ".join(other),
            )
            options |= {name: self._options[name] for name in other}
        store = EngineStore(options, self._forget)
        with self._lock:
            is_late = self._closed
            if not is_late:
                self._stores.add(store)
        if is_late:
            store.close()
            msg = "the client is closed"
            raise ClosedError(msg)
        return store

    def _forget(self, store: EngineStore) -> None:
        with self._lock:
            self._stores.discard(store)

    def stores(self) -> list[EngineStore]:
        """All that are open, for their counters."""
        with self._lock:
            return list(self._stores)

    def is_connected(self) -> bool:
        """Whether some node was reachable when it was last heard of."""
        return not self._closed and any(
            not node["suspect"] for node in self._native.stats()["nodes"]
        )

    def get_node_names(self) -> list[dict[str, Any]]:
        """The nodes of the cluster: address, port and node_name of each."""
        nodes = [] if self._closed else self._native.stats()["nodes"]
        places = [node["address"].rpartition(":") for node in nodes]
        return [
            {"address": host.strip("[]"), "port": int(port), "node_name": node["name"]}
            for node, (host, _, port) in zip(nodes, places, strict=True)
        ]

    def info_all(self, command: str) -> dict[str, tuple[AerospikeConnectorError | None, str]]:
        """Asks every node; by node the error, or None and "command<tab>answer<line feed>"."""
        return {
            node: (None, f"{command}\t{answer}\n") if isinstance(answer, str) else (answer, "")
            for node, answer in self._native.info(command).items()
        }

    def info_random_node(self, command: str) -> str:
        """Asks one node, or another one if that does not answer.

        Returns:
            "command<tab>answer<line feed>".

        Raises:
            AerospikeConnectorError: None has answered.
        """
        answers = list(self.info_all(command).values())
        random.shuffle(answers)
        for error, text in answers:
            if error is None:
                return text
        if answers and answers[0][0] is not None:
            raise answers[0][0]
        msg = f"info {command}: no node is known"
        raise AerospikeConnectionError(msg)

    def close(self) -> None:
        """Closes all stores. Idempotent, bounded."""
        with self._lock:
            self._closed = True
            stores = list(self._stores)
        for store in stores:
            store.close()
        self._native.close()


class AerospikeClientHolder:
    """A client and the number of its users; made by get_or_create()."""

    def __init__(self, key: tuple[object, ...]) -> None:
        self._key = key
        self._opening = threading.Lock()
        self._client: EngineClient | None = None
        self._users = 0

    @classmethod
    def get_or_create(cls, cfg: AerospikeConfig) -> AerospikeClientHolder:
        """The holder for the hosts, namespace and login of `cfg`; each call needs a release().

        Raises:
            AerospikeConnectorError: The cluster cannot be used; see docs/reference/errors.md.
        """
        values = cfg.options().values
        trust = (values[n] for n in values if n in _LOGIN or n.startswith("tls_"))
        key = (cfg.hosts, cfg.namespace, *trust)
        with _lock:
            holder = _HOLDERS.get(key)
            if holder is None:
                holder = _HOLDERS[key] = cls(key)
            holder._users += 1
        try:
            # Two users at once make one client; those of other clusters do not wait for them.
            with holder._opening:
                if holder._client is None:
                    holder._client = EngineClient(cfg)
        except BaseException:
            holder.release()
            raise
        return holder

    @property
    def client(self) -> EngineClient:
        """The client."""
        if self._client is None:
            msg = "the client is not connected"
            raise ClosedError(msg)
        return self._client

    @property
    def refcount(self) -> int:
        """Its users."""
        return self._users

    def release(self) -> None:
        """One user less; the last one closes the client. More releases than users are ignored."""
        with _lock:
            if self._users == 0:
                logger.warning("a shared client was released more often than it was acquired")
                return
            self._users -= 1
            is_last = self._users == 0
            if is_last and _HOLDERS.get(self._key) is self:
                del _HOLDERS[self._key]
        if is_last and self._client is not None:
            self._client.close()


_HOLDERS: dict[tuple[object, ...], AerospikeClientHolder] = {}
_lock = threading.Lock()


def _forget() -> None:
    """In a forked child: the parent's clients cannot be used, and someone may hold the lock."""
    global _lock  # noqa: PLW0603 - one per process, like the registry
    _lock = threading.Lock()
    _INHERITED.append(dict(_HOLDERS))
    _HOLDERS.clear()


# The parent's clients must not be torn down in a child.
_INHERITED: list[dict[tuple[object, ...], AerospikeClientHolder]] = []
os.register_at_fork(after_in_child=_forget)
