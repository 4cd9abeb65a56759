#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes the seeds of the fuzz targets from the recordings in tests/golden/aerospike.

Run it from anywhere; it replaces the seeds that it made before and leaves others (crashes that
were kept) alone. One exchange stands for all of the same shape, so that the corpus stays small.
"""

from __future__ import annotations

import json
import struct
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
GOLDEN = HERE.parent / "golden" / "aerospike"
SEED_BYTES_MAX = 4096
KINDS = {"single": 0, "pipeline": 0, "stream": 1, "query": 2, "info": 3, "security": 4}


def exchanges() -> Iterator[dict[str, Any]]:
    """All recorded exchanges that have texts of moderate length and an answer."""
    for line in (GOLDEN / "exchanges.jsonl").read_text().splitlines():
        exchange: dict[str, Any] = json.loads(line)
        if exchange["request"] and exchange["response"] not in ("", "closed"):
            yield exchange


def shape(message: bytes) -> tuple[object, ...]:
    """What makes a message different from others for a decoder."""
    if len(message) < 30 or message[1] != 3:
        return (message[1] if len(message) > 1 else 0, len(message).bit_length())
    info1, info2, info3, _, code = message[9:14]
    fields, ops = struct.unpack(">HH", message[26:30])
    return (3, info1, info2, info3, code, fields, min(ops, 3), len(message).bit_length())


def op(name: str, particle: int, value: bytes, kind: int = 2) -> bytes:
    """One bin operation as it stands in a message."""
    return struct.pack(">IBBBB", 4 + len(name) + len(value), kind, particle, 0, len(name)) + (
        name.encode() + value
    )


def integer(name: str, value: int) -> bytes:
    """An integer bin."""
    return op(name, 1, struct.pack(">q", value))


def meta(nseg: int, seg_b: int, tot_b: int, more: bytes = b"") -> bytes:
    """The bins that every meta record has, then `more`."""
    return (
        integer("ver", 1)
        + op("state", 3, b"ready")
        + integer("nseg", nseg)
        + integer("seg_b", seg_b)
        + integer("tot_b", tot_b)
        + integer("created_at", 1700000000)
        + op("pin", 17, b"\0")
        + more
    )


def wire_seeds(seeds: dict[str, dict[str, bytes]]) -> None:
    """Recorded requests and answers, one of each shape."""
    seen: set[tuple[object, ...]] = set()
    for exchange in exchanges():
        name, kind = exchange["name"], exchange["kind"]
        request = bytes.fromhex(exchange["request"])
        answer = bytes.fromhex(exchange["response"])
        if len(request) <= SEED_BYTES_MAX and ("unit", *shape(request)) not in seen:
            seen.add(("unit", *shape(request)))
            seeds["unit_reader"][name] = request
        if kind in KINDS and len(answer) <= SEED_BYTES_MAX:
            key = (
                "reply",
                kind,
                tuple(sorted(set(exchange.get("result_codes", [])))),
                *shape(answer),
            )
            if key not in seen:
                seen.add(key)
                seeds["reply_decoder"][name] = bytes([KINDS[kind], len(seen) % 256]) + answer
        if kind == "security":
            seeds["security"][name] = answer[8:]
        if kind == "info" and len(answer) <= SEED_BYTES_MAX:
            seeds["info"][name] = b"\0" + answer[8:]


def conversation_seeds(seeds: dict[str, dict[str, bytes]]) -> None:
    """Requests of one group after each other, cut into pieces of moderate length."""
    talk: dict[str, list[bytes]] = {}
    for exchange in exchanges():
        pieces = talk.setdefault(exchange["group"], [b""])
        request = bytes.fromhex(exchange["request"])
        if len(request) > SEED_BYTES_MAX // 2:
            continue
        if len(pieces[-1]) + len(request) > SEED_BYTES_MAX:
            pieces.append(b"")
        pieces[-1] += request
    for group, pieces in talk.items():
        for i, piece in enumerate(pieces):
            seeds["devserver"][f"{group}_{i}"] = piece


def text_seeds(seeds: dict[str, dict[str, bytes]]) -> None:
    """Texts: replicas, peers, host lists, namespaces, keys."""
    bitmaps = {"all": "/" * 682 + "8=", "none": "A" * 683 + "=", "some": "pZ" * 341 + "A="}
    info, limits, keys = seeds["info"], seeds["limits"], seeds["keys"]
    for name, bits in bitmaps.items():
        info[f"replicas_{name}"] = f"\3lmcache:0,1,{bits}".encode()
    info["replicas_two"] = (
        f"\3lmcache:7,2,{bitmaps['all']},{bitmaps['none']};nsup0:0,1,{bitmaps['some']}".encode()
    )
    for i, text in enumerate(
        (
            "0,3000,[]",
            "3,3100,[[A2,,[127.0.0.1:3110]]]",
            "7,,[[A2,tls.name,[[::1]:3120,127.0.0.1]],[A3,,[h]]]",
            "9,3000,[[A2,,]]",
        )
    ):
        info[f"peers_{i}"] = b"\2" + text.encode()
    hosts = ("127.0.0.1:3000", "a:1, b ,[::1]:3", "[fe80::1]", "host:65536", "h:tls.name:4333")
    for i, text in enumerate(hosts):
        info[f"hosts_{i}"] = b"\1" + text.encode()
    info["integer"] = b"\4-9223372036854775808"
    wanted = ("record-size", "block-size", "nsup", "ttl", "stop_writes", "replication", "strong")
    for name in ("lmcache", "nsup0"):
        head, _, text = (GOLDEN / f"namespace_{name}.txt").read_text().partition("\t")
        pairs = [p for p in text.split(";") if any(word in p for word in wanted)]
        limits[f"namespace_{name}"] = f"{head}\t{';'.join(pairs)}\n".encode()
    for i, text in enumerate(
        (
            "max-record-size=0;nsup-period=120;storage-engine.write-block-size=1048576",
            "write-block-size=8388608;nsup-period=0;allow-ttl-without-nsup=true",
            "type=unknown",
            "ERROR:4:bad namespace",
            "x-max-record-size=5;max-record-size=131071",
        )
    ):
        limits[f"fixture_{i}"] = text.encode()
    for i, text in enumerate(("llama@01000100@0@00aa|m", "k|s|65535", "k|m|s|0", "k|s|01")):
        keys[f"key_{i}"] = text.encode()


def record_seeds(seeds: dict[str, dict[str, bytes]]) -> None:
    """Meta records of every form, and security answers that a Community server cannot give."""
    sums = op("sums", 4, bytes(range(24)))
    records = {
        "inline": b"\1" + meta(1, 5, 5, op("b", 4, b"hello")),
        "inline_elsewhere": b"\3" + meta(1, 5, 5, op("b", 4, b"hello")),
        "empty": b"\1" + meta(1, 0, 0, op("b", 4, b"")),
        "segments": b"\0" + meta(3, 699051, 2097152, sums),
        "foreign": b"\0" + meta(2, 4, 7, op("md", 4, b"opaque") + integer("crc32", 0xCBF43926)),
        "not_ready": b"\0" + op("state", 3, b"writing"),
        "many": b"\0" + meta(1000000000, 1, 1000000000),
    }
    seeds["meta_record"].update(records)
    seeds["security"]["login"] = (
        bytes([0, 0, 0, 2])
        + bytes(12)
        + struct.pack(">IB", 9, 5)
        + b"TOKEN123"
        + struct.pack(">IBI", 5, 6, 86400)
    )


def serde_seeds(seeds: dict[str, dict[str, bytes]]) -> None:
    """Frames of the golden vectors behind the bytes that choose what reads them."""
    folder = GOLDEN.parent / "serde"
    for low_bit, bits in enumerate(("int8", "int4")):
        for layout in range(4):
            frame = (folder / bits / f"small_{layout}.frame").read_bytes()
            choice = 2 * layout + low_bit
            seeds["int_frame"][f"{bits}_{layout}"] = bytes([choice, 1]) + frame
            seeds["int_frame"][f"{bits}_{layout}_cut"] = bytes([choice, 0]) + frame[:70]
    for choice, name in enumerate(("checksum", "int8_checksum")):
        frame = (folder / "chain" / f"{name}.frame").read_bytes()
        seeds["chain"][name] = bytes([choice]) + frame
        seeds["chain"][f"{name}_fp8"] = bytes([2]) + frame


def frame_seeds(seeds: dict[str, dict[str, bytes]]) -> None:
    """Objects that the targets make frames of, and frames of the golden vectors."""
    folder = GOLDEN.parent / "serde"
    for size in (0, 17, 241, 1100):
        data = bytes((i * 12307848 >> 16) & 255 for i in range(size))
        seeds["checksum"][f"object_{size}"] = bytes([5]) + data
        seeds["checksum"][f"longer_{size}"] = bytes([3]) + data
        seeds["aesgcm"][f"object_{size}"] = bytes([9]) + data
        seeds["aesgcm"][f"flipped_{size}"] = bytes([11]) + data
    for target, choice, payload in (("checksum", 4, bytes(1)), ("aesgcm", 8, b"")):
        words = (folder / target / "vectors.txt").read_text().splitlines()[1].split()
        seeds[target]["foreign"] = bytes([choice]) + bytes.fromhex(words[-1]) + payload
    for name, layout in (("bfloat16", 3), ("bytes", 4), ("float64", 5), ("nothing", 6)):
        frame = (folder / "lossless" / f"{name}.frame").read_bytes()
        for sealed in (0, 1):
            seeds["lossless"][f"{name}_{sealed}"] = bytes([4 * layout + sealed]) + frame
    slope = b"".join(struct.pack("<f", i / 7)[2:] for i in range(600))
    for choice in (3, 7):
        seeds["lossless"][f"object_{choice}"] = bytes([choice]) + slope
        seeds["lossless"][f"zeros_{choice}"] = bytes([choice]) + bytes(700)


def container_seeds(seeds: dict[str, dict[str, bytes]]) -> None:
    """Containers of LMCache with the wishes that they fulfil, and one more tensor behind one."""
    folder = GOLDEN.parent / "serde" / "k16v8"
    wishes = {"bfloat16": 48, "float16": 53, "float32": 58, "v_only": 32, "float16_scale": 48}
    for name, choice in wishes.items():
        container = (folder / f"{name}.bin").read_bytes()
        seeds["k16v8"][name] = bytes([choice]) + container
    first = (folder / "bfloat16.bin").read_bytes()
    payload = b"abc" + struct.pack("<f", 1.0)
    head = first[:12] + struct.pack("<H", 6) + first[14:76] + struct.pack("<qqq", 3, 0, 4)
    second = head + first[100:209] + struct.pack("<I", zlib.crc32(payload)) + payload
    seeds["k16v8"]["object"] = bytes([64]) + first + second


def main() -> None:
    """Writes all seeds and prints their number and size."""
    names = (
        "aesgcm",
        "chain",
        "checksum",
        "devserver",
        "info",
        "int_frame",
        "k16v8",
        "keys",
        "limits",
        "lossless",
        "meta_record",
        "reply_decoder",
        "security",
        "unit_reader",
    )
    seeds: dict[str, dict[str, bytes]] = {name: {} for name in names}
    wire_seeds(seeds)
    conversation_seeds(seeds)
    text_seeds(seeds)
    record_seeds(seeds)
    serde_seeds(seeds)
    frame_seeds(seeds)
    container_seeds(seeds)
    for target, files in seeds.items():
        folder = HERE / "corpus" / target
        folder.mkdir(parents=True, exist_ok=True)
        for old in folder.glob("seed_*"):
            old.unlink()
        for name, data in files.items():
            (folder / f"seed_{name}").write_bytes(data)
        print(f"{target}: {len(files)} seeds, {sum(map(len, files.values()))} bytes")


if __name__ == "__main__":
    main()
