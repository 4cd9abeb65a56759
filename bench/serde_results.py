# SPDX-License-Identifier: Apache-2.0
"""The serdes: errors on real KV tensors, speed beside others, and what slow links gain.

Every comparison takes its contestants in turn, round by round; a ratio is the median of the ratios
of single rounds.
"""

from __future__ import annotations

import functools
import json
import math
import select
import statistics
import struct
import subprocess
import tempfile
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import results
import torch
from lmcache.v1.distributed.serde.fp8 import (
    Fp8QuantizationDeserializer,
    Fp8QuantizationSerializer,
)

from lmcache_aerospike import AerospikeNativeConnector, _native, serde

ROOT = Path(__file__).resolve().parent.parent
KV_FILE = ROOT / "examples" / "data" / "minilm_l6_kv_chunks.safetensors"
BIG_BYTES = 64 << 20
HEAD_DIM = 32  # of the model whose tensors are used
LINK_BYTES_PER_SECOND = 200_000_000
GOALS = {"encode_to_lmcache": 3.0, "decode_to_lmcache": 12.0, "fused_store": 1.5}


class _MemoryObject:
    """What LMCache's serdes see of a memory object: a tensor."""

    def __init__(self, tensor: torch.Tensor) -> None:
        self.tensor = tensor


def real_chunks() -> list[torch.Tensor]:
    """Chunks [K and V, layers, tokens, hidden] of bfloat16."""
    with KV_FILE.open("rb") as stream:
        (head_bytes,) = struct.unpack("<Q", stream.read(8))
        head = json.loads(stream.read(head_bytes))
        data = bytearray(stream.read())
    chunks = []
    for name, entry in sorted(head.items()):
        if name != "__metadata__":
            begin, end = entry["data_offsets"]
            raw = torch.frombuffer(data, dtype=torch.uint8)[begin:end].clone()
            chunks.append(raw.view(torch.bfloat16).view(entry["shape"]))
    return chunks


def formats(key_file: Path) -> dict[str, dict[str, Any]]:
    """The configurations to show, by name."""
    secret = {"type": "aesgcm", "master_key_path": str(key_file)}
    return {
        "fp8 e4m3fn": {"type": "fp8"},
        "fp8 e5m2": {"type": "fp8", "fp8_dtype": "float8_e5m2"},
        "k16v8": {"type": "k16v8"},
        "int8": {"type": "int8"},
        "int4": {"type": "int4"},
        f"int4, head_dim {HEAD_DIM}": {"type": "int4", "head_dim": HEAD_DIM},
        "lossless": {"type": "lossless"},
        "checksum": {"type": "checksum"},
        "aesgcm": secret,
        "lossless, then aesgcm": {"type": "chain", "stages": [{"type": "lossless"}, secret]},
    }


def _median_seconds(call: Callable[[], object], rounds: int) -> float:
    times = []
    for _ in range(rounds):
        started = time.perf_counter()
        call()
        times.append(time.perf_counter() - started)
    return statistics.median(times)


def _errors(wanted: torch.Tensor, got: torch.Tensor) -> dict[str, float]:
    x, y = wanted.double().flatten(), got.double().flatten()
    return {
        "rms": ((x - y).norm() / x.norm()).item(),
        "max": ((x - y).abs().max() / x.abs().max()).item(),
        "cosine": torch.nn.functional.cosine_similarity(x, y, dim=0).item(),
    }


