# SPDX-License-Identifier: Apache-2.0
"""A server that was there before the tests, in place of the development server.

With AEROKV_SERVER=host:port[,host:port...] every test that needs no more than a server runs against
that one, unchanged. A test that wants a server of another kind, or breaks it on purpose, is skipped
when it asks for that, and counted. ``make test-server`` sets the variables.
"""

from __future__ import annotations

import collections
import os
import time
from typing import Any, NoReturn

import pytest
from typing_extensions import Self

HOSTS = os.environ.get("AEROKV_SERVER", "")
NAMESPACE = os.environ.get("LMCACHE_AEROSPIKE_NAMESPACE", "lmcache")
TRUNCATE_SECONDS_MAX = 20
ROOM_BYTES = 1 << 30  # tests that ask for less want to fill it

_PREFIX = "needs a development server: "


def skip(reason: str) -> NoReturn:
    pytest.skip(_PREFIX + reason)


def skipped(reports: list[pytest.TestReport]) -> collections.Counter[str]:
    """How often each reason was met."""
    reasons = (report.longrepr[2] for report in reports if isinstance(report.longrepr, tuple))
    return collections.Counter(
        reason.partition(_PREFIX)[2] for reason in reasons if _PREFIX in reason
    )


def is_plain(options: dict[str, Any]) -> bool:
    """Whether any server with the namespace will do."""
    namespaces = options.pop("namespaces", [{"name": NAMESPACE}])
    nodes = options.pop("nodes", 1)
    options.pop("replication", 1)
    return (
        not options
        and nodes == 1
        and len(namespaces) == 1
        and namespaces[0].keys() <= {"name", "size_bytes"}
        and namespaces[0].get("size_bytes", ROOM_BYTES) >= ROOM_BYTES
    )


class GivenServer:
    """What tests use of ``_native.DevServer``, as far as one can have it of any server."""

    def __init__(self, **options: Any) -> None:
        if not is_plain(dict(options)):
            skip("one with options of its own")
        self.hosts = HOSTS

    def endpoints(self) -> list[tuple[str, int]]:
        pairs = (entry.rsplit(":", 1) for entry in HOSTS.split(","))
        return [(host.strip("[]"), int(port)) for host, port in pairs]

    def clear_faults(self) -> None:
        """There are none."""

    def stop(self) -> None:
        skip("control over it (stop)")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        """It stays."""

    def __getattr__(self, name: str) -> NoReturn:
        skip(f"control over it ({name})")


def install() -> None:
    """Puts it in the place of the development server, before any test module is imported."""
    from lmcache_aerospike import _native

    os.environ["LMCACHE_AEROSPIKE_NAMESPACE"] = NAMESPACE
    os.environ["LMCACHE_AEROSPIKE_SET"] = f"aerokv_test_{os.getpid()}"
    _native.DevServer = GivenServer  # type: ignore[misc, assignment]


class Sets:
    """Removes what the tests leave behind: sets that held nothing when they began."""

    def __init__(self) -> None:
        self._before = self._filled()

    @staticmethod
    def _filled() -> set[str]:
        from lmcache_aerospike import Store

        filled = set()
        with Store(HOSTS) as store:
            for answer in store.info(f"sets/{NAMESPACE}").values():
                if not isinstance(answer, str):
                    continue
                for entry in filter(None, answer.strip().split(";")):
                    facts = dict(fact.partition("=")[::2] for fact in entry.split(":"))
                    if int(facts.get("objects", "0")) > 0:
                        filled.add(facts["set"])
        return filled

    def clean(self) -> list[str]:
        """Truncates them; returns those that are still there."""
        from lmcache_aerospike import Store

        with Store(HOSTS) as store:
            for name in self._filled() - self._before:
                store.info(f"truncate:namespace={NAMESPACE};set={name}")
        deadline = time.monotonic() + TRUNCATE_SECONDS_MAX
        while (left := self._filled() - self._before) and time.monotonic() < deadline:
            time.sleep(0.1)  # a truncation goes on behind its answer
        return sorted(left)
