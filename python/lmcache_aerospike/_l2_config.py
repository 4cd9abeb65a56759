# SPDX-License-Identifier: Apache-2.0
"""The options of the L2 plugin: those of the engine, and a few of its own."""

from __future__ import annotations

import difflib
import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from lmcache_aerospike.config import BY_NAME, Config
from lmcache_aerospike.errors import AerospikeConfigError

_DOCS: Final = "docs/reference/l2.md"
_YEAR: Final = 365 * 86_400


@dataclass(frozen=True)
class OwnOption:
    """One option that only the plugin has.

    Attributes:
        name: As callers write it.
        default: What stands when nobody gives it.
        expected: What a good value is, in words.
        effect: What it does.
        low: The smallest number.
        high: The largest number.
        choices: The words of a choice; then it is no number.
    """

    name: str
    default: Any
    expected: str
    effect: str
    low: float = 0
    high: float = 0
    choices: tuple[str, ...] = ()

    def check(self, value: object) -> float | str:
        """The value, if it is good.

        Raises:
            AerospikeConfigError: It is not.
        """
        if self.choices:
            if isinstance(value, str) and value in self.choices:
                return value
        elif (
            isinstance(value, int | float)
            and not isinstance(value, bool)
            and math.isfinite(value)
            and self.low <= value <= self.high
        ):
            return value
        msg = f"option '{self.name}': {str(value)[:80]!r}, expected {self.expected}; see {_DOCS}"
        raise AerospikeConfigError(msg)


OWN_OPTIONS: Final = (
    OwnOption(
        "max_capacity_gb",
        0,
        "a number of GiB, 0 to 1048576",
        "Bytes that the set may hold, for eviction; 0 = what the namespace holds.",
        high=1 << 20,
    ),
    OwnOption(
        "usage",
        "server",
        "server or process",
        "Who counts the bytes: the server, for all of its users, or this process, its own.",
        choices=("server", "process"),
    ),
    OwnOption(
        "usage_refresh_seconds",
        5,
        "a number of seconds, 0.05 to 3600",
        "How often the server is asked.",
        low=0.05,
        high=3600,
    ),
    OwnOption(
        "adopt_seconds",
        0,
        "a number of seconds, 0 to 31536000",
        "If above 0, every so often the set is scanned, and all objects in it count as this "
        "process' own: evicted, and counted for their salt.",
        high=_YEAR,
    ),
)
_OWN: Final = {option.name: option for option in OWN_OPTIONS}


@dataclass(frozen=True)
class L2Options:
    """Checked options.

    Attributes:
        engine: Of the engine.
        max_capacity_bytes: For eviction; 0 = what the namespace holds.
        usage: "server" or "process".
        usage_refresh_seconds: Between two questions to the server.
        adopt_seconds: Between two scans of the set; 0 = never.
    """

    engine: Config
    max_capacity_bytes: int
    usage: str
    usage_refresh_seconds: float
    adopt_seconds: float

    @classmethod
    def resolve(cls, given: Mapping[str, Any]) -> L2Options:
        """Checks what was given and fills in the rest.

        Raises:
            AerospikeConfigError: An option is unknown, missing, given twice or out of range.
        """
        own: dict[str, Any] = {
            option.name: option.check(given[option.name])
            if given.get(option.name) is not None
            else option.default
            for option in OWN_OPTIONS
        }
        rest = {name: value for name, value in given.items() if name not in _OWN}
        for name in rest:
            near = difflib.get_close_matches(str(name), [*BY_NAME, *_OWN], n=1)
            if name not in BY_NAME and near and near[0] in _OWN:
                msg = f"option '{name}': unknown, did you mean '{near[0]}'?; see {_DOCS}"
                raise AerospikeConfigError(msg)
        engine = Config.resolve(rest)
        if own["adopt_seconds"] > 0 and not engine.values["send_key"]:
            msg = "option 'adopt_seconds': above 0 without send_key, expected send_key true"
            raise AerospikeConfigError(msg)
        return cls(
            engine,
            int(own["max_capacity_gb"] * (1 << 30)),
            own["usage"],
            float(own["usage_refresh_seconds"]),
            float(own["adopt_seconds"]),
        )
