# SPDX-License-Identifier: Apache-2.0
"""The serdes as LMCache's own classes: registration, memory objects, bytes as LMCache's own."""

from __future__ import annotations

import importlib
import os
import select
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from lmcache.v1.distributed import serde as theirs
from lmcache.v1.distributed.api import MemoryLayoutDesc, ObjectKey
from lmcache.v1.distributed.serde.asym_k16_v8 import (
    AsymK16V8MultiDeserializer,
    AsymK16V8MultiSerializer,
    AsymK16V8VOnlyMultiDeserializer,
    AsymK16V8VOnlyMultiSerializer,
)
from lmcache.v1.memory_management import (
    BytesBufferMemoryObj,
    MemoryFormat,
    MemoryObjMetadata,
    TensorMemoryObj,
)

from lmcache_aerospike import lmcache_serde, serde
from lmcache_aerospike.errors import ClosedError

TYPES = ["aesgcm", "chain", "checksum", "fp8", "int4", "int8", "k16v8", "lossless"]
SHAPE = torch.Size([2, 3, 16, 64])
KEY = ObjectKey(chunk_hash=bytes(range(16)), model_name="m", kv_rank=0, cache_salt="tenant")


def memory_object(
    shapes: list[torch.Size], dtypes: list[torch.dtype], spare: int = 0
) -> TensorMemoryObj:
    """One like those of LMCache's allocators, with `spare` bytes of alignment behind it."""
    size = sum(shape.numel() * dtype.itemsize for shape, dtype in zip(shapes, dtypes, strict=True))
    raw = torch.zeros(size + spare, dtype=torch.uint8)
    metadata = MemoryObjMetadata(
        shape=shapes[0],
        dtype=dtypes[0],
        address=0,
        phy_size=size + spare,
        ref_count=1,
        pin_count=0,
        fmt=MemoryFormat.KV_2LTD,
        shapes=shapes,
        dtypes=dtypes,
    )
    return TensorMemoryObj(raw, metadata, None)


def kv_object(dtype: torch.dtype = torch.bfloat16) -> TensorMemoryObj:
    made = memory_object([SHAPE], [dtype])
    values = torch.randn(SHAPE, generator=torch.Generator().manual_seed(5))
    made.tensor.copy_(values.to(dtype))
    return made


def bytes_object(size: int, spare: int = 0) -> TensorMemoryObj:
    return memory_object([torch.Size([size])], [torch.uint8], spare)


@pytest.fixture
def configs(tmp_path: Path) -> dict[str, dict[str, object]]:
    path = tmp_path / "master"
    path.write_bytes(b"k" * 32)
    path.chmod(0o600)
    sealed = {"type": "aesgcm", "master_key_path": str(path)}
    return {
        "aesgcm": {"master_key_path": str(path)},
        "chain": {"stages": [{"type": "aerospike_lossless"}, sealed]},
        "lossless": {"level": 1},
    }


def create(name: str, kwargs: dict[str, object]) -> theirs.SerdeProcessor:
    return theirs.create_serde_processor(theirs.SerdeConfig(name, kwargs))


def wait(fd: int) -> None:
    ready, _, _ = select.select([fd], [], [], 20)
    assert ready
    assert os.eventfd_read(fd) == 1


def serialize(
    processor: theirs.SerdeProcessor, src: list, dst: list, *keys: list[ObjectKey]
) -> bool | None:
    task = processor.submit_serialize(src, dst, *keys)
    wait(processor.get_serialize_event_fd())
    return processor.query_serialize_result(task)


def deserialize(
    processor: theirs.SerdeProcessor, src: list, dst: list, *keys: list[ObjectKey]
) -> bool | None:
    task = processor.submit_deserialize(src, dst, *keys)
    wait(processor.get_deserialize_event_fd())
    return processor.query_deserialize_result(task)


def test_all_types_are_registered_once() -> None:
    names = theirs.get_registered_serde_types()
    assert {"aerospike_" + name for name in TYPES} <= set(names)
    importlib.reload(lmcache_serde)
    assert theirs.get_registered_serde_types() == names


def test_the_classes_are_those_of_lmcache() -> None:
    assert issubclass(lmcache_serde.AerospikeSerializer, theirs.Serializer)
    assert issubclass(lmcache_serde.AerospikeDeserializer, theirs.Deserializer)
    assert issubclass(lmcache_serde.AerospikeSerdeProcessor, theirs.SerdeProcessor)


