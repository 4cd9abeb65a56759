# SPDX-License-Identifier: Apache-2.0
"""The options: one table, from which they are checked, documented and shown.

A value comes from the first of: the caller, the password file, the environment, the default.
"""

from __future__ import annotations

import difflib
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from lmcache_aerospike import _values
from lmcache_aerospike._options import BY_NAME, OPTIONS, Option
from lmcache_aerospike.errors import AerospikeConfigError

__all__ = ["BY_NAME", "DOCS", "HIDDEN", "OPTIONS", "AerospikeConfig", "Config", "Option"]

DOCS: Final = "docs/reference/config.md"
HIDDEN: Final = "********"


@dataclass(frozen=True)
class Config:
    """Checked options.

    Attributes:
        values: One value for each row of the table.
        sources: Where each came from: "given", "default", or the variable or file.
    """

    values: Mapping[str, Any] = field(repr=False)
    sources: Mapping[str, str] = field(repr=False)

    @classmethod
    def resolve(
        cls,
        given: Mapping[str, Any],
        environment: Mapping[str, str] | None = None,
        *,
        complete: bool = True,
    ) -> Config:
        """Checks what was given and fills in the rest.

        Args:
            given: Options by name or alias. None stands for not given, as does "" where the
                environment may fill it in.
            environment: Instead of the process environment.
            complete: Whether what is needed to connect must be there.

        Raises:
            AerospikeConfigError: An option is unknown, missing, given twice or out of range.
        """
        environment = os.environ if environment is None else environment
        raw: dict[str, Any] = {}
        sources: dict[str, str] = {}
        for name, value in given.items():
            option = BY_NAME.get(name)
            if option is None:
                raise AerospikeConfigError(_unknown(name))
            if value is None or (value == "" and option.environment):
                continue
            if option.name in raw:
                msg = f"option '{option.name}': given twice, under two names; expected one"
                raise AerospikeConfigError(msg)
            raw[option.name] = value
            sources[option.name] = "given"
        for option in OPTIONS:
            if option.name not in raw and environment.get(option.environment):
                raw[option.name] = environment[option.environment]
                sources[option.name] = option.environment
        values = {
            option.name: _check(option, raw[option.name]) if option.name in raw else option.default
            for option in OPTIONS
        }
        _read_password_file(values, sources)
        _read_key_password(values, sources)
        _check_together(values, complete)
        return cls(values, {o.name: sources.get(o.name, "default") for o in OPTIONS})

    def native(self) -> dict[str, Any]:
        """The options as the engine takes them."""
        return {option.name: self.values[option.name] for option in OPTIONS if option.native}

    def shown(self) -> dict[str, Any]:
        """The options for people and logs: secrets are hidden."""
        return {
            option.name: HIDDEN
            if option.secret and self.values[option.name]
            else self.values[option.name]
            for option in OPTIONS
        }

    def __repr__(self) -> str:
        given = {n: v for n, v in self.shown().items() if self.sources[n] != "default"}
        return f"Config({given})"


_READERS: Final[dict[str, Callable[[Option, object], object]]] = {
    "text": lambda o, value: _values.read_text(value, o.low, o.high),
    "hosts": lambda _, value: _values.read_hosts(value),
    "bytes": lambda o, value: _values.read_number(
        value, o.low, o.high, o.special, _values.parse_size
    ),
    "whole number": lambda o, value: _values.read_number(value, o.low, o.high, o.special, int),
    "true or false": lambda _, value: _values.read_flag(value),
    "choice": lambda o, value: _values.read_choice(value, o.choices),
    "serde": lambda _, value: _values.read_serde(value),
}


def _check(option: Option, value: object) -> object:
    try:
        return _READERS[option.kind](option, value)
    except ValueError:
        seen = HIDDEN if option.secret else _values.shorten(value)
        msg = f"option '{option.name}': {seen}, expected {option.expected}; see {DOCS}"
        raise AerospikeConfigError(msg) from None


def _check_together(values: dict[str, Any], complete: bool) -> None:
    if complete and values["hosts"] is None:
        msg = f"option 'hosts': not given, expected {BY_NAME['hosts'].expected}, or "
        raise AerospikeConfigError(msg + "LMCACHE_AEROSPIKE_HOSTS in the environment")
    _check_trust(values, complete)
    if values["replica"] == "prefer_rack" and values["rack_id"] < 0:
        msg = "option 'rack_id': not given, expected one since replica is prefer_rack"
        raise AerospikeConfigError(msg)


