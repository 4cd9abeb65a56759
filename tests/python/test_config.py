# SPDX-License-Identifier: Apache-2.0
"""The table of options: what is accepted, how a refusal reads, where values come from."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from lmcache_aerospike import AerospikeNativeConnector, Store, _native
from lmcache_aerospike.config import BY_NAME, OPTIONS, AerospikeConfig, Config
from lmcache_aerospike.errors import AerospikeConfigError, InvalidArgumentError

ROOT = Path(__file__).resolve().parents[2]
SECRET = "correct horse battery"


def resolve(environment: dict[str, str] | None = None, **given: object) -> Config:
    given.setdefault("hosts", "a:3000")
    return Config.resolve(given, environment or {})


def refusal(environment: dict[str, str] | None = None, **given: object) -> str:
    with pytest.raises(AerospikeConfigError) as caught:
        resolve(environment, **given)
    return str(caught.value)


def test_defaults_are_those_of_the_engine() -> None:
    header = (ROOT / "include/aerokv/store.h").read_text()
    struct = header.split("struct StoreOptions {", 1)[1].split("\n};", 1)[0]
    native = {"ns": "namespace", "commit_master_only": ""}
    checked = 0
    for name, value in re.findall(r"^  [\w:]+ (\w+)(?: = |\{)([^;}]+)\}?;", struct, re.MULTILINE):
        option = BY_NAME.get(native.get(name, name)) or BY_NAME.get(f"{name}_ms")
        if option is None:
            continue
        text = value.strip('"').replace("ULL", "").rpartition("::")[2]
        expected = eval(text) if "<<" in text else text
        assert str(option.default).lower() == str(expected), name
        checked += 1
    assert checked > 20


def test_every_default_is_a_good_value() -> None:
    given = {o.name: o.default for o in OPTIONS if o.default not in ("", None)}
    values = resolve(**given).values
    assert {name: values[name] for name in given} == given


def test_every_native_option_reaches_the_engine(server: _native.DevServer) -> None:
    other = {
        "hosts": server.hosts,
        "namespace": "lmcache",
        "set_name": "other",
        "cluster_name": "lmcache-local",
        "username": "",
        "password": "",
        "replica": "prefer_rack",
        "rack_id": 2,
        "commit_level": "master",
        "verify": "full",
        "default_ttl_seconds": -1,
        "use_services_alternate": False,
        "serde": {"type": "checksum"},
        "auth_mode": "internal",
        # Those of TLS need a server that speaks it.
        **{o.name: o.default for o in OPTIONS if o.name.startswith("tls_")},
    }
    for option in OPTIONS:
        if option.native and option.name not in other:
            other[option.name] = (
                not option.default if option.kind == "true or false" else option.high // 2
            )
    other["num_io_threads"] = 3
    with Store(**other) as store:
        assert store.put("k", b"v") == 1
        assert store.get("k") == b"v"


def test_the_engine_refuses_what_the_table_does_not_know(server: _native.DevServer) -> None:
    with pytest.raises(InvalidArgumentError, match="option 'colour': unknown"):
        _native.Store({"hosts": server.hosts, "colour": "red"})
    with pytest.raises(InvalidArgumentError, match=r"num_io_threads.*str, expected a whole number"):
        _native.Store({"hosts": server.hosts, "num_io_threads": "2"})


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ("a", "a:3000"),
        (" a:1 , b ", "a:1,b:3000"),
        ("[::1]:3000,[fe80::1]", "[::1]:3000,[fe80::1]:3000"),
        (["a:1", ["b", 2], ("::1", 3)], "a:1,b:2,[::1]:3"),
    ],
)
def test_hosts(given: object, expected: str) -> None:
    assert resolve(hosts=given).values["hosts"] == expected


@pytest.mark.parametrize(
    "bad", ["a:0", "a:65536", "a:b", "a b", ",", "a,,b", 5, [], [("a", 0)], "::1"]
)
def test_bad_hosts(bad: object) -> None:
    assert "option 'hosts': " in refusal(hosts=bad)


def test_hosts_are_needed() -> None:
    assert "option 'hosts': not given" in refusal(hosts=None)
    with pytest.raises(AerospikeConfigError, match="hosts"):
        AerospikeNativeConnector()


@pytest.mark.parametrize(
    ("name", "bad"),
    [
        ("namespace", "n" * 32),
        ("namespace", 5),
        ("set_name", "s" * 64),
        ("set_name", "a\nb"),
        ("target_segment_bytes", 1),
        ("target_segment_bytes", 1 << 30),
        ("max_bytes_in_flight", "many"),
        ("default_ttl_seconds", -3),
        ("default_ttl_seconds", 315_360_001),
        ("read_timeout_ms", 0),
        ("read_timeout_ms", 1.5),
        ("read_timeout_ms", True),
        ("num_io_threads", 0),
        ("num_io_threads", 65),
        ("send_key", "perhaps"),
        ("send_key", 2),
        ("send_key", None.__class__),
        ("replica", "nearest"),
        ("commit_level", ""),
        ("verify", 1),
        ("rack_id", -2),
        ("password", 12345678),
    ],
)
def test_bad_value_names_option_seen_and_expected(name: str, bad: object) -> None:
    text = refusal(**{name: bad})
    assert text.startswith(f"option '{name}': ")
    assert ", expected " in text
    assert BY_NAME[name].expected in text


def test_unknown_option_names_the_nearest_one() -> None:
    assert "option 'num_io_thread': unknown, did you mean 'num_io_threads'?" in refusal(
        num_io_thread=1
    )
    assert "option 'zzz': unknown" in refusal(zzz=1)


@pytest.mark.parametrize("text", ["true", "TRUE", "1", "yes", "On", True, 1])
def test_true(text: object) -> None:
    assert resolve(enable_crc32=text).values["enable_crc32"] is True


@pytest.mark.parametrize("text", ["false", "False", "0", "no", "OFF", False, 0])
def test_false(text: object) -> None:
    assert resolve(send_key=text).values["send_key"] is False


def test_texts_are_read_as_numbers() -> None:
    values = resolve(
        default_ttl_seconds="-1", max_bytes_in_flight="2G", read_timeout_ms="7", replica="ANY"
    ).values
    assert values["default_ttl_seconds"] == -1
    assert values["max_bytes_in_flight"] == 2 << 30
    assert values["read_timeout_ms"] == 7
    assert values["replica"] == "any"


def test_aliases() -> None:
    values = resolve(set="s", num_workers=8, max_record_bytes=1 << 20).values
    assert values["set_name"] == "s"
    assert values["num_io_threads"] == 8
    assert values["max_segment_bytes"] == 1 << 20
    assert "two names" in refusal(set="a", set_name="b")


def test_none_is_not_given() -> None:
    config = resolve(namespace=None, verify=None)
    assert config.values["namespace"] == "lmcache"
    assert config.sources["verify"] == "default"


def tls(**options: object) -> dict[str, object]:
    return {"tls_enable": True, "tls_name": "db.example", "tls_ca_file": "/ca.pem", **options}


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"tls_name": "db.example"}, ("'tls_name'", "'tls_enable'")),
        ({"tls_ca_file": "/ca.pem"}, ("'tls_ca_file'", "'tls_enable'")),
        ({"tls_min_version": "1.3"}, ("'tls_min_version'", "'tls_enable'")),
        ({"hosts": "h:db.example:4333"}, ("'hosts'", "'tls_enable'")),
        ({"auth_mode": "external", "username": "u"}, ("'auth_mode'", "external", "'tls_enable'")),
        ({"auth_mode": "pki"}, ("'auth_mode'", "pki", "'tls_enable'")),
        (tls(tls_ca_file=None), ("'tls_ca_file'", "'tls_ca_path'")),
        (tls(tls_name=None), ("'tls_name'", "certificate of h")),
        (tls(tls_cert_file="/c.pem"), ("'tls_cert_file'", "'tls_key_file'")),
        (tls(tls_key_file="/c.key"), ("'tls_cert_file'", "'tls_key_file'")),
        (tls(auth_mode="pki"), ("'auth_mode'", "'tls_cert_file'")),
        (
            tls(auth_mode="pki", tls_cert_file="/c", tls_key_file="/k", username="u"),
            ("'auth_mode'", "'username'"),
        ),
        (tls(auth_mode="external"), ("'auth_mode'", "'username'")),
        (tls(tls_min_version="1.1"), ("'tls_min_version'", "1.2, 1.3")),
        (tls(auth_mode="ldap"), ("'auth_mode'", "internal, external, pki")),
        (
            tls(tls_key_password="p", tls_key_password_file="/absent"),
            ("'tls_key_password_file'", "tls_key_password"),
        ),
        (tls(tls_key_password_file="/absent"), ("'tls_key_password_file'", "/absent")),
    ],
)
def test_options_of_tls_that_do_not_fit_are_named(
    options: dict[str, object], words: tuple[str, ...]
) -> None:
    text = refusal(**{"hosts": "h:4333", **options})
    for word in words:
        assert word in text


def test_hosts_take_tls_names() -> None:
    values = resolve(**tls(hosts="a:db.example:4333, [::1]:x:1", tls_name=None)).values
    assert values["hosts"] == "a:db.example:4333,[::1]:x:1"
    again = resolve(**tls(hosts=[("a", 4333, "db.example"), ("::1", 1, "x")])).values
    assert again["hosts"] == values["hosts"]
    for bad in ("a:b", "a::1", "a:.b:1", "a:b:c:1", "a:b:", "fe80::1:2:3"):
        assert "option 'hosts'" in refusal(**tls(hosts=bad))


def test_the_password_of_a_key_is_hidden_and_may_come_from_a_file(tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.write_text("open sesame\n")
    secret.chmod(0o600)
    environment = {"LMCACHE_AEROSPIKE_TLS_KEY_PASSWORD": "open barley"}
    config = Config.resolve({"hosts": "h:1", **tls()}, environment)
    assert config.values["tls_key_password"] == "open barley"
    assert "barley" not in repr(config)
    assert "barley" not in str(config.shown())
    given = {"hosts": "h:1", **tls(tls_key_password_file=str(secret))}
    config = Config.resolve(given, environment)
    assert config.values["tls_key_password"] == ""  # the engine reads the file
    assert config.native()["tls_key_password_file"] == str(secret)
    # In the environment for another program: no reason to refuse a configuration without TLS.
    assert Config.resolve({"hosts": "h:1"}, environment).values["tls_enable"] is False


def test_tls_options_reach_a_connector(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("LMCACHE_AEROSPIKE_TLS_KEY_PASSWORD", raising=False)
    prefix = "remote_storage_plugin.aerospike."
    extra = {prefix + name: value for name, value in tls(hosts="a:b.c:4333").items()}
    config = AerospikeConfig.from_extra_config(extra, "aerospike")
    assert config.hosts == (("a", 4333, "b.c"),)
    native = config.options().native()
    assert native["hosts"] == "a:b.c:4333"
    assert native["tls_enable"] is True
    assert native["tls_ca_file"] == "/ca.pem"


def test_rack_is_needed_for_prefer_rack() -> None:
    assert "option 'rack_id'" in refusal(replica="prefer_rack")
    assert resolve(replica="prefer_rack", rack_id=3).values["rack_id"] == 3


ENVIRONMENT = {
    "LMCACHE_AEROSPIKE_HOSTS": "env:1",
    "LMCACHE_AEROSPIKE_NAMESPACE": "env_ns",
    "LMCACHE_AEROSPIKE_SET": "env_set",
    "LMCACHE_AEROSPIKE_USERNAME": "env_user",
    "LMCACHE_AEROSPIKE_PASSWORD": SECRET,
}


def test_environment_fills_in_what_is_not_given() -> None:
    config = Config.resolve({"namespace": "mine", "set_name": ""}, ENVIRONMENT)
    assert config.values["hosts"] == "env:1"
    assert config.values["namespace"] == "mine"
    assert config.values["set_name"] == "env_set"
    assert config.native()["password"] == SECRET
    assert config.sources["namespace"] == "given"
    assert config.sources["hosts"] == "LMCACHE_AEROSPIKE_HOSTS"


def test_environment_is_checked_too() -> None:
    assert "option 'namespace': " in refusal({"LMCACHE_AEROSPIKE_NAMESPACE": "n" * 40})


def test_environment_reaches_the_connector(
    server: _native.DevServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LMCACHE_AEROSPIKE_HOSTS", server.hosts)
    monkeypatch.setenv("LMCACHE_AEROSPIKE_SET", "from_environment")
    connector = AerospikeNativeConnector()
    assert "set_name='from_environment'" in repr(connector)
    connector.close()


def test_password_needs_a_username() -> None:
    text = refusal(password=SECRET)
    assert "option 'username': not given" in text
    assert SECRET not in text


def secret_file(folder: Path, content: bytes, mode: int = 0o600) -> str:
    path = folder / "password"
    path.write_bytes(content)
    path.chmod(mode)
    return str(path)


@pytest.mark.parametrize("end", [b"", b"\n", b"\r\n"])
def test_password_file(tmp_path: Path, end: bytes, caplog: pytest.LogCaptureFixture) -> None:
    path = secret_file(tmp_path, SECRET.encode() + end)
    config = resolve({"LMCACHE_AEROSPIKE_PASSWORD": "other"}, username="u", password_file=path)
    assert config.native()["password"] == SECRET
    assert config.sources["password"] == f"file {path}"
    assert not caplog.records


def test_password_file_that_others_can_read_is_warned_about(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = secret_file(tmp_path, SECRET.encode(), 0o644)
    assert resolve(username="u", password_file=path).native()["password"] == SECRET
    assert "other users have access" in caplog.text
    assert SECRET not in caplog.text


def test_bad_password_files(tmp_path: Path) -> None:
    assert "No such file" in refusal(username="u", password_file=str(tmp_path / "absent"))
    assert "not a regular file" in refusal(username="u", password_file=str(tmp_path))
    assert "password_file" in refusal(username="u", password_file=secret_file(tmp_path, b""))
    long = secret_file(tmp_path, b"x" * 5000)
    assert "too long" in refusal(username="u", password_file=long)
    assert "xxxx" not in refusal(username="u", password_file=long)
    good = secret_file(tmp_path, b"x")
    assert "beside password" in refusal(username="u", password="p", password_file=good)


def test_no_secret_is_ever_shown() -> None:
    config = resolve(username="u", password=SECRET)
    assert SECRET not in repr(config)
    assert SECRET not in json.dumps(config.shown())
    assert SECRET not in refusal(username="u", password=SECRET + "\n")
    assert SECRET not in refusal(username="u", password=SECRET, num_io_threads=0)


def test_login_errors_and_repr_hold_no_secret(server: _native.DevServer) -> None:
    with pytest.raises(Exception, match="51") as caught:
        Store(server.hosts, username="u", password=SECRET)
    assert SECRET not in str(caught.value)


def test_login_works() -> None:
    with (
        _native.DevServer(users=[{"name": "kv", "password": SECRET}]) as server,
        Store(server.hosts, username="kv", password=SECRET) as store,
    ):
        assert store.put("a", b"1") == 1
        assert SECRET not in repr(store)
        assert "kv'" not in repr(store)


def test_the_page_is_current() -> None:
    from lmcache_aerospike.commands.config import markdown_table

    page = (ROOT / "docs/reference/config.md").read_text()
    assert markdown_table() in page, "run tools/config_page.py"
