# SPDX-License-Identifier: Apache-2.0
"""Serdes in Python: formats, interfaces, registry, groups, what is shown and what is not."""

from __future__ import annotations

import pickle
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from serde_waiting import WAIT_SECONDS, write_key

import lmcache_aerospike
from lmcache_aerospike import _native, serde
from lmcache_aerospike.errors import (
    AerospikeDeniedError,
    CorruptionError,
    InvalidArgumentError,
)

SHAPE = (2, 3, 4, 16)
KEY = serde.SerdeKey(b"0123456789abcdef", "tenant")


def tensor(dtype: str = "float32", shape: tuple[int, ...] = SHAPE) -> np.ndarray:
    return np.random.default_rng(7).standard_normal(shape).astype(dtype)


Pair = tuple[serde.Serializer, serde.Deserializer]


@pytest.fixture(
    params=["fp8", "k16v8", "int8", "int4", "lossless", "checksum", "aesgcm", "chain"],
)
def pair(request: pytest.FixtureRequest, tmp_path: Path) -> Pair:
    path = write_key(tmp_path)
    sealed = serde.SerdeConfig("aesgcm", {"master_key_path": path})
    stages = [{"type": "aerospike_lossless"}, sealed]
    pairs: dict[str, Callable[[], Pair]] = {
        "fp8": lambda: (serde.Fp8QuantizationSerializer(), serde.Fp8QuantizationDeserializer()),
        "k16v8": lambda: (serde.K16V8Serializer(), serde.K16V8Deserializer()),
        "int8": lambda: (serde.Int8Serializer(), serde.Int8Deserializer()),
        "int4": lambda: (serde.Int4Serializer(), serde.Int4Deserializer()),
        "lossless": lambda: (serde.LosslessSerializer(level=3), serde.LosslessDeserializer()),
        "checksum": lambda: (serde.ChecksumSerializer(), serde.ChecksumDeserializer()),
        "aesgcm": lambda: (serde.AesGcmSerializer(path), serde.AesGcmDeserializer(path)),
        "chain": lambda: (serde.ChainSerializer(stages), serde.ChainDeserializer(stages)),
    }
    return pairs[request.param]()


def test_every_format_there_and_back(pair: Pair) -> None:
    serializer, deserializer = pair
    source = tensor()
    estimate = serializer.estimate_serialized_size([(SHAPE, "float32")])
    buffer = bytearray(estimate + 3)
    buffer[estimate:] = b"end"
    size = serializer.serialize(source, memoryview(buffer)[:estimate], KEY)
    assert 0 < size <= estimate
    assert buffer[estimate:] == b"end"
    target = np.full_like(source, np.nan)
    deserializer.deserialize(buffer, target, KEY)  # more bytes behind it do not matter
    assert np.abs(target - source).max() <= 0.35
    exact = type(serializer).__name__.startswith(("Lossless", "Checksum", "Aes", "Chain"))
    assert np.array_equal(target, source) == exact


def test_the_key_is_optional(pair: Pair) -> None:
    serializer, deserializer = pair
    source, target = tensor(), tensor() * 0
    buffer = bytearray(serializer.estimate_serialized_size([(SHAPE, "float32")]))
    for key in ((), (None,), (serde.SerdeKey(),)):
        serializer.serialize(source, buffer, *key)
        deserializer.deserialize(buffer, target, *key)
        assert np.abs(target - source).max() <= 0.35


def test_pairs_can_be_pickled_and_shown(pair: Pair) -> None:
    for one in pair:
        again = pickle.loads(pickle.dumps(one))
        assert type(again) is type(one)
        assert again.tag == one.tag
        assert repr(one) == f"<{type(one).__name__} {one.tag}>"
    source = tensor()
    buffer = bytearray(pair[0].estimate_serialized_size([(SHAPE, "float32")]))
    pickle.loads(pickle.dumps(pair[0])).serialize(source, buffer, KEY)
    pickle.loads(pickle.dumps(pair[1])).deserialize(buffer, source, KEY)


