# SPDX-License-Identifier: Apache-2.0
"""The exceptions of the package, one for each way to act on it; a miss is none."""

from __future__ import annotations

from typing import ClassVar


class AerospikeConnectorError(Exception):
    """Base of all errors of the engine.

    Attributes:
        code: The name of the cause, as in the table of docs/reference/errors.md.
        server_result: The result code of the Aerospike server, 0 if none was given.
        in_doubt: A write was sent and its outcome is unknown: it may have been applied.
    """

    default_code: ClassVar[str] = "internal"

    def __init__(
        self,
        message: str = "",
        *,
        code: str | None = None,
        server_result: int = 0,
        in_doubt: bool = False,
    ) -> None:
        super().__init__(message)
        self.code = code or self.default_code
        self.server_result = server_result
        self.in_doubt = in_doubt

    def __reduce__(self) -> tuple[type, tuple[str], dict[str, object]]:
        return type(self), (str(self),), dict(self.__dict__)


class NotFoundError(AerospikeConnectorError, LookupError):
    """Something that was named is not there; never raised for a miss."""

    default_code = "not_found"


class ConflictError(AerospikeConnectorError):
    """A generation or create-only condition was refused."""

    default_code = "conflict"


class AerospikeRecordTooBigError(AerospikeConnectorError):
    """An object or a record is over the limit of the server."""

    default_code = "too_big"


class AerospikeServerLimitError(AerospikeConnectorError):
    """The server names no record limit, or one that cannot be right."""

    default_code = "too_big"


class AerospikeTimeoutError(AerospikeConnectorError, TimeoutError):
    """The deadline passed."""

    default_code = "timeout"


class AerospikeConnectionError(AerospikeConnectorError, ConnectionError):
    """No node could be reached, or none holds the partition."""

    default_code = "unavailable"


class AerospikeNamespaceProbeError(AerospikeConnectionError):
    """A node answered, but not with what it knows of the namespace."""


class AerospikeBusyError(AerospikeConnectorError):
    """The server's device or queue is full, or it is out of space."""

    default_code = "overloaded"


class CorruptionError(AerospikeConnectorError):
    """Stored sums, sizes or the meta record contradict each other."""

    default_code = "corruption"


class ProtocolError(AerospikeConnectorError):
    """The peer sent what the protocol forbids."""

    default_code = "protocol"


class AerospikeDeniedError(AerospikeConnectorError):
    """Login, permission or namespace was refused."""

    default_code = "denied"


class AerospikeTTLConfigError(AerospikeDeniedError):
    """The namespace refuses TTLs: set its nsup-period, or default_ttl_seconds to -1."""


class InvalidArgumentError(AerospikeConnectorError, ValueError, RuntimeError):
    """The caller's argument. Also a RuntimeError, which LMCache's own connectors raise here."""

    default_code = "invalid"


class AerospikeConfigError(InvalidArgumentError):
    """An option is unknown, missing or has a bad value; the message names it."""


class ClosedError(AerospikeConnectorError):
    """Used after close(), cancelled by it, or used in a forked child."""

    default_code = "closed"


class InternalError(AerospikeConnectorError):
    """A defect of this package; please report it."""

    default_code = "internal"


AerospikeInternalError = InternalError


class AerospikeUnknownError(AerospikeConnectorError):
    """A result code that has no class of its own; server_result tells which."""

    default_code = "unknown"


_BY_CODE: dict[str, type[AerospikeConnectorError]] = {
    error.default_code: error
    for error in (
        NotFoundError,
        ConflictError,
        AerospikeRecordTooBigError,
        AerospikeTimeoutError,
        AerospikeConnectionError,
        AerospikeBusyError,
        CorruptionError,
        ProtocolError,
        AerospikeDeniedError,
        InvalidArgumentError,
        ClosedError,
        InternalError,
    )
}

_FORBIDDEN = 22
_KEY_MISMATCH = 19

