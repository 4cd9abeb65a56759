# SPDX-License-Identifier: Apache-2.0
"""Reads single values of options. Whatever is wrong is a ValueError; callers name the option."""

from __future__ import annotations

import json
import logging
import re
import stat
import urllib.parse
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

logger = logging.getLogger("lmcache_aerospike")

_UNITS = {"": 1, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30, "T": 1 << 40}
_SIZE = re.compile(r"(\d+)\s*([KMGT]?)(?:I?B)?", re.IGNORECASE)
_HOST = re.compile(
    r"(?P<host>\[[0-9A-Fa-f:.%\w]+\]|[^\s\[\]:,]+)"
    r"(?::(?P<tls_name>[^\s\[\]:,.][^\s\[\]:,]{0,252})(?=:))?(?::(?P<port>\d{1,5}))?"
)
_TRUE = frozenset({"true", "1", "yes", "on"})
_FALSE = frozenset({"false", "0", "no", "off"})
_SECRET_BYTES_MAX = 4096
_SHOWN_MAX = 60
_DEFAULT_PORT = 3000


def read_text(value: object, low: int, high: int) -> str:
    """Text of `low` to `high` bytes in UTF-8, without control characters."""
    if not isinstance(value, str) or not low <= len(value.encode()) <= high:
        msg = "not text of the right length"
        raise ValueError(msg)
    if any(ord(character) < ord(" ") for character in value):
        msg = "control characters, expected none"
        raise ValueError(msg)
    return value


def parse_size(text: str) -> int:
    """Bytes of "512", "64K", "2G"; units are powers of 1,024."""
    found = _SIZE.fullmatch(text.strip())
    if not found:
        msg = f"size '{text}': expected a number with K, M, G, T or nothing behind it"
        raise ValueError(msg)
    return int(found[1]) * _UNITS[found[2].upper()]


def read_number(
    value: object, low: int, high: int, special: Sequence[int], parse: Callable[[str], int]
) -> int:
    """A whole number from `low` to `high`, or one of `special`; text is parsed by `parse`."""
    if isinstance(value, str):
        value = int(value) if value.strip().startswith("-") else parse(value)
    if isinstance(value, bool) or not isinstance(value, int):
        msg = "not a whole number"
        raise ValueError(msg)
    if value not in special and not low <= value <= high:
        msg = "out of range"
        raise ValueError(msg)
    return value


def read_flag(value: object) -> bool:
    """True or False, also as 0, 1 or a word in any case."""
    if isinstance(value, bool):
        return value
    word = str(value).strip().lower() if isinstance(value, (str, int)) else ""
    if word in _TRUE:
        return True
    if word in _FALSE:
        return False
    msg = "neither true nor false"
    raise ValueError(msg)


def read_choice(value: object, choices: Sequence[str]) -> str:
    """One of `choices`, in any case."""
    if isinstance(value, str) and value.strip().lower() in choices:
        return value.strip().lower()
    msg = "not one of the choices"
    raise ValueError(msg)


def read_hosts(value: object) -> str:
    """Normal form of "host:port,host2:tls-name:port".

    A list of such texts, of (host, port) or of (host, port, tls_name) works too.
    """
    if isinstance(value, str):
        entries: Sequence[object] = value.split(",")
    elif isinstance(value, (list, tuple)):
        entries = value
    else:
        msg = "neither text nor a list"
        raise ValueError(msg)
    if not entries:
        msg = "empty"
        raise ValueError(msg)
    return ",".join(_read_host(entry) for entry in entries)


def _read_host(entry: object) -> str:
    if isinstance(entry, (list, tuple)) and len(entry) in (2, 3):
        host, port, *names = entry
        if isinstance(host, str) and ":" in host and not host.startswith("["):
            host = f"[{host}]"
        entry = ":".join(str(part) for part in (host, *names, port))
    found = _HOST.fullmatch(entry.strip()) if isinstance(entry, str) else None
    if not found:
        msg = "not host:port"
        raise ValueError(msg)
    port = int(found["port"] or _DEFAULT_PORT)
    if not 0 < port < 65536:
        msg = "port out of range"
        raise ValueError(msg)
    name = f":{found['tls_name']}" if found["tls_name"] else ""
    return f"{found['host']}{name}:{port}"


def split_hosts(text: str) -> tuple[tuple[str, int] | tuple[str, int, str], ...]:
    """What read_hosts() returned as (host, port) or, with a TLS name, (host, port, tls_name)."""
    hosts: list[tuple[str, int] | tuple[str, int, str]] = []
    for entry in text.split(","):
        found = _HOST.fullmatch(entry)
        if found:  # always: it is in normal form
            host, port = found["host"].strip("[]"), int(found["port"])
            name = found["tls_name"]
            hosts.append((host, port, name) if name else (host, port))
    return tuple(hosts)


def read_url(url: str) -> dict[str, str]:
    """The options in aerospike://user@host:port,host2:port/namespace/set?option=value.

    Every part but the scheme may be left out. A password is refused: LMCache logs its URLs.
    """
    parts = urllib.parse.urlsplit(url)
    user, has_user, hosts = parts.netloc.rpartition("@")
    if parts.scheme != "aerospike" or parts.fragment:
        msg = "option 'url': expected aerospike://host:port/namespace/set?option=value"
        raise ValueError(msg)
    if ":" in user:
        msg = (
            "option 'url': a password, which LMCache would log, expected none: use "
            "LMCACHE_AEROSPIKE_PASSWORD or password_file"
        )
        raise ValueError(msg)
    path = parts.path.strip("/").split("/") if parts.path.strip("/") else []
    if len(path) > 2:
        msg = f"option 'url': path {shorten(parts.path)}, expected /namespace/set"
        raise ValueError(msg)
    found = {"hosts": hosts, "username": user if has_user else ""}
    found |= dict(zip(("namespace", "set_name"), path, strict=False))
    out = {name: urllib.parse.unquote(text) for name, text in found.items() if text}
    for name, value in urllib.parse.parse_qsl(parts.query, keep_blank_values=True):
        if name in out or name == "password":
            msg = f"option 'url': {name} given twice or not for URLs, expected it once"
            raise ValueError(msg)
        out[name] = value
    return out


def read_serde(value: object) -> dict[str, object]:
    """A serde: a mapping with a type, or the same as JSON text."""
    if isinstance(value, str):
        value = json.loads(value)
    if not isinstance(value, Mapping) or not isinstance(value.get("type"), str):
        msg = "no mapping with a type"
        raise ValueError(msg)
    return dict(value)


def read_secret_file(path: str) -> str:
    """The content of a file without one line feed at its end.

    Warns if other users can read the file; secrets that an orchestrator mounts often are like
    that, so it is not refused.
    """
    file = Path(path).expanduser()
    mode = file.stat().st_mode
    if not stat.S_ISREG(mode):
        msg = "not a regular file"
        raise ValueError(msg)
    if mode & (stat.S_IROTH | stat.S_IWOTH):
        logger.warning("password file %s: other users have access; chmod 600 is better", path)
    with file.open("rb") as stream:
        data = stream.read(_SECRET_BYTES_MAX + 1)
    if len(data) > _SECRET_BYTES_MAX:
        msg = "too long for a password"
        raise ValueError(msg)
    return data.decode().removesuffix("\n").removesuffix("\r")


def shorten(value: object) -> str:
    """A value for an error message: one short line."""
    text = repr(value)
    return text if len(text) <= _SHOWN_MAX else text[:_SHOWN_MAX] + "..."
