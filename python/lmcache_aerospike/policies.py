# SPDX-License-Identifier: Apache-2.0
"""Options as policies of the official Aerospike client, for programs that use it beside the engine.

The engine itself takes the options directly. The client need not be installed.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Final

from lmcache_aerospike.errors import AerospikeConfigError

if TYPE_CHECKING:
    from lmcache_aerospike.config import AerospikeConfig

__all__ = ["batch_policy", "read_policy", "write_policy"]

Policy = dict[str, int]

# The client's numbers, which are those of its C library and do not change.
CONSTANTS: Final[dict[str, int]] = {
    "POLICY_COMMIT_LEVEL_ALL": 0,
    "POLICY_COMMIT_LEVEL_MASTER": 1,
    "POLICY_REPLICA_MASTER": 0,
    "POLICY_REPLICA_ANY": 1,
    "POLICY_REPLICA_SEQUENCE": 2,
    "POLICY_REPLICA_PREFER_RACK": 3,
    "POLICY_KEY_DIGEST": 0,
    "POLICY_KEY_SEND": 1,
    "POLICY_EXISTS_IGNORE": 0,
    "POLICY_GEN_IGNORE": 0,
}
_COMMIT_LEVELS: Final = ("all", "master")
_REPLICAS: Final = ("master", "any", "sequence", "prefer_rack")


def read_policy(cfg: AerospikeConfig) -> Policy:
    """For loads and lookups; they may be repeated."""
    return {
        "total_timeout": cfg.read_timeout_ms,
        "socket_timeout": cfg.read_timeout_ms,
        "replica": _named("POLICY_REPLICA", "replica", cfg.replica, _REPLICAS),
        "key": _key_policy(cfg.send_key),
        "max_retries": 2,
    }


def write_policy(cfg: AerospikeConfig) -> Policy:
    """For stores and deletes: whole records are replaced, whatever was there."""
    return {
        "total_timeout": cfg.write_timeout_ms,
        "socket_timeout": cfg.write_timeout_ms,
        "commit_level": _named(
            "POLICY_COMMIT_LEVEL", "commit_level", cfg.commit_level, _COMMIT_LEVELS
        ),
        "key": _key_policy(cfg.send_key),
        "exists": _constant("POLICY_EXISTS_IGNORE"),
        "gen": _constant("POLICY_GEN_IGNORE"),
        "max_retries": 0,
    }


def batch_policy(cfg: AerospikeConfig) -> Policy:
    """For batches of either kind."""
    return {"total_timeout": max(cfg.read_timeout_ms, cfg.write_timeout_ms)}


def _key_policy(send_key: bool) -> int:
    return _constant("POLICY_KEY_SEND" if send_key else "POLICY_KEY_DIGEST")


def _named(prefix: str, option: str, word: str, words: tuple[str, ...]) -> int:
    if word not in words:
        msg = f"option '{option}': {word!r}, expected one of {', '.join(words)}"
        raise AerospikeConfigError(msg)
    return _constant(f"{prefix}_{word.upper()}")


def _constant(name: str) -> int:
    """As the installed client has it; a client that lost one cannot take these policies."""
    try:
        client = importlib.import_module("aerospike")
    except ImportError:
        return CONSTANTS[name]
    value = getattr(client, name, None)
    if not isinstance(value, int):
        msg = f"the installed Aerospike client has no {name}, expected one that does"
        raise AerospikeConfigError(msg)
    return value
