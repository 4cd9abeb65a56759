# SPDX-License-Identifier: Apache-2.0
"""What kind of failure an exception is, and what it becomes."""

from __future__ import annotations

import builtins
from pathlib import Path

import pytest

from lmcache_aerospike import errors
from lmcache_aerospike.errors import classify, map_aerospike_error

ROOT = Path(__file__).resolve().parents[2]

MATRIX = [
    ("RecordNotFound", 2, "not_found", errors.NotFoundError),
    ("RecordTooBig", 13, "too_big", errors.AerospikeRecordTooBigError),
    ("TimeoutError", 9, "timeout", errors.AerospikeTimeoutError),
    ("ConnectionError", -10, "connection", errors.AerospikeConnectionError),
    ("ClientError", -1, "connection", errors.AerospikeConnectionError),
    ("AerospikeError", 22, "forbidden_ttl", errors.AerospikeTTLConfigError),
    ("ForbiddenError", 22, "forbidden_ttl", errors.AerospikeTTLConfigError),
    ("DeviceOverload", 18, "busy", errors.AerospikeBusyError),
    ("QueueFull", 18, "busy", errors.AerospikeBusyError),
    ("AerospikeError", 14, "busy", errors.AerospikeBusyError),
    ("RecordKeyMismatch", 19, "key_mismatch", errors.AerospikeInternalError),
    ("AerospikeError", 100, "unknown", errors.AerospikeUnknownError),
    ("ParamError", -2, "unknown", errors.AerospikeUnknownError),
]


def fake(name: str, code: int) -> Exception:
    """An exception as the official client raises it, which need not be installed."""
    base = type("AerospikeError", (Exception,), {})
    kind = base if name == "AerospikeError" else type(name, (base,), {})
    made = kind(f"text of {name}")
    made.code, made.msg, made.in_doubt = code, f"message of {name}", name == "TimeoutError"
    return made


@pytest.mark.parametrize(("name", "code", "kind", "error"), MATRIX)
def test_the_matrix(
    name: str, code: int, kind: str, error: type[errors.AerospikeConnectorError]
) -> None:
    exc = fake(name, code)
    assert classify(exc) == kind
    mapped = map_aerospike_error("put-segment", exc)
    assert type(mapped) is error
    for part in ("put-segment", str(code), f"message of {name}"):
        assert part in str(mapped)
    assert mapped.server_result == max(code, 0)
    assert mapped.in_doubt == (name == "TimeoutError")
    assert ("nsup-period" in str(mapped)) == (kind == "forbidden_ttl")


@pytest.mark.parametrize(("name", "code", "kind", "error"), MATRIX)
def test_the_matrix_with_the_official_classes(
    name: str, code: int, kind: str, error: type[errors.AerospikeConnectorError]
) -> None:
    ax = pytest.importorskip("aerospike.exception")
    real = getattr(ax, name, None)
    if real is None:
        pytest.skip(f"this client has no {name}")
    made = type("Fake", (real,), {})(code, "the message")
    made.code, made.msg = code, "the message"
    assert classify(made) == kind
    assert type(map_aerospike_error("get", made)) is error


@pytest.mark.parametrize(
    ("exc", "kind"),
    [
        (errors.NotFoundError("x"), "not_found"),
        (errors.AerospikeRecordTooBigError("x"), "too_big"),
        (errors.AerospikeTimeoutError("x"), "timeout"),
        (errors.AerospikeConnectionError("x"), "connection"),
        (errors.AerospikeNamespaceProbeError("x"), "connection"),
        (errors.AerospikeTTLConfigError("x"), "forbidden_ttl"),
        (errors.AerospikeDeniedError("x", server_result=22), "forbidden_ttl"),
        (errors.AerospikeDeniedError("x", server_result=80), "unknown"),
        (errors.AerospikeBusyError("x"), "busy"),
        (errors.ProtocolError("x", server_result=19), "key_mismatch"),
        (errors.CorruptionError("x"), "unknown"),
        (errors.AerospikeConfigError("x"), "unknown"),
        (errors.ClosedError("x"), "unknown"),
        (builtins.TimeoutError("x"), "timeout"),
        (ConnectionResetError("x"), "connection"),
        (ValueError("x"), "unknown"),
    ],
)
def test_our_own_and_those_of_python(exc: Exception, kind: str) -> None:
    assert classify(exc) == kind
    mapped = map_aerospike_error("get", exc)
    assert str(mapped).startswith("get: ")
    assert "x" in str(mapped)


def test_one_of_ours_keeps_what_it_carries() -> None:
    exc = errors.AerospikeTimeoutError("late", code="timeout", server_result=9, in_doubt=True)
    mapped = map_aerospike_error("put", exc)
    assert type(mapped) is errors.AerospikeTimeoutError
    assert (mapped.code, mapped.server_result, mapped.in_doubt) == ("timeout", 9, True)
    assert str(mapped) == "put: late"


def test_every_error_is_in_the_reference() -> None:
    page = (ROOT / "docs/reference/errors.md").read_text()
    for name, value in vars(errors).items():
        if isinstance(value, type) and issubclass(value, errors.AerospikeConnectorError):
            assert f"`{name}`" in page, name
