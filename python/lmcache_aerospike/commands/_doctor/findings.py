# SPDX-License-Identifier: Apache-2.0
"""What a check says: a line, and what to do if it is not ok."""

from __future__ import annotations

from dataclasses import dataclass

OK = "ok"
WARN = "warn"
FAIL = "fail"


@dataclass(frozen=True)
class Finding:
    """The result of one check.

    Attributes:
        name: What was checked.
        status: "ok", "warn" or "fail".
        detail: What was seen.
        remedy: What to change where; "" if nothing.
    """

    name: str
    status: str
    detail: str
    remedy: str = ""


def conf(namespace: str, line: str, *, dynamic: bool = True) -> str:
    """How to set a line of a namespace in the server's configuration."""
    where = f"aerospike.conf of every node, section 'namespace {namespace}': {line}"
    if not dynamic:
        return f"{where}; then restart the nodes one by one"
    name, _, value = line.rpartition(" ")
    command = f"set-config:context=namespace;namespace={namespace};{name}={value}"
    return f"{where}; without a restart: asinfo -v '{command}'"