@pytest.mark.parametrize("name", TYPES)
def test_every_type_through_memory_objects(
    name: str, configs: dict[str, dict[str, object]]
) -> None:
    processor = create("aerospike_" + name, {"max_workers": 2, **configs.get(name, {})})
    assert isinstance(processor, theirs.SerdeProcessor)
    desc = theirs.serialized_layout_desc(MemoryLayoutDesc([SHAPE], [torch.bfloat16]), processor)
    estimate = desc.shapes[0].numel()
    sources = [kv_object() for _ in range(3)]
    temps = [bytes_object(estimate, spare=512) for _ in sources]
    keys = [KEY] * 3
    assert serialize(processor, sources, temps, keys) is True
    for temp in temps:
        assert 0 < temp.get_size() <= estimate
    loaded = []  # as an adapter fills buffers of the full estimate
    for temp in temps:
        loaded.append(bytes_object(estimate))
        loaded[-1].raw_data[: temp.get_size()] = temp.raw_data[: temp.get_size()]
    targets = [memory_object([SHAPE], [torch.bfloat16]) for _ in sources]
    assert deserialize(processor, loaded, targets, keys) is True
    for source, target in zip(sources, targets, strict=True):
        error = (source.tensor.float() - target.tensor.float()).abs().max().item()
        assert error <= 0.5
        assert (error == 0) == (name in {"aesgcm", "chain", "checksum", "lossless"})
    # Once more into the same buffers, which are narrowed now; without keys.
    if name != "checksum":
        assert serialize(processor, sources, temps) is True
    processor.close()
    with pytest.raises(ClosedError):
        processor.submit_serialize([], [], [])


def test_fp8_writes_what_lmcache_writes() -> None:
    source = kv_object()
    ours, own = bytes_object(SHAPE.numel()), bytes_object(SHAPE.numel())
    processor = create("aerospike_fp8", {})
    assert processor.estimate_serialized_size(
        MemoryLayoutDesc([SHAPE], [torch.bfloat16])
    ) == theirs.Fp8QuantizationSerializer().estimate_serialized_size(
        MemoryLayoutDesc([SHAPE], [torch.bfloat16])
    )
    assert serialize(processor, [source], [ours], [KEY]) is True
    assert theirs.Fp8QuantizationSerializer().serialize(source, own, KEY) == SHAPE.numel()
    assert torch.equal(ours.raw_data, own.raw_data)
    targets = [memory_object([SHAPE], [torch.bfloat16]) for _ in range(2)]
    theirs.Fp8QuantizationDeserializer().deserialize(ours, targets[0], KEY)
    assert deserialize(processor, [own], targets[1:], [KEY]) is True
    assert torch.equal(targets[0].tensor, targets[1].tensor)
    processor.close()


def test_aesgcm_is_that_of_lmcache(configs: dict[str, dict[str, object]]) -> None:
    source = kv_object()
    pair = [create(name, configs["aesgcm"]) for name in ("aerospike_aesgcm", "aesgcm")]
    for writer, reader in (pair, pair[::-1]):
        frame = bytes_object(SHAPE.numel() * 2 + 29)
        target = memory_object([SHAPE], [torch.bfloat16])
        assert serialize(writer, [source], [frame], [KEY]) is True
        assert deserialize(reader, [frame], [target], [KEY]) is True
        assert torch.equal(source.tensor, target.tensor)
    for one in pair:
        one.close()


def test_objects_of_several_groups() -> None:
    shapes = [torch.Size([2, 8, 4]), torch.Size([5, 3]), torch.Size([7])]
    dtypes = [torch.bfloat16, torch.float32, torch.uint8]
    source = memory_object(shapes, dtypes)
    for i in range(2):
        source.get_tensor(i).copy_(torch.randn(shapes[i]).to(dtypes[i]))
    source.get_tensor(2).copy_(torch.arange(7, dtype=torch.uint8))
    processor = create("aerospike_fp8", {})
    estimate = processor.estimate_serialized_size(MemoryLayoutDesc(shapes, dtypes))
    assert estimate == 64 + 15 + 7
    temp, target = bytes_object(estimate), memory_object(shapes, dtypes)
    assert serialize(processor, [source], [temp], [KEY]) is True
    assert deserialize(processor, [temp], [target], [KEY]) is True
    for i in range(3):
        expected = source.get_tensor(i)
        if i < 2:
            expected = expected.to(torch.float8_e4m3fn).to(dtypes[i])
        assert torch.equal(target.get_tensor(i), expected)
    processor.close()


