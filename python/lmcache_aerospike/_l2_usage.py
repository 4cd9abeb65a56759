# SPDX-License-Identifier: Apache-2.0
"""How full the cluster is, as its nodes say it."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass, field

from lmcache_aerospike import _native

# What servers before 7 call them; those keep data in memory, on devices, or both.
_TOTALS = ("data_total_bytes", "device_total_bytes", "memory-size")
_USED = ("data_used_bytes", "device_used_bytes", "memory_used_bytes")
_SET_USED = ("data_used_bytes", "device_data_bytes", "memory_data_bytes")
_COPIES = ("effective_replication_factor", "replication-factor")


@dataclass(frozen=True)
class ClusterUsage:
    """Bytes of one copy of the data, over all nodes.

    Attributes:
        namespace_used: Of all sets of the namespace.
        namespace_total: What fits; 0 if the nodes do not say.
        set_used: Of our set.
        default_ttl_seconds: Life of records that are written without one; 0 = endless.
        stop_writes: Whether a node refuses writes, being full.
        taken_at: The monotonic clock.
        counted: What the asking process counted at that time.
    """

    namespace_used: int
    namespace_total: int
    set_used: int
    default_ttl_seconds: int
    stop_writes: bool
    taken_at: float = field(default_factory=time.monotonic)
    counted: int = 0


class UsageProbe:
    """Asks all nodes; keeps the last complete answer.

    Args:
        store: Of the engine.
        namespace: Whose usage.
        set_name: Whose share.
    """

    def __init__(self, store: _native.Store, namespace: str, set_name: str) -> None:
        self._store = store
        self._namespace = namespace
        self._set_name = set_name
        self.nodes_asked = 0
        self.nodes_answered = 0
        self.last_error = ""

    def ask(self) -> ClusterUsage | None:
        """One round; None, and `last_error`, unless every node answered. Blocks."""
        namespaces = self._answers(f"namespace/{self._namespace}")
        sets = self._answers(f"sets/{self._namespace}/{self._set_name}")
        self.nodes_asked = len(namespaces)
        self.nodes_answered = sum(isinstance(a, dict) for a in namespaces.values())
        if not namespaces:
            self.last_error = "no node is known"
            return None
        for answer in (*namespaces.values(), *sets.values()):
            if isinstance(answer, str):
                self.last_error = answer
                return None
        self.last_error = ""
        return usage_of(
            [a for a in namespaces.values() if isinstance(a, dict)],
            [a for a in sets.values() if isinstance(a, dict)],
        )

    def _answers(self, command: str) -> dict[str, dict[str, str] | str]:
        """By node: the pairs, or in words why there are none."""
        out: dict[str, dict[str, str] | str] = {}
        for node, text in self._store.info(command).items():
            if not isinstance(text, str):
                out[node] = f"{node}: {text}"
            elif text.startswith(("ERROR", "FAIL")):
                out[node] = f"{node}: {command}: {text[:100]}"
            else:
                out[node] = pairs_of(text)
        return out


def pairs_of(text: str) -> dict[str, str]:
    """The pairs of an answer; those of sets are separated by colons."""
    separator = ";" if ";" in text.rstrip(";") else ":"
    items = (item.partition("=") for item in text.rstrip(";").split(separator))
    return {name: value for name, equals, value in items if equals}


def usage_of(namespaces: list[dict[str, str]], sets: list[dict[str, str]]) -> ClusterUsage:
    """Adds up the answers of all nodes; replicas count once."""
    copies = max([1, *(_first(answer, _COPIES) for answer in namespaces)])
    return ClusterUsage(
        namespace_used=sum(_first(answer, _USED) for answer in namespaces) // copies,
        namespace_total=sum(_first(answer, _TOTALS) for answer in namespaces) // copies,
        set_used=sum(_first(answer, _SET_USED) for answer in sets) // copies,
        default_ttl_seconds=max([0, *(_first(a, ("default-ttl",)) for a in namespaces)]),
        stop_writes=any(answer.get("stop_writes") == "true" for answer in namespaces),
    )


def _first(answer: Mapping[str, str], names: tuple[str, ...]) -> int:
    """The first of the names that stands for a number above 0; 0 if none does."""
    for name in names:
        value = answer.get(name, "")
        if value.isascii() and value.isdigit() and int(value) > 0:
            return int(value)
    return 0