# What classify() answers, by the code of our own errors ...
_KIND_OF_CODE: dict[str, str] = {
    "not_found": "not_found",
    "too_big": "too_big",
    "timeout": "timeout",
    "unavailable": "connection",
    "overloaded": "busy",
}
# ... by a result code, of the server or of the official client ...
_KIND_OF_RESULT: dict[int, str] = {
    2: "not_found",
    13: "too_big",
    9: "timeout",
    _FORBIDDEN: "forbidden_ttl",
    8: "busy",
    14: "busy",
    18: "busy",
    _KEY_MISMATCH: "key_mismatch",
    11: "connection",
    -1: "connection",
    -7: "connection",
    -8: "connection",
    -10: "connection",
}
# ... and by the classes of the official client, which need not be installed.
_KIND_OF_CLASS: dict[str, str] = {
    "RecordNotFound": "not_found",
    "RecordTooBig": "too_big",
    "TimeoutError": "timeout",
    "ConnectionError": "connection",
    "DeviceOverload": "busy",
    "QueueFull": "busy",
    "RecordKeyMismatch": "key_mismatch",
    "ParamError": "unknown",
    "ClientError": "connection",
}
_ERROR_OF_KIND: dict[str, type[AerospikeConnectorError]] = {
    "not_found": NotFoundError,
    "too_big": AerospikeRecordTooBigError,
    "timeout": AerospikeTimeoutError,
    "connection": AerospikeConnectionError,
    "forbidden_ttl": AerospikeTTLConfigError,
    "busy": AerospikeBusyError,
    "key_mismatch": InternalError,
    "unknown": AerospikeUnknownError,
}


def from_status(
    code: str, message: str, server_result: int = 0, in_doubt: bool = False, opening: bool = False
) -> AerospikeConnectorError:
    """Makes the exception for a status of the engine.

    Args:
        code: The name of its code.
        message: What failed.
        server_result: The server's result code, 0 if none.
        in_doubt: Whether a write may have been applied.
        opening: Whether it was met while a store was opened, where some codes concern the
            server's configuration.

    Returns:
        The exception, not raised.
    """
    error = _BY_CODE.get(code, AerospikeConnectorError)
    if code == "denied" and server_result == _FORBIDDEN:
        error = AerospikeTTLConfigError
    elif opening and code == "too_big":
        error = AerospikeServerLimitError
    elif opening and code == "invalid":
        error = AerospikeConfigError
    elif opening and code == "unavailable" and "namespace " in message:
        error = AerospikeNamespaceProbeError
    return error(message, code=code, server_result=server_result, in_doubt=in_doubt)


def classify(exc: BaseException) -> str:
    """Tells what kind of failure an exception is.

    Args:
        exc: One of this module, of the official Aerospike client, or of Python.

    Returns:
        "not_found", "too_big", "timeout", "connection", "forbidden_ttl", "busy", "key_mismatch" or
        "unknown".
    """
    if isinstance(exc, AerospikeTTLConfigError):
        return "forbidden_ttl"
    if isinstance(exc, AerospikeConnectorError):
        by_result = _KIND_OF_RESULT.get(exc.server_result)
        return _KIND_OF_CODE.get(exc.code) or by_result or "unknown"
    result = getattr(exc, "code", None)
    names = [kind.__name__ for kind in type(exc).__mro__]
    for name in names:
        if name == "ClientError":
            break  # the base of many: the code is more exact
        if name in _KIND_OF_CLASS:
            return _KIND_OF_CLASS[name]
    by_result = _KIND_OF_RESULT.get(result) if isinstance(result, int) else None
    return by_result or ("connection" if "ClientError" in names else "unknown")


def map_aerospike_error(op_name: str, exc: BaseException) -> AerospikeConnectorError:
    """Makes the exception of this module that says what `exc` says.

    Args:
        op_name: What was attempted; it begins the message.
        exc: What happened.

    Returns:
        The exception, not raised. One of this module keeps its class, code and result.
    """
    if isinstance(exc, AerospikeConnectorError):
        return type(exc)(
            f"{op_name}: {exc}",
            code=exc.code,
            server_result=exc.server_result,
            in_doubt=exc.in_doubt,
        )
    result = getattr(exc, "code", None)
    message = getattr(exc, "msg", None) or str(exc) or type(exc).__name__
    kind = classify(exc)
    error = _ERROR_OF_KIND[kind]
    remedy = "; set nsup-period of the namespace above 0, or default_ttl_seconds to -1"
    return error(
        f"{op_name}: code {result}: {message}" + (remedy if kind == "forbidden_ttl" else ""),
        server_result=result if isinstance(result, int) and result > 0 else 0,
        in_doubt=bool(getattr(exc, "in_doubt", False)),
    )