def test_in_the_processor_of_lmcache() -> None:
    for arguments in (("fp8",), ("aerospike_lossless",)):
        processor = theirs.AsyncSerdeProcessor(
            lmcache_serde.AerospikeSerializer(*arguments),
            lmcache_serde.AerospikeDeserializer(*arguments),
        )
        estimate = processor.estimate_serialized_size(MemoryLayoutDesc([SHAPE], [torch.bfloat16]))
        source, temp, target = kv_object(), bytes_object(estimate), kv_object()
        target.tensor.zero_()
        for submit, query, fd, objects in (
            (
                processor.submit_serialize,
                processor.query_serialize_result,
                processor.get_serialize_event_fd(),
                ([source], [temp], [KEY]),
            ),
            (
                processor.submit_deserialize,
                processor.query_deserialize_result,
                processor.get_deserialize_event_fd(),
                ([temp], [target], [KEY]),
            ),
        ):
            task = submit(*objects)
            assert select.select([fd], [], [], 20)[0]
            assert query(task) is True
        processor.close()
        expected = source.tensor
        if arguments == ("fp8",):
            expected = expected.to(torch.float8_e4m3fn).to(expected.dtype)
        assert torch.equal(target.tensor, expected)


def test_serializers_of_lmcache_in_our_processor() -> None:
    pair = theirs.Fp8QuantizationSerializer(), theirs.Fp8QuantizationDeserializer()
    with serde.AsyncSerdeProcessor(*pair, max_workers=2) as processor:
        source, temp = kv_object(), bytes_object(SHAPE.numel())
        target = memory_object([SHAPE], [torch.bfloat16])
        assert serialize(processor, [source], [temp], [KEY]) is True
        assert deserialize(processor, [temp], [target], [KEY]) is True
        assert torch.equal(target.tensor, source.tensor.to(torch.float8_e4m3fn).to(torch.bfloat16))


def test_two_and_three_arguments() -> None:
    serializer = lmcache_serde.AerospikeSerializer("fp8")
    deserializer = lmcache_serde.AerospikeDeserializer("fp8")
    source, temp = kv_object(), bytes_object(SHAPE.numel())
    target = memory_object([SHAPE], [torch.bfloat16])
    for key in ((), (KEY,)):
        assert serializer.serialize(source, temp, *key) == SHAPE.numel()
        deserializer.deserialize(temp, target, *key)
    assert repr(serializer) == "<AerospikeSerializer fp8:float8_e4m3fn>"


def test_failures_keep_their_reason_and_are_logged_once(caplog: pytest.LogCaptureFixture) -> None:
    processor = create("aerospike_checksum", {})
    frame = bytes_object(100)
    assert deserialize(processor, [frame], [bytes_object(50)], [KEY]) is False
    (failure,) = processor.last_errors()
    assert failure.index == 0
    assert "checksum: version 0, expected 1" in str(failure.error)
    # The engine's line, unless it had the same cause to tell within the last ten seconds.
    lines = [r.getMessage() for r in caplog.records if r.name == "lmcache_aerospike"]
    assert len(lines) <= 1, lines
    processor.close()


def test_plain_bytes_objects() -> None:
    processor = create("aerospike_checksum", {})
    temp, target = bytes_object(17 + 11), bytes_object(11)
    assert serialize(processor, [BytesBufferMemoryObj(b"plain bytes")], [temp], [KEY]) is True
    whole = BytesBufferMemoryObj(bytes(temp.byte_array))
    assert deserialize(processor, [whole], [target], [KEY]) is True
    assert bytes(target.byte_array) == b"plain bytes"
    processor.close()


