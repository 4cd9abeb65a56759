# SPDX-License-Identifier: Apache-2.0
"""What a namespace allows, and the segment sizes that follow.

The engine asks by itself when it opens; this is the same for programs that have a client of the
official kind, or want to know the numbers beforehand.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Protocol

from lmcache_aerospike.errors import (
    AerospikeNamespaceProbeError,
    AerospikeServerLimitError,
    AerospikeTTLConfigError,
)

if TYPE_CHECKING:
    from lmcache_aerospike._native import StoreLimits
    from lmcache_aerospike.config import AerospikeConfig

__all__ = [
    "SAFETY_MARGIN_BYTES",
    "ResolvedLimits",
    "ServerLimits",
    "check_ttl",
    "discover_limits",
    "limits_of_engine",
    "resolve_segment_limits",
]

logger = logging.getLogger("lmcache_aerospike")

SAFETY_MARGIN_BYTES: Final = 65536
"""What a record needs beside its segment."""

_RECORD_MIN: Final = 128 << 10
_RECORD_MAX: Final = 8 << 20
_LIMIT_KEYS: Final = ("max-record-size", "write-block-size", "storage-engine.write-block-size")
_SHOWN_MAX: Final = 80


class HasInfo(Protocol):
    """A client that can ask a node: the engine's, or the official one."""

    def info_random_node(self, command: str, /) -> str:
        """The answer of one node."""
        ...


@dataclass(frozen=True)
class ServerLimits:
    """What one node says about a namespace.

    Attributes:
        server_max_record_bytes: Its record limit.
        source: The setting that says so.
        nsup_period: Seconds between two purges; 0 = none, None = not said.
        allow_ttl_without_nsup: Whether TTLs are taken though nothing purges.
    """

    server_max_record_bytes: int
    source: str
    nsup_period: int | None = None
    allow_ttl_without_nsup: bool = False


@dataclass(frozen=True)
class ResolvedLimits:
    """The sizes in effect, in bytes; docs/formats/record.md tells what each does."""

    target_segment_bytes: int
    max_segment_bytes: int
    min_segment_bytes: int
    single_record_threshold_bytes: int


def discover_limits(
    client: HasInfo, namespace: str, default_ttl_seconds: int | None = None
) -> ServerLimits:
    """Asks a node what a namespace allows.

    Args:
        client: Anything with `info_random_node`.
        namespace: Its name.
        default_ttl_seconds: If given, it is checked that the namespace takes it.

    Raises:
        AerospikeNamespaceProbeError: No answer, or none about a namespace.
        AerospikeServerLimitError: No record limit in it, or one that cannot be right.
        AerospikeTTLConfigError: The namespace refuses TTLs.
    """
    try:
        answer = client.info_random_node(f"namespace/{namespace}")
    except Exception as error:
        # Clients of any kind: whatever they raise, there was no answer.
        msg = f"namespace {namespace}: no answer: {error}"
        raise AerospikeNamespaceProbeError(msg) from error
    settings = _settings_of(answer if isinstance(answer, str) else "")
    if not settings or settings.get("type") == "unknown":
        msg = f"namespace {namespace}: the server answered {str(answer)[:_SHOWN_MAX]!r}, expected "
        raise AerospikeNamespaceProbeError(msg + "its settings")
    limits = _limits_of(namespace, settings)
    if default_ttl_seconds is not None:
        check_ttl(namespace, default_ttl_seconds, limits)
    return limits


def _settings_of(answer: str) -> dict[str, str]:
    text = answer.partition("\t")[2] if "\t" in answer else answer
    text = text.strip()
    if text.upper().startswith(("ERROR", "FAIL")):
        return {}
    settings: dict[str, str] = {}
    for pair in text.split(";"):
        name, equals, value = pair.partition("=")
        if equals and name:
            settings.setdefault(name, value)
    return settings


