# SPDX-License-Identifier: Apache-2.0
"""Reads the small languages of the command line: sizes, namespaces, users, faults."""

from __future__ import annotations

import re
from typing import Any

from lmcache_aerospike.errors import AerospikeConfigError

_UNITS = {"": 1, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30, "T": 1 << 40}
_SIZE = re.compile(r"(\d+)\s*([KMGT]?)(?:I?B)?", re.IGNORECASE)

# Spelling on the command line: (name in the engine, how its text is read).
_NAMESPACE_FIELDS = {
    "size": "size_bytes",
    "nsup": "nsup_period_s",
    "max-record-size": "max_record_bytes",
    "default-ttl": "default_ttl_s",
    "allow-ttl-without-nsup": "allow_ttl_without_nsup",
}
_FAULT_NUMBERS = ("node", "skip", "count", "code", "bytes", "seed")
_FAULT_TEXTS = ("action", "damage", "key_contains", "set")


def parse_size(text: str) -> int:
    """Bytes of "512", "64K", "2G"; units are powers of 1,024."""
    found = _SIZE.fullmatch(text.strip())
    if not found:
        msg = f"size '{text}': expected a number with K, M, G, T or nothing behind it"
        raise AerospikeConfigError(msg)
    return int(found[1]) * _UNITS[found[2].upper()]


def parse_namespace(text: str) -> dict[str, Any]:
    """A namespace of the development server from "name,size=2G,nsup=120,...".

    The first part is the name; the others are ``key=value``.
    """
    name, *parts = text.split(",")
    options: dict[str, Any] = {"name": name.strip()}
    for part in parts:
        key, _, value = part.strip().partition("=")
        if key not in _NAMESPACE_FIELDS or not value:
            known = ", ".join(_NAMESPACE_FIELDS)
            msg = f"--namespace: '{part}', expected key=value with one of {known}"
            raise AerospikeConfigError(msg)
        if key == "allow-ttl-without-nsup":
            options[_NAMESPACE_FIELDS[key]] = parse_flag(value)
        else:
            options[_NAMESPACE_FIELDS[key]] = parse_size(value)
    return options


def parse_flag(text: str) -> bool:
    """True or False from a word, in any case."""
    word = text.strip().lower()
    if word in {"1", "true", "yes", "on"}:
        return True
    if word in {"0", "false", "no", "off"}:
        return False
    msg = f"'{text}': expected true or false"
    raise AerospikeConfigError(msg)


def parse_user(text: str) -> dict[str, Any]:
    """A user of the development server from "name:password"."""
    name, colon, password = text.partition(":")
    if not name or not colon:
        msg = "--user: expected name:password"
        raise AerospikeConfigError(msg)
    return {"name": name, "password": password}


def parse_fault(text: str) -> dict[str, Any]:
    """An entry of the fault plan from "action,key=value,..."; kinds are joined with "+".

    Example: ``result_code,kinds=get+batch,code=18,skip=2,count=1``.
    """
    first, *parts = text.split(",")
    fault: dict[str, Any] = {"action": first.strip()}
    for part in parts:
        key, _, value = part.strip().partition("=")
        try:
            if key in _FAULT_NUMBERS:
                fault[key] = int(value)
            elif key == "delay_ms":
                fault[key] = float(value)
            elif key == "kinds":
                fault[key] = value.split("+")
            elif key in _FAULT_TEXTS and value:
                fault[key] = value
            else:
                raise ValueError  # noqa: TRY301 - one message for all ways to be wrong
        except ValueError:
            known = ", ".join(("kinds", "delay_ms", *_FAULT_NUMBERS, *_FAULT_TEXTS))
            msg = f"--fault: '{part}', expected key=value with one of {known}"
            raise AerospikeConfigError(msg) from None
    return fault