@pytest.mark.parametrize(
    ("name", "kwargs", "words"),
    [
        ("fp8", {"color": "red"}, "color.*fp8_dtype, overflow, size_margin"),
        ("lossless", {"lvl": 1}, "lvl.*level"),
        ("checksum", {"x": 1}, "unknown parameter x"),
        ("chain", {"stages": []}, "stages"),
        ("chain", {"stages": [{"type": "nothing"}]}, "nothing"),
        ("aesgcm", {}, "master_key_path"),
        ("fp8", {"max_workers": "two"}, "max_workers"),
    ],
)
def test_bad_configurations(name: str, kwargs: dict[str, object], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        create("aerospike_" + name, kwargs)


ORDERS = {
    "theirs first": (
        "import lmcache.v1.distributed.serde\nimport lmcache_aerospike.native_connector"
    ),
    "ours first": "import lmcache_aerospike.native_connector; import lmcache.v1.distributed.serde",
    "reloaded": (
        "import importlib, lmcache_aerospike.native_connector as ours\n"
        "importlib.reload(ours); importlib.reload(ours)\n"
        "import lmcache.v1.distributed.serde\n"
        "importlib.reload(ours)"
    ),
}
CHECK = """
import sys
from lmcache.v1.distributed.serde import SerdeConfig, create_serde_processor
import lmcache.v1.distributed.serde as package
assert type(package.__loader__).__module__.startswith("_frozen"), package.__loader__
create_serde_processor(SerdeConfig("aerospike_fp8")).close()
print("ok")
"""


@pytest.mark.parametrize("order", ORDERS)
def test_the_connector_registers_whichever_is_imported_first(order: str) -> None:
    done = subprocess.run(
        [sys.executable, "-c", ORDERS[order] + CHECK],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert (done.returncode, done.stdout) == (0, "ok\n"), done.stderr


def test_the_connector_alone_does_not_import_lmcache() -> None:
    code = (
        "import sys, lmcache_aerospike.native_connector\n"
        "assert not {'lmcache', 'torch', 'numpy'} & set(sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], timeout=60, check=False)
    assert done.returncode == 0


BROKEN = """
import logging, sys
logging.basicConfig(format="%(levelname)s %(message)s")
import lmcache_aerospike._native as native
native.serde_types = None  # whatever goes wrong there
import lmcache_aerospike.native_connector
import lmcache.v1.distributed.serde as package
print(sorted(package.get_registered_serde_types()))
"""


def test_a_failing_registration_is_logged_and_harms_nobody() -> None:
    done = subprocess.run(
        [sys.executable, "-c", BROKEN], capture_output=True, text=True, timeout=120, check=False
    )
    assert done.returncode == 0, done.stderr
    assert "aerospike" not in done.stdout
    assert "WARNING LMCache cannot use the serdes aerospike_*" in done.stderr
    assert "TypeError" in done.stderr


@pytest.mark.filterwarnings("ignore:The given buffer is not writable")
def test_groups_are_those_of_lmcache() -> None:
    shape, dtype = torch.Size([3, 16, 64]), torch.bfloat16
    layout = MemoryLayoutDesc([shape], [dtype])
    k, v = (memory_object([shape], [dtype]) for _ in range(2))
    k.tensor.copy_(torch.randn(shape).to(dtype))
    v.tensor.copy_(torch.randn(shape).to(dtype))
    ours = lmcache_serde.AerospikeMultiSerializer(), lmcache_serde.AerospikeMultiDeserializer()
    assert isinstance(ours[0], theirs.MultiSerializer)
    assert isinstance(ours[1], theirs.MultiDeserializer)
    assert ours[0].group_size == ours[1].group_size == 2
    for source, writers, readers in (
        (
            (k, v),
            (ours[0], AsymK16V8MultiSerializer()),
            (ours[1], AsymK16V8MultiDeserializer()),
        ),
        (
            (None, v),
            (ours[0], AsymK16V8VOnlyMultiSerializer()),
            (ours[1], AsymK16V8VOnlyMultiDeserializer()),
        ),
    ):
        layouts = tuple(None if one is None else layout for one in source)
        results = []
        for writer in writers:
            blob = bytes_object(writer.estimate_serialized_size(layouts))
            blob.set_used_size(writer.serialize(source, blob, KEY))
            for reader in readers:
                targets = [memory_object([shape], [dtype]) for _ in range(2)]
                group = (None if source[0] is None else targets[0], targets[1])
                reader.deserialize(blob, group, KEY)
                if source[0] is not None:
                    assert torch.equal(targets[0].tensor, k.tensor)
                results.append(targets[1].tensor.clone())
        assert all(torch.equal(result, results[0]) for result in results)
