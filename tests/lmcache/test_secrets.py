# SPDX-License-Identifier: Apache-2.0
"""Where a password goes: to the server, and into no log, message or configuration dump."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest
from lmcache_driver import adapter_spec, create_adapter

from lmcache_aerospike import _native
from lmcache_aerospike.errors import AerospikeDeniedError

USER = "kv-writer"
PASSWORD = "correct-horse-battery-staple"
WRONG = "another-horse-entirely"
MADE = "Created native plugin L2 adapter"  # LMCache's line with all adapter_params


@pytest.fixture(scope="module")
def guarded():
    with _native.DevServer(users=[{"name": USER, "password": PASSWORD}]) as server:
        yield server


def run_bench(hosts, params, variables):
    spec = adapter_spec(hosts, "secrets", **params)
    command = ["bench", "l2", "--l2-adapter", json.dumps(spec), "--num-keys", "2"]
    environment = {k: v for k, v in os.environ.items() if not k.startswith("LMCACHE_")}
    return subprocess.run(
        [sys.executable, "-m", "lmcache.cli.main", *command, "--data-size-kb", "1200"],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
        env={**environment, "LMCACHE_LOG_LEVEL": "DEBUG", **variables},
    )


def test_a_password_in_the_environment_is_used_and_not_shown(guarded):
    done = run_bench(
        guarded.hosts,
        {},
        {"LMCACHE_AEROSPIKE_USERNAME": USER, "LMCACHE_AEROSPIKE_PASSWORD": PASSWORD},
    )
    assert done.returncode == 0, done.stderr
    assert "success_keys=2/2" in done.stdout
    assert MADE in done.stderr
    assert PASSWORD not in done.stdout + done.stderr


def test_a_password_in_a_file_is_used_and_not_shown(guarded, tmp_path):
    path = tmp_path / "password"
    path.write_text(PASSWORD + "\n")
    path.chmod(0o600)
    done = run_bench(guarded.hosts, {"username": USER, "password_file": str(path)}, {})
    assert done.returncode == 0, done.stderr
    assert "success_keys=2/2" in done.stdout
    assert MADE in done.stderr
    assert str(path) in done.stderr  # the file is named, its content is not
    assert PASSWORD not in done.stdout + done.stderr


def test_a_wrong_password_ends_the_command_and_is_not_shown(guarded):
    done = run_bench(
        guarded.hosts,
        {"username": USER},
        {"LMCACHE_AEROSPIKE_PASSWORD": WRONG},
    )
    assert done.returncode == 1
    assert "Failed to create adapter" in done.stderr
    assert WRONG not in done.stdout + done.stderr
    assert PASSWORD not in done.stdout + done.stderr


def test_a_refused_login_is_an_error_of_its_own_kind(guarded, monkeypatch, caplog):
    monkeypatch.setenv("LMCACHE_AEROSPIKE_PASSWORD", WRONG)
    with pytest.raises(AerospikeDeniedError) as caught:
        create_adapter(adapter_spec(guarded.hosts, "secrets", username=USER))
    shown = f"{caught.value!r} {caught.value} {vars(caught.value)} {caplog.text}"
    assert WRONG not in shown
    assert caught.value.code == "denied"


def test_a_login_is_needed_where_there_are_users(guarded):
    with pytest.raises(AerospikeDeniedError):
        create_adapter(adapter_spec(guarded.hosts, "secrets"))
