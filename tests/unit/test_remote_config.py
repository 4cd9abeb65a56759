# SPDX-License-Identifier: Apache-2.0
"""The options of a remote connector, as LMCache's extra_config and URLs give them."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from lmcache_aerospike.config import AerospikeConfig
from lmcache_aerospike.errors import AerospikeConfigError

ROOT = Path(__file__).resolve().parents[2]
SECRET = "correct horse battery"
PREFIX = "remote_storage_plugin.aerospike."


@pytest.fixture(autouse=True)
def _no_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("HOSTS", "NAMESPACE", "SET", "USERNAME", "PASSWORD"):
        monkeypatch.delenv(f"LMCACHE_AEROSPIKE_{name}", raising=False)


def read(plugin_name: str = "aerospike", url: str = "", **given: Any) -> AerospikeConfig:
    prefix = f"remote_storage_plugin.{plugin_name}."
    return AerospikeConfig.from_extra_config(
        {f"{prefix}{name}": value for name, value in given.items()}, plugin_name, url
    )


def refusal(**given: Any) -> str:
    with pytest.raises(AerospikeConfigError) as caught:
        read(**given)
    return str(caught.value)


def test_defaults() -> None:
    cfg = read(hosts="h1:3000")
    assert cfg == AerospikeConfig(hosts=(("h1", 3000),))
    assert cfg.namespace == "lmcache"
    assert cfg.set_name == "kv_chunks"
    assert cfg.target_segment_bytes == 4 * 1024 * 1024
    assert cfg.max_segment_bytes is None
    assert cfg.min_segment_bytes == 65536
    assert cfg.single_record_threshold_bytes is None
    assert cfg.default_ttl_seconds == 86400
    assert (cfg.read_timeout_ms, cfg.write_timeout_ms) == (1000, 2000)
    assert (cfg.batch_max_in_flight, cfg.executor_threads) == (64, 16)
    assert (cfg.enable_list, cfg.enable_crc32) == (False, False)
    assert (cfg.commit_level, cfg.replica) == ("all", "sequence")
    assert (cfg.username, cfg.password, cfg.tls_name) == ("", "", "")


def test_every_field() -> None:
    cfg = read(
        hosts="h1:3000, h2 ,[::1]:4000",
        namespace="ns",
        set_name="set",
        target_segment_bytes="2M",
        max_segment_bytes=1 << 20,
        min_segment_bytes=1024,
        single_record_threshold_bytes=1 << 19,
        default_ttl_seconds="-1",
        read_timeout_ms=7,
        write_timeout_ms="8",
        batch_max_in_flight=9,
        executor_threads=10,
        enable_list="TRUE",
        enable_crc32="1",
        commit_level="master",
        replica="any",
        send_key="false",
        username="u",
        password=SECRET,
    )
    assert cfg.hosts == (("h1", 3000), ("h2", 3000), ("::1", 4000))
    assert (cfg.namespace, cfg.set_name) == ("ns", "set")
    assert cfg.target_segment_bytes == 2 << 20
    assert cfg.max_segment_bytes == 1 << 20
    assert (cfg.min_segment_bytes, cfg.single_record_threshold_bytes) == (1024, 1 << 19)
    assert (cfg.default_ttl_seconds, cfg.read_timeout_ms, cfg.write_timeout_ms) == (-1, 7, 8)
    assert (cfg.batch_max_in_flight, cfg.executor_threads) == (9, 10)
    assert (cfg.enable_list, cfg.enable_crc32, cfg.send_key) == (True, True, False)
    assert (cfg.commit_level, cfg.replica) == ("master", "any")
    assert (cfg.username, cfg.password) == ("u", SECRET)
    assert SECRET not in repr(cfg)


@pytest.mark.parametrize("extra", [None, {}, {"save_chunk_meta": True}])
def test_hosts_are_needed(extra: Any) -> None:
    with pytest.raises(AerospikeConfigError, match=re.escape(f"{PREFIX}hosts")):
        AerospikeConfig.from_extra_config(extra, "aerospike")


@pytest.mark.parametrize(
    ("name", "bad"),
    [
        ("commit_level", "bogus"),
        ("replica", "bogus"),
        ("read_timeout_ms", "soon"),
        ("read_timeout_ms", 0),
        ("default_ttl_seconds", -3),
        ("target_segment_bytes", 1),
        ("enable_list", "perhaps"),
        ("executor_threads", 0),
        ("batch_max_in_flight", -1),
        ("hosts", "h1:99999"),
        ("tls_name", "db.example"),
    ],
)
def test_a_bad_value_names_its_full_key(name: str, bad: Any) -> None:
    assert f"option '{PREFIX}{name}'" in refusal(**{"hosts": "h1", name: bad})


def test_keys_of_instances() -> None:
    extra = {
        "remote_storage_plugin.aerospike.hosts": "plain:1",
        "remote_storage_plugin.aerospike.primary.hosts": "one:1",
        "remote_storage_plugin.aerospike.primary.set_name": "first",
        "remote_storage_plugin.aerospike.dr.hosts": "two:2",
        "remote_storage_plugin.aerospike.primary.module_path": "lmcache_aerospike.adapter",
        "remote_storage_plugin.aerospike.primary.class_name": "AerospikeConnectorAdapter",
        "remote_storage_plugin.fs.base_path": "/tmp",
    }
    of = {
        name: AerospikeConfig.from_extra_config(extra, name)
        for name in ("aerospike", "aerospike.primary", "aerospike.dr")
    }
    assert of["aerospike"].hosts == (("plain", 1),)
    assert of["aerospike.primary"].hosts == (("one", 1),)
    assert (of["aerospike.primary"].set_name, of["aerospike.dr"].set_name) == ("first", "kv_chunks")
    assert of["aerospike.dr"].hosts == (("two", 2),)
    assert of["aerospike.primary"].key("hosts") == "remote_storage_plugin.aerospike.primary.hosts"
    with pytest.raises(
        AerospikeConfigError, match=r"remote_storage_plugin\.aerospike\.other\.hosts"
    ):
        AerospikeConfig.from_extra_config(extra, "aerospike.other")


def test_an_unknown_option_names_the_nearest_one() -> None:
    text = refusal(hosts="h1", read_timeout="5")
    assert f"option '{PREFIX}read_timeout': unknown" in text
    assert "did you mean 'read_timeout_ms'?" in text


def test_the_other_options_reach_the_engine() -> None:
    cfg = read(hosts="h1", verify="full", num_workers=3, rack_id=4, serde={"type": "fp8"})
    native = cfg.options().native()
    assert (native["verify"], native["num_io_threads"], native["rack_id"]) == ("full", 3, 4)
    assert native["serde"] == {"type": "fp8"}
    assert native["hosts"] == "h1:3000"
    assert native["target_segment_bytes"] == 0
    assert "enable_list" not in native


def test_a_config_can_be_made_by_hand() -> None:
    cfg = AerospikeConfig(hosts=(("::1", 3000), ("b", 4)), default_ttl_seconds=2)
    assert cfg.options().values["hosts"] == "[::1]:3000,b:4"
    assert cfg.options().values["default_ttl_seconds"] == 2
    with pytest.raises(AerospikeConfigError, match="replica"):
        AerospikeConfig(hosts=(("a", 1),), replica="bogus").options()
    with pytest.raises(AttributeError):
        cfg.namespace = "other"  # type: ignore[misc]


def test_the_password_file(tmp_path: Path) -> None:
    path = tmp_path / "password"
    path.write_text(SECRET)
    path.chmod(0o600)
    cfg = read(hosts="h1", username="u", password_file=str(path))
    assert cfg.password == SECRET
    assert cfg.options().native()["password"] == SECRET
    assert SECRET not in repr(cfg)


def test_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LMCACHE_AEROSPIKE_HOSTS", "env:1")
    monkeypatch.setenv("LMCACHE_AEROSPIKE_PASSWORD", SECRET)
    cfg = read(username="u")
    assert (cfg.hosts, cfg.password) == ((("env", 1),), SECRET)


# ---- URLs ----------------------------------------------------------------------------------------


def test_a_url_has_everything() -> None:
    url = "aerospike://me@h1:3001,[::1]:3002,h3/ns/some%2Fset?read_timeout_ms=7&verify=full"
    cfg = read(url=url)
    assert cfg.hosts == (("h1", 3001), ("::1", 3002), ("h3", 3000))
    assert (cfg.username, cfg.namespace, cfg.set_name) == ("me", "ns", "some/set")
    assert cfg.read_timeout_ms == 7
    assert cfg.options().values["verify"] == "full"


def test_a_url_goes_before_the_options_beside_it() -> None:
    cfg = read(url="aerospike://h1/ns?set=s", hosts="h2", set_name="t", write_timeout_ms=5)
    assert cfg.hosts == (("h1", 3000),)
    assert (cfg.namespace, cfg.set_name, cfg.write_timeout_ms) == ("ns", "s", 5)


def test_a_url_as_an_option() -> None:
    cfg = AerospikeConfig.from_extra_config({f"{PREFIX}url": "aerospike://h1:5/ns"}, "aerospike")
    assert (cfg.hosts, cfg.namespace) == ((("h1", 5),), "ns")


def test_a_url_may_leave_out_all_but_the_scheme(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LMCACHE_AEROSPIKE_HOSTS", "env:1")
    assert read(url="aerospike://").hosts == (("env", 1),)


@pytest.mark.parametrize(
    ("url", "text"),
    [
        (f"aerospike://u:{SECRET}@h1/ns", "a password"),
        (f"aerospike://h1/ns?password={SECRET}", "password"),
        ("aerospike://h1/a/b/c", "expected /namespace/set"),
        ("redis://h1", "expected aerospike://"),
        ("aerospike://h1/ns?namespace=other", "namespace given twice"),
        ("aerospike://h1?bogus=1", "bogus"),
        ("aerospike://h1?read_timeout_ms=0", "read_timeout_ms"),
        ("aerospike://h1:port", "hosts"),
        ("aerospike://h1#part", "expected aerospike://"),
    ],
)
def test_bad_urls(url: str, text: str) -> None:
    found = refusal(url=url)
    assert text in found
    assert PREFIX in found
    assert SECRET not in found
