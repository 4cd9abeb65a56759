# SPDX-License-Identifier: Apache-2.0
"""fsck: orphans, damage and expiry are found, and removed only if nobody has written since."""

from __future__ import annotations

import random
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import pytest
from command import Command, Result

from lmcache_aerospike import Store, _native
from lmcache_aerospike.config import Config

BIG = 3 * 983040 + 7  # four segments
NOW = ("--grace", "0")


@dataclass
class Place:
    """A set of its own, and what stores and removes records there."""

    set_name: str
    store: Store
    survey: _native.Survey

    def remove(self, key: str, *records: int) -> None:
        """Removes records of an object: 0 is the meta record, 1 the first segment."""
        details = self.store.inspect(key)
        assert details is not None
        chosen = [details["records"][i] for i in records]
        assert self.survey.remove(chosen) == [True] * len(chosen)  # type: ignore[arg-type]


@pytest.fixture
def place(cluster: str, request: pytest.FixtureRequest) -> Iterator[Place]:
    name = request.node.name[:60]
    options = Config.resolve({"hosts": cluster, "set_name": name}).native()
    with Store(cluster, set_name=name) as store:
        yield Place(name, store, _native.Survey(options))


@pytest.fixture
def fsck(command: Command, place: Place) -> Callable[..., Result]:
    return lambda *arguments: command("fsck", "--set", place.set_name, *arguments)


def found(result: Result) -> dict[str, int]:
    return {kind: count for kind, count in result.json["counts"].items() if count}


def test_nothing_wrong(fsck: Callable[..., Result], place: Place) -> None:
    empty = fsck("--json")
    assert (empty.code, found(empty), empty.json["objects"]) == (0, {}, 0)
    for i in range(20):
        place.store.put(f"a{i}", random.Random(i).randbytes(BIG if i % 2 else 100))
    result = fsck("--json", "--verify", "--repair")
    assert (result.code, found(result)) == (0, {})
    assert result.json["objects"] == result.json["verified"] == 20
    assert result.json["segment_records"] == 10 * 4
    assert result.json["bytes"] == 10 * BIG + 10 * 100
    assert (result.json["removed"], result.json["grace_seconds"]) == (0, None)
    text = fsck()
    assert text.code == 0
    assert "20 objects" in text.errors
    assert all(line.startswith("ok") for line in text.text.splitlines()[1:])


