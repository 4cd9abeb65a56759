# SPDX-License-Identifier: Apache-2.0
"""What a person has to change for an error to go away."""

from __future__ import annotations

from lmcache_aerospike import errors

_START_ONE = "or start a server for development with: lmcache-aerospike serve"

_GRANT = (
    "the user lacks a right: grant the role read-write on the namespace, for example: "
    "asadm -e 'enable; manage acl grant user NAME roles read-write.NAMESPACE'"
)
_FULL = (
    "the namespace takes no more: give it more room (aerospike.conf, its section, "
    "storage-engine), a shorter default_ttl_seconds, or remove objects: lmcache-aerospike rm"
)

# By what the server or the system said, since one class has several causes; the first that fits.
_BY_TEXT: tuple[tuple[str, str], ...] = (
    ("not authenticated", "the server has users: give --username and --password-file"),
    ("(invalid credential)", "check --username and --password-file"),
    ("(unknown user)", "check --username; the user must exist on the server"),
    ("(invalid password)", "check --username and --password-file"),
    ("(expired password)", "give the user a new password on the server"),
    ("(not whitelisted)", "the server does not take this user from this address"),
    ("expired since", "the certificate has to be renewed"),
    ("unknown CA", "check tls_ca_file: it must hold the CA of the cluster"),
    ("self-signed", "check tls_ca_file: it must hold the CA of the cluster"),
    ("wrong name: made out to", "check tls_name: it is the tls-name of the servers"),
    ("certificate required", "the server wants a certificate: give tls_cert_file and tls_key_file"),
    ("speak TLS?", "check --hosts: with tls_enable it names the TLS ports"),
    ("(security not", "the server has no users: leave --username and --password-file out"),
    ("(role violation)", _GRANT),
    ("out of space", _FULL),
    ("takes no more writes", _FULL),
    ("Name or service not known", f"check the spelling of --hosts, and DNS, {_START_ONE}"),
    ("decode frame", "that port is no Aerospike service port: check --hosts (3000 by default)"),
    ("cluster name", "check the option cluster_name, or --hosts"),
)
_BY_CLASS: tuple[tuple[type[Exception], str], ...] = (
    (
        errors.AerospikeNamespaceProbeError,
        "check --namespace; it must stand in aerospike.conf of every node before that starts",
    ),
    (errors.AerospikeTTLConfigError, ""),  # says it itself
    (errors.AerospikeConnectionError, f"check --hosts, {_START_ONE}"),
    (
        errors.AerospikeBusyError,
        "the server cannot keep up: fewer writers, faster devices or more nodes",
    ),
    (
        errors.AerospikeTimeoutError,
        "see what the nodes say: lmcache-aerospike doctor",
    ),
)


def remedy_of(error: Exception) -> str:
    """What to change, "" if the error says it itself or nothing is known."""
    text = str(error)
    if isinstance(error, errors.AerospikeNamespaceProbeError):
        return _BY_CLASS[0][1]
    for words, remedy in _BY_TEXT:
        if words in text:
            return remedy
    return next((remedy for kind, remedy in _BY_CLASS if isinstance(error, kind)), "")


def explained(error: Exception) -> str:
    """The error and its remedy in one line."""
    remedy = remedy_of(error)
    return f"{error}; {remedy}" if remedy else str(error)