def _limits_of(namespace: str, settings: dict[str, str]) -> ServerLimits:
    for source in _LIMIT_KEYS:
        text = settings.get(source)
        if text is None or text == "0":
            continue
        if not text.isdecimal() or not _RECORD_MIN <= int(text) <= _RECORD_MAX:
            msg = f"namespace {namespace}: {source}={text[:_SHOWN_MAX]}, expected {_RECORD_MIN} to "
            raise AerospikeServerLimitError(msg + str(_RECORD_MAX))
        period = settings.get("nsup-period", "")
        return ServerLimits(
            int(text),
            source,
            int(period) if period.isdecimal() else None,
            settings.get("allow-ttl-without-nsup") == "true",
        )
    msg = f"namespace {namespace}: the server names neither max-record-size nor write-block-size"
    raise AerospikeServerLimitError(msg + "; set max-record-size")


def check_ttl(namespace: str, default_ttl_seconds: int, server: ServerLimits) -> None:
    """Checks that a namespace takes a TTL.

    Raises:
        AerospikeTTLConfigError: It refuses every TTL above 0.
    """
    if default_ttl_seconds <= 0 or server.nsup_period != 0:
        return
    if server.allow_ttl_without_nsup:
        logger.warning(
            "namespace %s: nsup-period is 0: records expire but are never purged, so the namespace "
            "fills up; set nsup-period above 0",
            namespace,
        )
        return
    msg = (
        f"namespace {namespace}: a TTL of {default_ttl_seconds} seconds is refused while "
        "nsup-period is 0; set nsup-period of the namespace above 0 (for example 120), or "
        "default_ttl_seconds to 0 or -1"
    )
    raise AerospikeTTLConfigError(msg)


def resolve_segment_limits(cfg: AerospikeConfig, server_limits: ServerLimits) -> ResolvedLimits:
    """What the operator wants, lowered to what the server allows; tells the log about both.

    Raises:
        AerospikeTTLConfigError: The namespace refuses the TTL of the configuration.
    """
    check_ttl(cfg.namespace, cfg.default_ttl_seconds, server_limits)
    most = server_limits.server_max_record_bytes - SAFETY_MARGIN_BYTES
    longest = _lowered(cfg, "max_segment_bytes", cfg.max_segment_bytes, most, most)
    target = _lowered(cfg, "target_segment_bytes", cfg.target_segment_bytes, longest, longest)
    single = cfg.single_record_threshold_bytes
    resolved = ResolvedLimits(
        target_segment_bytes=target,
        max_segment_bytes=longest,
        min_segment_bytes=cfg.min_segment_bytes,
        single_record_threshold_bytes=_lowered(
            cfg, "single_record_threshold_bytes", single, target, longest
        ),
    )
    log_limits(cfg, server_limits.server_max_record_bytes, server_limits.source, resolved)
    return resolved


def _lowered(cfg: AerospikeConfig, name: str, wish: int | None, otherwise: int, limit: int) -> int:
    if wish is not None and wish > limit:
        logger.warning("%s %d lowered to %d: the server allows no more", cfg.key(name), wish, limit)
    return min(otherwise if wish is None else wish, limit)


def limits_of_engine(cfg: AerospikeConfig, found: StoreLimits) -> ResolvedLimits:
    """The sizes that the engine found and uses; tells the log about them."""
    sizes: dict[str, Any] = {name: found[name] for name in ResolvedLimits.__dataclass_fields__}  # type: ignore[literal-required]
    resolved = ResolvedLimits(**sizes)
    log_limits(cfg, found["record_bytes_max"], found["record_bytes_source"], resolved)
    return resolved


def log_limits(cfg: AerospikeConfig, most: int, source: str, resolved: ResolvedLimits) -> None:
    """One line about the server, one about what follows."""
    logger.info("namespace %s: %s is %d bytes", cfg.namespace, source, most)
    logger.info(
        "namespace %s: segments of up to %d bytes, preferred %d, at least %d; objects of up to %d "
        "bytes are one record",
        cfg.namespace,
        resolved.max_segment_bytes,
        resolved.target_segment_bytes,
        resolved.min_segment_bytes,
        resolved.single_record_threshold_bytes,
    )