def test_orphans(fsck: Callable[..., Result], place: Place) -> None:
    for key in ("kept", "lost", "shorter"):
        place.store.put(key, bytes(BIG))
    place.remove("lost", 0)
    place.store.put("shorter", bytes(BIG // 2))  # removes its own old segments
    report = fsck("--json", *NOW)
    assert (report.code, found(report)) == (1, {"orphan": 4})
    assert len(report.json["findings"]) == 4
    text = fsck("--examples", "2", *NOW)
    assert "segments that no object names" in text.text
    assert text.text.count("  record ") == 2
    assert "--repair removes orphans" in text.errors
    repaired = fsck("--repair", "--yes", "--json", *NOW)
    assert (repaired.code, repaired.json["removed"]) == (0, 4)
    assert found(fsck("--json", *NOW)) == {}
    assert place.store.get("kept") == bytes(BIG)
    assert place.store.get("shorter") == bytes(BIG // 2)


def test_damaged_objects(fsck: Callable[..., Result], place: Place) -> None:
    for key in ("whole", "hole", "tail"):
        place.store.put(key, bytes(BIG))
    place.remove("hole", 1, 2)
    place.remove("tail", 4)
    report = fsck("--json", *NOW)
    assert (report.code, found(report)) == (1, {"segment_missing": 2})
    assert {f["key"]: f["detail"] for f in report.json["findings"]} == {
        "hole": "2 of 4 segments are missing",
        "tail": "1 of 4 segments are missing",
    }
    repaired = fsck("--repair", "-y", "--json", *NOW)
    assert (repaired.code, repaired.json["removed"]) == (0, 3 + 4)
    assert found(fsck("--json", *NOW)) == {}
    assert [place.store.exists(k) for k in ("whole", "hole", "tail")] == [True, False, False]


def test_questions_need_a_terminal(fsck: Callable[..., Result], place: Place) -> None:
    place.store.put("lost", bytes(BIG))
    place.remove("lost", 0)
    asked = fsck("--repair", *NOW)
    assert asked.code == 2
    assert "--yes: not given" in asked.errors
    assert "remove 4 orphans and 0 damaged objects?" in asked.errors
    assert found(fsck("--json", *NOW)) == {"orphan": 4}


def test_what_ends_meanwhile_is_no_finding(command: Command, place: Place) -> None:
    """The second look: a store that ends within the grace, and an object that is stored again."""
    for key in ("slow", "again"):
        place.store.put(key, bytes(BIG))
    place.remove("slow", 0)
    place.remove("again", 1)

    def end() -> None:
        place.store.put("slow", bytes(BIG))
        place.store.put("again", bytes(BIG))

    result = command.watch(
        "fsck", "--set", place.set_name, "--grace", "2", "--repair", "-y", "--json",
        words="looking again in 2 s", then=end,
    )  # fmt: skip
    assert (result.code, found(result)) == (0, {})
    assert result.json["unconfirmed"] == 4 + 1
    assert place.store.get("slow") == place.store.get("again") == bytes(BIG)


def test_repair_beside_writers(command: Command, place: Place) -> None:
    seed = random.randrange(1 << 30)
    print("seed", seed)
    stop = threading.Event()
    last: list[dict[str, bytes]] = [{}, {}]

    def write(number: int) -> None:
        rng = random.Random(seed + number)
        while not stop.is_set():
            key = f"{number}-{rng.randrange(5)}"
            if rng.random() < 0.2:
                place.store.delete(key)
                last[number].pop(key, None)
                continue
            content = rng.randbytes(rng.randrange(BIG))
            place.store.put(key, content)
            last[number][key] = content

    place.store.put("lost", bytes(BIG))
    place.remove("lost", 0)
    threads = [threading.Thread(target=write, args=(i,)) for i in range(2)]
    for thread in threads:
        thread.start()
    try:
        for _ in range(2):
            command("fsck", "--set", place.set_name, "--grace", "2", "--repair", "-y")
    finally:
        stop.set()
        for thread in threads:
            thread.join()
    assert last[0]
    assert last[1]
    for key, content in {**last[0], **last[1]}.items():
        assert place.store.get(key) == content, key
    assert found(command("fsck", "--set", place.set_name, "--json", *NOW)) == {}


def test_a_record_that_was_written_again_stays(place: Place) -> None:
    place.store.put("key", bytes(BIG))
    seen = place.store.inspect("key")
    assert seen is not None
    place.store.put("key", bytes(BIG))
    records = [dict(record) for record in seen["records"]]
    assert place.survey.remove(records) == [False] * 5  # type: ignore[arg-type]
    assert place.store.get("key") == bytes(BIG)


def test_large_sets_are_walked_in_parts(cluster: str, place: Place) -> None:
    for i in range(30):
        place.store.put(f"{i}", bytes(BIG))
    for i in range(10):
        place.remove(f"{i}", 0)
        place.remove(f"{10 + i}", 1)
    options = Config.resolve({"hosts": cluster, "set_name": place.set_name}).native()
    reports = []
    for in_memory in (1, 50, 1 << 20):
        survey = _native.Survey(options, findings_max=7, records_in_memory=in_memory)
        last = 0.0
        while survey.step():
            assert last <= survey.progress() <= 1
            last = survey.progress()
        reports.append(survey.report())
    for report in reports:
        assert report["counts"]["orphan"] == 40
        assert report["counts"]["segment_missing"] == 10
        assert (report["objects"], report["segment_records"]) == (20, 10 * 4 + 10 * 3)
        assert len(report["findings"]) == 14


def test_objects_without_keys(command: Command, place: Place, cluster: str) -> None:
    with Store(cluster, set_name=place.set_name, send_key=False) as store:
        store.put("hidden", random.Random(1).randbytes(BIG))
    place.store.put("lost", random.Random(2).randbytes(BIG))
    place.remove("lost", 0)
    report = command("fsck", "--set", place.set_name, "--json", *NOW)
    assert found(report) == {"orphan": 4}  # the sums tell whose the other four are
    assert report.json["can_tell_orphans"] is True


def test_objects_of_a_serde_are_verified_with_it(command: Command, place: Place) -> None:
    where = ("--set", place.set_name)
    serde = ("-O", 'serde={"type": "fp8", "dtype": "bfloat16"}')
    assert command("put", "-", "--key", "k", *where, *serde, stdin=b"\x80\x3f" * 99).code == 0
    without = command("fsck", "--verify", "--json", *where)
    assert (without.code, without.json["verified"], without.json["skipped"]) == (0, 0, 1)
    decoded = command("fsck", "--verify", "--json", *where, *serde)
    assert (decoded.code, decoded.json["verified"], decoded.json["skipped"]) == (0, 1, 0)


def test_objects_that_never_expire(fsck: Callable[..., Result], place: Place) -> None:
    place.store.put("for ever", b"x", ttl=-1)
    place.store.put("pinned", b"x", pin=True)
    place.store.put("a day", b"x")
    report = fsck("--json")
    assert (report.code, found(report)) == (1, {"no_expiry": 1})
    assert report.json["findings"][0]["key"] == "for ever"
    wanted = fsck("--json", "-O", "default_ttl_seconds=-1")
    assert (wanted.code, found(wanted)) == (0, {})
    assert fsck("--repair", "-y", "--json").code == 1  # it does not remove those


@pytest.mark.parametrize("value", ["x", "-1"])
def test_usage(fsck: Callable[..., Result], value: str) -> None:
    assert fsck("--grace", value).code == 2


class TestRecordsOfOthers:
    """Records that only another client can write."""

    @pytest.fixture
    def client(self, cluster: str) -> Iterator[Any]:
        aerospike = pytest.importorskip("aerospike")
        host, port = cluster.split(",", maxsplit=1)[0].rsplit(":", 1)
        client = aerospike.client({"hosts": [(host, int(port))]}).connect()
        yield client
        client.close()

    def test_foreign_records_stay(
        self, fsck: Callable[..., Result], place: Place, client: Any
    ) -> None:
        client.put(("lmcache", place.set_name, "other"), {"b": b"payload"})
        report = fsck("--json", "--repair", "-y", *NOW)
        assert (report.code, found(report)) == (0, {"foreign": 1})
        assert client.exists(("lmcache", place.set_name, "other"))[1] is not None

    def test_objects_of_writers_without_sums(
        self, fsck: Callable[..., Result], place: Place, client: Any
    ) -> None:
        meta = {"ver": 1, "state": "ready", "nseg": 2, "seg_b": 4, "tot_b": 7, "created_at": 1}
        client.put(("lmcache", place.set_name, "k|m"), meta, policy={"key": 1})
        client.put(("lmcache", place.set_name, "k|s|0"), {"b": b"abcd"})
        client.put(("lmcache", place.set_name, "k|s|1"), {"b": b"efg"})
        report = fsck("--json", "--verify", "-O", "default_ttl_seconds=-1")
        assert (report.code, found(report)) == (0, {})
        assert report.json["verified"] == 1
        client.remove(("lmcache", place.set_name, "k|s|1"))
        report = fsck("--json", "-O", "default_ttl_seconds=-1", *NOW)
        assert found(report) == {"segment_missing": 1}

    def test_bad_meta_records(self, fsck: Callable[..., Result], place: Place, client: Any) -> None:
        good = {"ver": 1, "state": "ready", "nseg": 1, "seg_b": 4, "tot_b": 4, "b": b"abcd"}
        for name, change in {
            "version": {"ver": 9},
            "state": {"state": "writing"},
            "sizes": {"nseg": 3},
        }.items():
            bins = {**good, **change}
            client.put(("lmcache", place.set_name, f"{name}|m"), bins, policy={"key": 1})
        options = ("--json", "-O", "default_ttl_seconds=-1", *NOW)
        report = fsck(*options)
        assert found(report) == {"bad_meta": 3}
        details = {f["key"]: f["detail"] for f in report.json["findings"]}
        assert "ver" in details["version"]
        assert "not ready" in details["state"]
        repaired = fsck("--repair", "-y", *options)
        assert (repaired.code, repaired.json["removed"]) == (0, 3)

    def test_sums_of_another_write(
        self, fsck: Callable[..., Result], place: Place, client: Any
    ) -> None:
        place.store.put("mixed", bytes(BIG))
        client.put(("lmcache", place.set_name, "mixed|s|2"), {"sum": 1})
        report = fsck("--json", *NOW)
        assert found(report) == {"segment_sum": 1}
        assert report.json["findings"][0]["detail"] == "1 of 4 segments are of another write"

    def test_bytes_that_do_not_match(
        self, command: Command, fsck: Callable[..., Result], place: Place, client: Any
    ) -> None:
        place.store.put("rotten", bytes(BIG))
        key = ("lmcache", place.set_name, "rotten|s|0")
        client.put(key, {"b": b"x" + client.get(key)[2]["b"][1:]}, policy={"ttl": 0xFFFFFFFE})
        assert found(fsck("--json", *NOW)) == {}
        report = fsck("--json", "--verify", *NOW)
        assert (report.code, found(report)) == (1, {"payload": 1})
        looked = command("stat", "rotten", "--verify", "--set", place.set_name, "--json")
        assert looked.code == 1
        checks = {check["name"]: check for check in looked.json["checks"]}
        assert checks["load"] == {
            "name": "load", "status": "fail", "detail": "a miss: payload_hash",
        }  # fmt: skip
        assert fsck("--verify", "--repair", "-y", *NOW).code == 0
        assert place.store.exists("rotten") is False

    def test_bytes_that_are_stored_again_meanwhile(
        self, command: Command, place: Place, client: Any
    ) -> None:
        """As beside a writer that replaces an object: its segments come before its meta record."""
        place.store.put("moving", bytes(BIG))
        key = ("lmcache", place.set_name, "moving|s|0")
        client.put(key, {"b": b"x" + client.get(key)[2]["b"][1:]}, policy={"ttl": 0xFFFFFFFE})
        result = command.watch(
            "fsck", "--set", place.set_name, "--verify", "--grace", "2", "--repair", "-y", "--json",
            words="looking again in 2 s", then=lambda: place.store.put("moving", bytes(BIG)),
        )  # fmt: skip
        assert (result.code, found(result)) == (0, {})
        assert result.json["unconfirmed"] == 1
        assert place.store.get("moving") == bytes(BIG)

    def test_segments_with_another_expiry(
        self, fsck: Callable[..., Result], place: Place, client: Any
    ) -> None:
        for name, ttl in (("early", 100), ("never", -1)):
            place.store.put(name, bytes(BIG))
            key = ("lmcache", place.set_name, f"{name}|s|1")
            client.touch(key, 0xFFFFFFFF if ttl < 0 else ttl)
        report = fsck("--json", *NOW)
        assert (report.code, found(report)) == (1, {"expires_early": 1, "expires_never": 1})
        details = {f["key"]: f["detail"] for f in report.json["findings"]}
        assert details == {
            "early": "1 of 4 segments expire before the object",
            "never": "1 of 4 segments never expire, the object does",
        }
        assert fsck("--repair", "-y", "--json", *NOW).json["removed"] == 0