def test_no_secret_is_shown_or_pickled(tmp_path: Path) -> None:
    path = write_key(tmp_path)
    secret = Path(path).read_bytes()
    shown = serde.AesGcmSerializer(path)
    config = serde.SerdeConfig("mine", {"password": "hunter2"})
    assert "hunter2" not in repr(config)
    for text in (repr(shown), shown.tag, repr(shown._native)):
        assert "master" not in text
    assert secret not in pickle.dumps(shown)


def test_the_estimate_of_fp8_has_the_margin_of_the_design() -> None:
    layout = [((3, 5), "bfloat16")]
    assert serde.Fp8QuantizationSerializer("float8_e4m3fn").estimate_serialized_size(layout) == 22
    exact = serde.Fp8QuantizationSerializer("float8_e5m2", size_margin=1.0)
    assert exact.estimate_serialized_size(layout) == 15
    assert serde.Fp8QuantizationSerializer().serialize(tensor(), bytearray(1000)) == tensor().size
    with serde.create_serde_processor({"type": "aerospike_fp8"}) as processor:
        assert processor.estimate_serialized_size(layout) == 15


def test_layouts_are_read_in_every_form() -> None:
    estimate = serde.Fp8QuantizationSerializer(size_margin=1).estimate_serialized_size

    class Desc:
        shapes = ((2, 3), (4,))
        dtypes = ("torch.bfloat16", np.dtype("float32"))

    assert estimate(Desc()) == 10
    assert estimate([((2, 3), "bfloat16"), ((4,), np.float16)]) == 10
    assert estimate([[[2, np.int64(3)], "float8_e4m3fnuz"]]) == 6
    assert estimate(tensor()) == tensor().size
    assert estimate([]) == 0
    assert estimate([((0, 5), "float32")]) == 0


@pytest.mark.parametrize(
    ("layout", "error", "words"),
    [
        ([((2,), "float9")], InvalidArgumentError, "float9.*expected one of bool, uint8"),
        ([((2,), "complex64")], InvalidArgumentError, "complex64"),
        ([((-1,), "uint8")], InvalidArgumentError, "shape"),
        ([((1 << 62,), "uint8")], InvalidArgumentError, "2\\^48"),
        ([((1 << 70,), "uint8")], InvalidArgumentError, "2\\^48"),
        ([((1.5,), "uint8")], TypeError, "float"),
        ([(5, "uint8")], TypeError, "shape"),
        ([((2,),)], TypeError, "pairs"),
        (5, TypeError, "int"),
        ("uint8", TypeError, "str"),
    ],
)
def test_bad_layouts(layout: object, error: type[Exception], words: str) -> None:
    with pytest.raises(error, match=words):
        serde.Fp8QuantizationSerializer().estimate_serialized_size(layout)


@pytest.mark.parametrize(
    ("config", "words"),
    [
        ({"type": "nothing"}, "'nothing'.*aesgcm, chain, checksum, .*fp8"),
        ({}, "unknown type"),
        ({"type": "fp8", "colour": "red"}, "colour.*fp8_dtype"),
        ({"type": "aerospike_fp8", "fp8_dtype": "float8"}, "fp8_dtype.*float8_e4m3fn"),
        ({"type": "fp8", "size_margin": 0.5}, "size_margin.*1"),
        ({"type": "fp8", "size_margin": {}}, "serde.size_margin: dict"),
        ({"type": "fp8", "max_workers": 0}, "max_workers: 0, expected 1 to 256"),
        ({"type": "fp8", "max_workers": 1 << 70}, "max_workers.*64 bits"),
        ({"type": "lossless", "level": "high"}, "level"),
        ({"type": "aesgcm"}, "master_key_path"),
        ({"type": "chain", "stages": [{"type": "fp8"}, {}]}, r"serde.stages\[1\].type: not given"),
        ({"type": "chain", "stages": [5]}, r"serde.stages\[0\]: int"),
        ({"type": "chain"}, "stages"),
        ({"type": 5}, "unknown type"),
    ],
)
def test_bad_configurations(config: dict[str, object], words: str) -> None:
    with pytest.raises((ValueError, TypeError), match=words):
        serde.create_serde_processor(config)