def _check_trust(values: dict[str, Any], complete: bool) -> None:
    """The rules of TLS and logins; the engine has the same ones in terms of its own."""
    if values["password"] and not values["username"] and values["auth_mode"] != "pki":
        msg = "option 'username': not given, expected one since there is a password"
        raise AerospikeConfigError(msg)
    fault = _fault_of_tls(values, complete) if values["tls_enable"] else _fault_without_tls(values)
    if fault:
        msg = f"option {fault}; see {DOCS}"
        raise AerospikeConfigError(msg)


def _fault_without_tls(values: dict[str, Any]) -> str:
    for option in OPTIONS:
        # The environment may hold the password of a key that is not used here.
        is_tls = option.name.startswith("tls_") and option.name != "tls_key_password"
        if is_tls and values[option.name] != option.default:
            return f"'{option.name}': given without 'tls_enable', expected both or neither"
    if any(len(host) > 2 for host in _values.split_hosts(values["hosts"] or "")):
        return "'hosts': a TLS name without 'tls_enable', expected both or neither"
    if values["auth_mode"] != "internal":
        return f"'auth_mode': {values['auth_mode']} without 'tls_enable', expected TLS"
    return ""


def _fault_of_tls(values: dict[str, Any], complete: bool) -> str:
    if complete and not values["tls_ca_file"] and not values["tls_ca_path"]:
        return "'tls_ca_file': not given, expected it or 'tls_ca_path' since there is TLS"
    if bool(values["tls_cert_file"]) != bool(values["tls_key_file"]):
        return "'tls_cert_file': expected together with 'tls_key_file'"
    hosts = _values.split_hosts(values["hosts"] or "")
    nameless = [host[0] for host in hosts if len(host) == 2]
    if complete and nameless and not values["tls_name"]:
        return f"'tls_name': not given, expected the name in the certificate of {nameless[0]}"
    return _fault_of_login(values)


def _fault_of_login(values: dict[str, Any]) -> str:
    mode, has_user = values["auth_mode"], bool(values["username"])
    if mode == "pki" and (has_user or values["password"]):
        return "'auth_mode': pki, expected no 'username' and no password beside the certificate"
    if mode == "pki" and not values["tls_cert_file"]:
        return "'auth_mode': pki, expected 'tls_cert_file', which names the user"
    if mode == "external" and not has_user:
        return "'auth_mode': external, expected 'username'"
    return ""


def _read_key_password(values: dict[str, Any], sources: dict[str, str]) -> None:
    """The file is read by the engine, again when the key is renewed; here it is only looked at."""
    path = values["tls_key_password_file"]
    if not path:
        return
    if sources.get("tls_key_password") == "given":
        msg = "option 'tls_key_password_file': given beside tls_key_password, expected one"
        raise AerospikeConfigError(msg)
    try:
        _values.read_secret_file(path)
    except (OSError, ValueError) as error:
        msg = f"option 'tls_key_password_file': {path}: {error}"
        raise AerospikeConfigError(msg) from None
    values["tls_key_password"] = ""
    sources.pop("tls_key_password", None)


def _read_password_file(values: dict[str, Any], sources: dict[str, str]) -> None:
    path = values["password_file"]
    if not path:
        return
    if sources.get("password") == "given":
        msg = "option 'password_file': given beside password, expected one of the two"
        raise AerospikeConfigError(msg)
    try:
        values["password"] = _values.read_text(_values.read_secret_file(path), 1, 63)
    except (OSError, ValueError) as error:
        msg = f"option 'password_file': {path}: {error}"
        raise AerospikeConfigError(msg) from None
    sources["password"] = f"file {path}"


def _unknown(name: str) -> str:
    near = difflib.get_close_matches(name, BY_NAME, n=1)
    hint = f"did you mean '{near[0]}'?" if near else "expected one of the table"
    return f"option '{name}': unknown, {hint}; see {DOCS}"


_TARGET_SEGMENT_BYTES: Final = 4 * 1024 * 1024
_PREFIX: Final = "remote_storage_plugin"
# LMCache's own keys beside the options of a plug-in.
_OF_LMCACHE: Final = frozenset({"module_path", "class_name"})


