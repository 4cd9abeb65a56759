# SPDX-License-Identifier: Apache-2.0
"""Reads the small languages of the command line: sizes, namespaces, racks, faults."""

from __future__ import annotations

from typing import Any

from lmcache_aerospike._values import parse_size, read_flag
from lmcache_aerospike.errors import AerospikeConfigError

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
        read = read_flag if key == "allow-ttl-without-nsup" else parse_size
        try:
            options[_NAMESPACE_FIELDS[key]] = read(value)
        except ValueError as error:
            msg = f"--namespace: '{part}': {error}"
            raise AerospikeConfigError(msg) from None
    return options


def parse_bytes(option: str, text: str) -> int:
    """The bytes that an option gives as "256M"; "0" for none."""
    try:
        return parse_size(text)
    except ValueError as error:
        msg = f"{option}: {error}"
        raise AerospikeConfigError(msg) from None


def parse_racks(text: str) -> list[int] | None:
    """The rack of each node from "1,1,2"; None for the empty text."""
    if not text:
        return None
    try:
        return [int(item) for item in text.split(",")]
    except ValueError:
        msg = f"--racks: '{text}', expected numbers joined with ','"
        raise AerospikeConfigError(msg) from None


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
                raise ValueError
        except ValueError:
            known = ", ".join(("kinds", "delay_ms", *_FAULT_NUMBERS, *_FAULT_TEXTS))
            msg = f"--fault: '{part}', expected key=value with one of {known}"
            raise AerospikeConfigError(msg) from None
    return fault