def test_a_configuration_that_contains_itself() -> None:
    config: dict[str, object] = {"type": "chain"}
    config["stages"] = [config]
    with pytest.raises((InvalidArgumentError, RecursionError)):
        _native.Serializer(config)


def test_none_in_a_configuration_is_left_out() -> None:
    config = {"type": "fp8", "fp8_dtype": None, "max_workers": None}
    serde.create_serde_processor(config).close()
    with pytest.raises(InvalidArgumentError, match="colour"):
        serde.create_serde_processor({"type": "fp8", "colour": 1, "fp8_dtype": None})


def test_key_files_that_others_can_read_are_refused(tmp_path: Path) -> None:
    path = Path(write_key(tmp_path))
    path.chmod(0o644)
    with pytest.raises(AerospikeDeniedError, match="chmod 600"):
        serde.AesGcmSerializer(path)
    with pytest.raises(InvalidArgumentError):
        serde.AesGcmSerializer(tmp_path / "absent")


def test_damage_and_foreign_keys_are_refused(tmp_path: Path) -> None:
    source, target = tensor(), tensor()
    path = write_key(tmp_path)
    sealed = bytearray(serde.AesGcmSerializer(path).estimate_serialized_size([(SHAPE, "float32")]))
    serde.AesGcmSerializer(path).serialize(source, sealed, KEY)
    other = serde.SerdeKey(KEY.chunk_hash, "another")
    for broken, key in ((sealed, other), (sealed[:-1], KEY), (bytes(len(sealed)), KEY)):
        with pytest.raises((AerospikeDeniedError, CorruptionError, InvalidArgumentError)):
            serde.AesGcmDeserializer(path).deserialize(broken, target, key)
    summed = bytearray(source.nbytes + 100)
    size = serde.ChecksumSerializer().serialize(source, summed, KEY)
    serde.ChecksumDeserializer().deserialize(summed, target, KEY)
    summed[size - 1] ^= 1
    with pytest.raises(CorruptionError):
        serde.ChecksumDeserializer().deserialize(summed, target, KEY)


def test_registry() -> None:
    made: list[dict[str, object]] = []

    class Upper(serde.Serializer):
        def serialize(self, src: object, dst: object) -> int:  # the form without a key
            text = bytes(memoryview(src)).upper()
            memoryview(dst)[: len(text)] = text
            return len(text)

        def estimate_serialized_size(self, layout_desc: object) -> int:
            return 100

    class Lower(serde.Deserializer):
        def deserialize(self, src: object, dst: object, key: object = None) -> None:
            memoryview(dst)[:] = bytes(memoryview(src)).lower()[: len(dst)]

    def factory(kwargs: dict[str, object]) -> serde.SerdeProcessor:
        made.append(kwargs)
        return serde.AsyncSerdeProcessor(Upper(), Lower())

    before = serde.get_registered_serde_types()
    assert before == sorted(before)
    assert {"aesgcm", "chain", "checksum", "fp8"} <= set(before)
    serde.register_serde_factory("upper_test", factory)
    assert "upper_test" in serde.get_registered_serde_types()
    for taken in ("upper_test", "fp8", "aerospike_fp8"):
        with pytest.raises(ValueError, match="registered already"):
            serde.register_serde_factory(taken, factory)
    with pytest.raises(ValueError, match="empty"):
        serde.register_serde_factory("", factory)
    with serde.create_serde_processor(serde.SerdeConfig("upper_test", {"a": 1})) as processor:
        assert processor.estimate_serialized_size([]) == 100
    assert made == [{"a": 1}]
    with pytest.raises(ValueError, match="upper_test"):
        serde.create_serde_processor({"type": "none of them"})