def quality(rounds: int) -> list[dict[str, Any]]:
    """Bytes, errors and speed of every format on real tensors; one thread."""
    chunks = real_chunks()
    repeats = -(-BIG_BYTES // (chunks[0].numel() * chunks[0].element_size()) // len(chunks))
    big = torch.cat(chunks * repeats, dim=1)  # more layers
    rows = []
    with tempfile.NamedTemporaryFile() as key_file:
        key_file.write(bytes(range(32)))
        key_file.flush()
        for name, config in formats(Path(key_file.name)).items():
            encoder = _native.Serializer(config)
            decoder = _native.Deserializer(config)
            layout = [(tuple(big.shape), "bfloat16")]
            frame = torch.empty(encoder.estimate_serialized_size(layout), dtype=torch.uint8)
            target = torch.empty_like(big)
            used = encoder.serialize(big, frame)
            decoder.deserialize(frame[:used], target)
            raw = big.numel() * big.element_size()
            row: dict[str, Any] = {"name": name, "bytes_per_element": used / big.numel()}
            for side, label in enumerate("KV"):
                row[label] = _errors(big[side], target[side])
            for label, call in (
                ("encode", functools.partial(encoder.serialize, big, frame)),
                ("decode", functools.partial(decoder.deserialize, frame[:used], target)),
            ):
                row[label] = raw / _median_seconds(call, rounds) / 1e9
            rows.append(row)
    return rows


def beside_lmcache(rounds: int) -> dict[str, Any]:
    """fp8 of 64 MiB of bfloat16: ours, LMCache's own, and memcpy of as many bytes; one thread."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        source = torch.randn(BIG_BYTES // 2, generator=torch.Generator().manual_seed(1))
        source = source.to(torch.bfloat16)
        frame = torch.zeros(source.numel(), dtype=torch.uint8)
        target = torch.zeros_like(source)
        # As many bytes read and written as the cast does: one and a half times the tensor.
        half = np.ones(BIG_BYTES * 3 // 4, dtype=np.uint8)
        other = np.zeros_like(half)
        ours = serde.Fp8QuantizationSerializer(), serde.Fp8QuantizationDeserializer()
        theirs = Fp8QuantizationSerializer(), Fp8QuantizationDeserializer()
        objects = [_MemoryObject(tensor) for tensor in (source, frame, target)]
        calls: dict[str, Callable[[], object]] = {
            "memcpy": lambda: np.copyto(other, half),
            "encode": lambda: ours[0].serialize(source, frame),
            "decode": lambda: ours[1].deserialize(frame, target),
            "lmcache_encode": lambda: theirs[0].serialize(objects[0], objects[1], None),
            "lmcache_decode": lambda: theirs[1].deserialize(objects[1], objects[2], None),
        }
        times: dict[str, list[float]] = {name: [] for name in calls}
        for number in range(rounds + 1):
            for name, call in calls.items():
                started = time.perf_counter()
                call()
                if number > 0:
                    times[name].append(time.perf_counter() - started)
    finally:
        torch.set_num_threads(threads)

    def ratio(one: str, other: str) -> float:
        return statistics.median(a / b for a, b in zip(times[other], times[one], strict=True))

    return {
        "gb_per_second": {n: BIG_BYTES / statistics.median(t) / 1e9 for n, t in times.items()},
        "encode_to_lmcache": ratio("encode", "lmcache_encode"),
        "decode_to_lmcache": ratio("decode", "lmcache_decode"),
        "encode_to_memcpy": ratio("encode", "memcpy"),
        "decode_to_memcpy": ratio("decode", "memcpy"),
    }


def _run_batch(connector: AerospikeNativeConnector, submit: Callable[[], int]) -> float:
    started = time.perf_counter()
    batch = submit()
    while True:
        select.select([connector.event_fd()], [], [], 30)
        for completed, ok, error, bits in connector.drain_completions():
            if completed == batch:
                if not ok or not bits or not all(bits):
                    message = f"batch failed: {error or bits}"
                    raise RuntimeError(message)
                return time.perf_counter() - started


def fused(rounds: int) -> dict[str, Any]:
    """Stores and loads of 16 chunks of 4 MiB through a link of limited speed, raw and fused."""
    count, size = 16, 4 << 20
    generator = torch.Generator().manual_seed(2)
    sources = [torch.randn(size // 2, generator=generator).to(torch.bfloat16) for _ in range(count)]
    payloads = [memoryview(s.view(torch.uint8).numpy()).cast("B") for s in sources]
    targets = [memoryview(bytearray(size)) for _ in range(count)]
    fp8 = {"type": "fp8", "dtype": "bfloat16"}
    lossless = {"type": "lossless", "dtype": "bfloat16"}
    out: dict[str, Any] = {"link": LINK_BYTES_PER_SECOND, "bytes": count * size}
    with _native.DevServer(
        namespaces=[{"name": "lmcache", "size_bytes": 2 << 30}],
        link_bytes_per_second=LINK_BYTES_PER_SECOND,
    ) as server:
        connectors = {
            name: AerospikeNativeConnector(hosts=server.hosts, serde=config)
            for name, config in {"raw": None, "fp8": fp8, "lossless": lossless}.items()
        }
        times: dict[str, list[float]] = {}
        for number in range(rounds):
            for name, connector in connectors.items():
                keys = [f"{name}/{number}/{i}" for i in range(count)]
                for operation, buffers in (("set", payloads), ("get", targets)):
                    submit = getattr(connector, f"submit_batch_{operation}")
                    seconds = _run_batch(connector, functools.partial(submit, keys, buffers))
                    times.setdefault(f"{name} {operation}", []).append(seconds)
        for name, connector in connectors.items():
            stored = connector.stats()["operations"]["put"]["bytes"] / rounds / (count * size)
            out[name] = {"stored": stored}
            for operation in ("set", "get"):
                one, raw = times[f"{name} {operation}"], times[f"raw {operation}"]
                out[name][operation] = {
                    "mb_per_second": count * size / statistics.median(one) / 1e6,
                    "ratio": statistics.median(a / b for a, b in zip(raw, one, strict=True)),
                }
            connector.close()
    return out


def native_cases(program: Path, quick: bool) -> list[dict[str, Any]]:
    """What aerokv_serde_bench says for 64 MiB and 1 MiB, on one thread and on two."""
    runs = []
    for mib, threads, names in ((64, 1, ""), (64, 2, "serialize/"), (1, 1, "serialize/")):
        arguments = ["--kib", str(mib << 10), "--threads", str(threads), "--json"]
        arguments += ["--filter", names]
        if quick:
            arguments += ["--rounds", "3"]
        done = subprocess.run([str(program), *arguments], check=True, capture_output=True)
        runs.append({"mib": mib, **json.loads(done.stdout)})
    return runs


def run(program: Path, quick: bool) -> dict[str, Any]:
    """All of it."""
    rounds = 3 if quick else 9
    return {
        "quality": quality(rounds),
        "beside_lmcache": beside_lmcache(rounds),
        "fused": fused(2 if quick else 5),
        "native": native_cases(program, quick),
    }


def goals(report: Mapping[str, Any]) -> list[dict[str, Any]]:
    """What was to be reached, and what was."""
    beside, slow = report["beside_lmcache"], report["fused"]
    reached = {
        "encode_to_lmcache": ("fp8 encode / LMCache's", beside["encode_to_lmcache"]),
        "decode_to_lmcache": ("fp8 decode / LMCache's", beside["decode_to_lmcache"]),
        "fused_store": ("fused fp8 store / raw, slow link", slow["fp8"]["set"]["ratio"]),
    }
    return [
        {"what": what, "goal": GOALS[key], "reached": value, "met": value >= GOALS[key]}
        for key, (what, value) in reached.items()
    ]


def _error_text(value: float) -> str:
    return "0" if value == 0 else f"{value:.2%}"


def _of_others(case: Mapping[str, Any]) -> str:
    ratios = {name.removeprefix("of "): value for name, value in case.items() if "of " in name}
    return ", ".join(f"{value:.2f} of {name}" for name, value in ratios.items())


def tables(report: Mapping[str, Any]) -> str:
    """Markdown of all results."""
    rows = [
        [row["name"], f"{row['bytes_per_element']:.3f}"]
        + [_error_text(row[side]["rms"]) + " / " + _error_text(row[side]["max"]) for side in "KV"]
        + [f"{row['K']['cosine']:.6f} / {row['V']['cosine']:.6f}"]
        + [f"{row['encode']:.2f}", f"{row['decode']:.2f}"]
        for row in report["quality"]
    ]
    head = ["serde", "bytes per element", "K: RMS / max error", "V: RMS / max error"]
    head += ["cosine K / V", "encode GB/s", "decode GB/s"]
    words = (
        "Real KV tensors of bfloat16 (all-MiniLM-L6-v2), one thread. RMS error: norm of the "
        "difference over the norm; max error: largest difference over the largest magnitude. "
        "GB/s count the bytes of the raw tensor."
    )
    parts = [words, results.table(head, rows)]
    beside = report["beside_lmcache"]
    rates = beside["gb_per_second"]
    parts.append("fp8 of 64 MiB of bfloat16 in Python, one thread, interleaved:")
    parts.append(
        results.table(
            ["", "GB/s", "LMCache's own GB/s", "ratio", "of a memcpy that moves as many bytes"],
            [
                [side, f"{rates[side]:.2f}", f"{rates['lmcache_' + side]:.2f}"]
                + [f"{beside[side + '_to_lmcache']:.1f}", f"{beside[side + '_to_memcpy']:.0%}"]
                for side in ("encode", "decode")
            ],
        )
    )
    slow = report["fused"]
    parts.append(
        f"The fused path on a link of {slow['link'] / 1e6:.0f} MB/s in each direction, batches of "
        "16 chunks of 4 MiB (random numbers, the worst case for lossless):"
    )
    parts.append(
        results.table(
            ["serde", "bytes stored", "store MB/s", "/ raw", "load MB/s", "/ raw"],
            [
                [name, f"{slow[name]['stored']:.2f}"]
                + [
                    text
                    for side in ("set", "get")
                    for text in (
                        f"{slow[name][side]['mb_per_second']:.0f}",
                        f"{slow[name][side]['ratio']:.2f}",
                    )
                ]
                for name in ("raw", "fp8", "lossless")
            ],
        )
    )
    for entry in report["native"]:
        parts.append(f"The engine alone, {entry['mib']} MiB, {entry['threads']} thread(s):")
        parts.append(
            results.table(
                ["case", "GB/s", "of a memcpy that moves as many bytes", "of others"],
                [
                    [case["name"], f"{case['gb_per_s']:.2f}", f"{case['memcpy_ratio']:.0%}"]
                    + [_of_others(case)]
                    for case in entry["cases"]
                    if not case["name"].endswith("/scalar")
                ],
            )
        )
    return "\n\n".join(parts)


def plot(report: Mapping[str, Any], path: Path) -> None:
    """Bytes against error, and speed."""
    import matplotlib as mpl

    mpl.use("Agg")
    from matplotlib import pyplot

    rows = report["quality"]
    figure, (left, right) = pyplot.subplots(1, 2, figsize=(11, 4.2), constrained_layout=True)
    labels: dict[tuple[float, float], list[str]] = {}
    for row in rows:
        size = row["bytes_per_element"]
        for side, mark in (("K", "o"), ("V", "s")):
            error = max(row[side]["rms"], 1e-4)
            left.plot(size, error, mark, color="C0" if side == "K" else "C1")
        place = round(size, 1), round(math.log10(max(row["V"]["rms"], 1e-4)), 1)
        labels.setdefault(place, []).append(row["name"])
    for (size, error), names_there in labels.items():
        left.annotate(
            "\n".join(names_there),
            (size, 10**error),
            xytext=(7, 5),
            textcoords="offset points",
            fontsize=7,
            ha="left" if size < 1.9 else "right",
        )
    left.set_yscale("log")
    left.set_xlabel("bytes per element (raw: 2)")
    left.set_ylabel("RMS error (bottom: none); circle K, square V")
    names = [row["name"] for row in rows]
    places = np.arange(len(names))
    right.barh(places + 0.2, [row["encode"] for row in rows], 0.4, label="encode")
    right.barh(places - 0.2, [row["decode"] for row in rows], 0.4, label="decode")
    right.set_yticks(places, names, fontsize=8)
    right.invert_yaxis()
    right.set_xlabel("GB/s of raw tensor, one thread")
    right.legend()
    figure.savefig(path, dpi=110)
    pyplot.close(figure)