@dataclass(frozen=True)
class AerospikeConfig:
    """The options of one remote connector, as LMCache's `extra_config` gives them.

    The names, defaults and ranges are those of the table; `None` stands for what follows from the
    limits of the server.

    Attributes:
        hosts: Nodes to start from, as (host, port) or (host, port, tls_name).
        others: The options that have no attribute here, by name.
        plugin_name: Of the instance, such as "aerospike" or "aerospike.primary".
    """

    hosts: tuple[tuple[str, int] | tuple[str, int, str], ...]
    namespace: str = "lmcache"
    set_name: str = "kv_chunks"
    target_segment_bytes: int = _TARGET_SEGMENT_BYTES
    max_segment_bytes: int | None = None
    min_segment_bytes: int = 65536
    single_record_threshold_bytes: int | None = None
    default_ttl_seconds: int = 86400
    read_timeout_ms: int = 1000
    write_timeout_ms: int = 2000
    batch_max_in_flight: int = 64
    executor_threads: int = 16
    enable_list: bool = False
    enable_crc32: bool = False
    commit_level: str = "all"
    replica: str = "sequence"
    send_key: bool = True
    username: str = ""
    password: str = field(default="", repr=False)
    tls_name: str = ""
    others: Mapping[str, Any] = field(default_factory=dict, repr=False, hash=False)
    plugin_name: str = "aerospike"

    @classmethod
    def from_extra_config(
        cls, extra_config: Mapping[str, Any] | None, plugin_name: str, url: str = ""
    ) -> AerospikeConfig:
        """Reads the options of one plug-in instance.

        Args:
            extra_config: LMCache's; keys are `remote_storage_plugin.<plugin_name>.<option>`. The
                option `url` gives several at once.
            plugin_name: Of the instance.
            url: `aerospike://user@host:port,host2:port/namespace/set?option=value`, which goes
                before `extra_config`.

        Raises:
            AerospikeConfigError: An option is unknown, missing or has a bad value; the message
                names its full key.
        """
        prefix = f"{_PREFIX}.{plugin_name}."
        given: dict[str, Any] = {}
        for key, value in (extra_config or {}).items():
            name = str(key).removeprefix(prefix)
            # With a dot it is a key of another instance: aerospike.primary beside aerospike.
            if name != key and "." not in name and name not in _OF_LMCACHE:
                given[name] = value
        try:
            url = url or str(given.pop("url", "") or "")
            if url:
                from_url = _values.read_url(url)
                canonical = {BY_NAME[name].name for name in from_url if name in BY_NAME}
                given = {n: v for n, v in given.items() if _canonical(n) not in canonical}
                given |= from_url
            given.pop("url", None)
            return cls._of(Config.resolve(given), plugin_name)
        except ValueError as error:
            text = str(error).replace("option '", f"option '{prefix}", 1)
            raise AerospikeConfigError(text) from None

    @classmethod
    def _of(cls, config: Config, plugin_name: str) -> AerospikeConfig:
        own = cls.__dataclass_fields__
        values = {name: value for name, value in config.values.items() if name in own}
        values["hosts"] = _values.split_hosts(values["hosts"])
        values["target_segment_bytes"] = values["target_segment_bytes"] or _TARGET_SEGMENT_BYTES
        for name in ("max_segment_bytes", "single_record_threshold_bytes"):
            values[name] = values[name] or None
        others = {
            name: value
            for name, value in config.values.items()
            # The file has been read; its content is the password.
            if name not in own and name != "password_file" and config.sources[name] != "default"
        }
        return cls(**values, others=others, plugin_name=plugin_name)

    def key(self, name: str) -> str:
        """The full key of an option in `extra_config`."""
        return f"{_PREFIX}.{self.plugin_name}.{name}"

    def options(self) -> Config:
        """The same for the engine.

        Raises:
            AerospikeConfigError: Made with a bad value.
        """
        given: dict[str, Any] = {
            name: getattr(self, name) for name in self.__dataclass_fields__ if name in BY_NAME
        }
        if self.target_segment_bytes == _TARGET_SEGMENT_BYTES:
            given["target_segment_bytes"] = None  # no wish: what the server allows is no surprise
        given["hosts"] = list(self.hosts)
        return Config.resolve({**given, **self.others}, {})


def _canonical(name: str) -> str:
    option = BY_NAME.get(name)
    return option.name if option else name
