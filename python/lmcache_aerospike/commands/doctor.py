# SPDX-License-Identifier: Apache-2.0
"""``doctor``: is everything as it must be, and if not, what has to be changed where."""

from __future__ import annotations

import logging
import time
from collections.abc import Iterable
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.text import Text

from lmcache_aerospike import _native
from lmcache_aerospike.commands._doctor import cluster, trial
from lmcache_aerospike.commands._doctor.findings import FAIL, OK, WARN, Finding
from lmcache_aerospike.commands._doctor.reach import check_hosts
from lmcache_aerospike.commands._remedies import remedy_of
from lmcache_aerospike.commands.session import MISS, UNAVAILABLE, Session, stop
from lmcache_aerospike.errors import AerospikeConnectionError, AerospikeConnectorError
from lmcache_aerospike.store import Store

if TYPE_CHECKING:
    from lmcache_aerospike.config import Config

_STYLES = {OK: "green", WARN: "yellow", FAIL: "bold red"}


class _Report:
    """Shows findings as they come, or keeps them for the JSON document."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self.findings: list[Finding] = []

    def add(self, findings: Iterable[Finding]) -> bool:
        """Takes findings; whether none of these has failed."""
        is_good = True
        for finding in findings:
            self.findings.append(finding)
            is_good = is_good and finding.status != FAIL
            if not self._session.json:
                self._show(finding)
        return is_good

    def _show(self, finding: Finding) -> None:
        line = Text(f"{finding.status:<5}", _STYLES[finding.status])
        line.append(f"{finding.name}: {finding.detail}", "default")
        self._session.output.print(line, soft_wrap=True)
        if finding.remedy:
            self._session.output.print(Text(f"      -> {finding.remedy}"), soft_wrap=True)

    def count(self, status: str) -> int:
        """How many findings have this status."""
        return sum(finding.status == status for finding in self.findings)


def doctor(
    session: Session,
    write: Annotated[
        bool, typer.Option(help="Store, load and delete objects of three sizes.")
    ] = True,
) -> None:
    """Check hosts, nodes, namespace, limits, expiry, space, clocks and a round trip.

    Each line says ok, warn or fail, and behind an arrow what to change where. Exit code 1 if a
    check failed, 3 if no node can be reached.
    """
    config = session.resolved()
    # The findings say what the log would.
    logging.getLogger("lmcache_aerospike").addHandler(logging.NullHandler())
    report = _Report(session)
    is_reachable = _run(report, config, session.given(), write)
    failed, warned = report.count(FAIL), report.count(WARN)
    if session.json:
        session.write_json(
            {
                "ok": failed == 0,
                "reachable": is_reachable,
                "checks": [asdict(finding) for finding in report.findings],
            }
        )
    else:
        session.say(f"{len(report.findings)} checks: {failed} failed, {warned} warnings")
    if not is_reachable:
        stop(UNAVAILABLE)
    if failed:
        stop(MISS)


def _run(report: _Report, config: Config, given: dict[str, Any], write: bool) -> bool:
    """All checks that can be made; whether a node could be reached."""
    values = config.values
    timeout = values["connect_timeout_ms"] / 1000
    report.add(trial.check_serde(values["serde"]))
    if not report.add(check_hosts(values["hosts"], timeout)):
        return False
    is_sound, is_reachable = _check_cluster(report, config)
    if not is_sound:
        return is_reachable
    try:
        store = Store(**given)
    except AerospikeConnectorError as error:
        report.add([Finding("open", FAIL, str(error), remedy_of(error))])
        return True
    with store:
        report.add(trial.check_segments(store.limits()))
        if write:
            report.add(trial.check_round_trip(store, values["namespace"], values))
    return True


def _check_cluster(report: _Report, config: Config) -> tuple[bool, bool]:
    """What the nodes say: whether a store can be opened, and whether one was reached."""
    values = config.values
    namespace, set_name = values["namespace"], values["set_name"]
    before = time.time()
    try:
        reports = _native.ask_cluster(config.native(), cluster.commands(namespace, set_name))
    except AerospikeConnectorError as error:
        is_reachable = not isinstance(error, AerospikeConnectionError)
        name = "cluster" if isinstance(error, AerospikeConnectionError) else "login"
        report.add([Finding(name, FAIL, str(error), remedy_of(error))])
        return False, is_reachable
    after = time.time()
    nodes, findings = cluster.read_reports(reports, namespace, set_name)
    report.add(findings)
    if not nodes:
        return False, False
    if values["username"]:
        report.add([Finding("login", OK, f"as {values['username']}")])
    report.add(cluster.check_agreement(nodes))
    if not report.add(cluster.check_namespace(nodes, namespace)):
        return False, True
    report.add(cluster.check_record_limit(nodes, namespace))
    can_store = report.add(cluster.check_expiry(nodes, namespace, values))
    report.add(cluster.check_space(nodes, namespace))
    report.add(cluster.check_replication(nodes, namespace))
    report.add(cluster.check_clock(nodes, before, after))
    return can_store, True
