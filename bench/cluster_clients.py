# SPDX-License-Identifier: Apache-2.0
"""Two clients of one cluster behind the same few methods: our store, and the official client.

Both run with the options and policies that they have when nobody gives any. As a program it tries
one start and prints what came of it: ``cluster_clients.py KIND '{"hosts": ..., "set_name": ...}'``.
"""

from __future__ import annotations

import contextlib
import json
import sys
import time
from collections.abc import Sequence
from typing import Any, Protocol

OURS = "ours"
OFFICIAL = "official"
NAMESPACE = "lmcache"

# A larger object of ours has four segments of this size. The official client has single records.
SEGMENT_BYTES = 64 << 10

# A start of which nothing can be stored and loaded for so long does not work.
_WORKS_SECONDS_MAX = 10.0


class Failure(Exception):  # noqa: N818 - not an error of this program
    """What a client says when it cannot tell, with the short name or the code of its error."""


class Client(Protocol):
    """What the load needs. Every method raises Failure for an error."""

    def put(self, key: str, data: bytes) -> None: ...

    def get(self, key: str, size: int) -> memoryview | None:
        """The object, or None if the cluster says that it is not there."""

    def exists(self, keys: Sequence[str]) -> list[bool]: ...

    def close(self) -> None: ...


class Ours:
    """The engine of this project."""

    def __init__(self, hosts: str, set_name: str, **options: Any) -> None:
        from lmcache_aerospike import _native
        from lmcache_aerospike.config import Config
        from lmcache_aerospike.errors import AerospikeConnectorError

        self._error = AerospikeConnectorError
        sizes = {
            "target_segment_bytes": SEGMENT_BYTES,
            "single_record_threshold_bytes": SEGMENT_BYTES,
        }
        config = Config.resolve({"hosts": hosts, "set_name": set_name, **sizes, **options})
        try:
            self._store = _native.Store(config.native())
        except AerospikeConnectorError as error:
            raise Failure(self._name(error)) from error

    @staticmethod
    def _name(error: Exception) -> str:
        name = type(error).__name__.removeprefix("Aerospike").removesuffix("Error")
        return f"{name}: {error}"

    def put(self, key: str, data: bytes) -> None:
        try:
            self._store.put(key, data)
        except self._error as error:
            raise Failure(self._name(error)) from error

    def get(self, key: str, size: int) -> memoryview | None:
        buffer = bytearray(size)
        try:
            loaded = self._store.get_into(key, buffer)
        except self._error as error:
            raise Failure(self._name(error)) from error
        return None if loaded is None else memoryview(buffer)[:loaded]

    def exists(self, keys: Sequence[str]) -> list[bool]:
        found = self._store.exists_many(keys)
        for result in found:
            if not isinstance(result, bool):
                raise Failure(self._name(result))
        return [result is True for result in found]

    def close(self) -> None:
        self._store.close()


class Official:
    """The Python client of Aerospike, with the C client inside."""

    def __init__(self, hosts: str, set_name: str) -> None:
        import aerospike
        from aerospike import exception

        self._error = exception.AerospikeError
        self._absent = exception.RecordNotFound
        self._set = set_name
        pairs = (entry.rsplit(":", 1) for entry in hosts.split(","))
        aerospike.set_log_level(aerospike.LOG_LEVEL_OFF)
        try:
            self._client = aerospike.client({"hosts": [(host, int(port)) for host, port in pairs]})
        except self._error as error:
            raise Failure(self._text(error)) from error

    @staticmethod
    def _text(error: Any) -> str:
        return f"{error.code}: {error.msg}"

    def _key(self, key: str) -> tuple[str, str, str]:
        return (NAMESPACE, self._set, key)

    def put(self, key: str, data: bytes) -> None:
        try:
            self._client.put(self._key(key), {"v": data})
        except self._error as error:
            raise Failure(self._text(error)) from error

    def get(self, key: str, size: int) -> memoryview | None:  # noqa: ARG002 - as the others
        try:
            _, _, bins = self._client.get(self._key(key))
        except self._absent:
            return None
        except self._error as error:
            raise Failure(self._text(error)) from error
        return memoryview(bins["v"])

    def exists(self, keys: Sequence[str]) -> list[bool]:
        try:
            batch = self._client.batch_read([self._key(key) for key in keys], [])
        except self._error as error:
            raise Failure(self._text(error)) from error
        codes = [record.result for record in batch.batch_records]
        for code in codes:
            if code not in {0, 2}:
                message = f"{code}: a row of the batch"
                raise Failure(message)
        return [code == 0 for code in codes]

    def close(self) -> None:
        with contextlib.suppress(self._error):
            self._client.close()


def connect(kind: str, hosts: str, set_name: str, **options: Any) -> Client:
    """A connected client. Options are those of ours."""
    if kind == OURS:
        return Ours(hosts, set_name, **options)
    return Official(hosts, set_name)


def try_to_start(kind: str, hosts: str, set_name: str, **options: Any) -> dict[str, Any]:
    """How long a start takes, and whether what it gives can store and load."""
    begun = time.monotonic()
    result: dict[str, Any] = {"client": kind, "error": "", "works": False}
    try:
        client = connect(kind, hosts, set_name, **options)
    except Failure as failure:
        result["error"] = str(failure)
        result["seconds"] = time.monotonic() - begun
        return result
    result["seconds"] = time.monotonic() - begun
    give_up = time.monotonic() + _WORKS_SECONDS_MAX
    while not result["works"] and time.monotonic() < give_up:
        with contextlib.suppress(Failure):
            client.put("first", b"x" * 100)
            found = client.get("first", 100)
            result["works"] = found is not None and bytes(found) == b"x" * 100
        time.sleep(0.02)
    result["works_after"] = time.monotonic() - begun
    client.close()
    return result


if __name__ == "__main__":
    print(json.dumps(try_to_start(sys.argv[1], **json.loads(sys.argv[2]))))