def test_single_pairs_as_groups_of_one() -> None:
    inner, back = serde.Fp8QuantizationSerializer(), serde.Fp8QuantizationDeserializer()
    serializer = serde.single_to_multi_serializer(inner)
    deserializer = serde.single_to_multi_deserializer(back)
    assert serializer.group_size == deserializer.group_size == 1
    source, target = tensor(), np.zeros(SHAPE, np.float32)
    alone, grouped = bytearray(source.size), bytearray(source.size)
    assert inner.serialize(source, alone) == serializer.serialize((source,), grouped, KEY)
    assert alone == grouped
    layout = [(SHAPE, "float32")]
    estimate = inner.estimate_serialized_size(layout)
    assert serializer.estimate_serialized_size((layout,)) == estimate
    deserializer.deserialize(grouped, (None,))
    assert not target.any()
    deserializer.deserialize(grouped, (target,))
    assert np.abs(target - source).max() < 0.2
    for bad in (
        lambda: serializer.serialize((), grouped),
        lambda: serializer.serialize((source, source), grouped),
        lambda: serializer.serialize((None,), grouped),
        lambda: serializer.estimate_serialized_size((None,)),
        lambda: serializer.estimate_serialized_size(()),
        lambda: deserializer.deserialize(grouped, (target, None)),
        lambda: serde.validate_group_size([1], 2, role="dst"),
    ):
        with pytest.raises(ValueError, match="expected"):
            bad()


@pytest.mark.parametrize("format", ["fp8", "lossless", "checksum"])
def test_the_interpreter_runs_during_a_transform(format: str) -> None:
    serializer = _native.Serializer({"type": format})
    deserializer = _native.Deserializer({"type": format})
    source = np.zeros(16 << 20, np.float32)
    target = np.empty_like(source)
    buffer = bytearray(serializer.estimate_serialized_size(source))
    interval = sys.getswitchinterval()
    for transform in (
        lambda: serializer.serialize(source, buffer),
        lambda: deserializer.deserialize(buffer, target),
    ):
        go = threading.Event()
        ran: list[bool] = []

        def run(go: threading.Event = go, ran: list[bool] = ran) -> None:
            go.wait()
            ran.append(True)

        thread = threading.Thread(target=run)
        thread.start()
        # Nobody has to hand the interpreter over: the thread runs only if the transform lets go.
        sys.setswitchinterval(100)
        try:
            go.set()
            deadline = time.monotonic() + WAIT_SECONDS
            while not ran and time.monotonic() < deadline:
                transform()
            seen = list(ran)
        finally:
            sys.setswitchinterval(interval)
            thread.join()
        assert seen == [True]


WITHOUT = """
import sys
for name in ("numpy", "torch", "lmcache"):
    sys.modules[name] = None
from lmcache_aerospike import serde
import lmcache_aerospike.native_connector
import array
source = array.array("f", [0.5, -1.0, 448.0])
out = bytearray(3)
assert serde.Fp8QuantizationSerializer().serialize(source, out) == 3
assert out == b"\\x30\\xb8\\x7e", out
target = array.array("f", [0.0] * 3)
serde.Fp8QuantizationDeserializer().deserialize(out, target)
assert target == source
try:
    import lmcache_aerospike.lmcache_serde
except ImportError:
    print("ok")
"""


def test_neither_numpy_nor_torch_nor_lmcache_is_needed() -> None:
    done = subprocess.run(
        [sys.executable, "-c", WITHOUT], capture_output=True, text=True, timeout=60, check=False
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "ok\n", "")


def test_all_is_exported_and_typed() -> None:
    for name in serde.__all__:
        assert hasattr(serde, name)
    assert Path(lmcache_aerospike.__file__).with_name("py.typed").exists()
