# SPDX-License-Identifier: Apache-2.0
"""``demo``: LMCache's own storage manager over our engine, start to end."""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import struct
import time
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.panel import Panel
from rich.syntax import Syntax
from rich.table import Table

from lmcache_aerospike import _native
from lmcache_aerospike.commands.session import MISS, Session, bytes_text, stop
from lmcache_aerospike.errors import AerospikeConfigError
from lmcache_aerospike.store import Store

if TYPE_CHECKING:
    import torch

_MODEL = "demo/all-MiniLM-L6-v2"
_SHAPE = (2, 6, 256, 384)
_L1_BYTES_MIN = 64 << 20
_WAIT_SECONDS = 30
_POLL_SECONDS = 0.005


@dataclass
class Step:
    """One line of the report."""

    name: str
    count: int
    size: int
    seconds: float
    is_transfer: bool


def demo(
    session: Session,
    data: Annotated[
        Path | None,
        typer.Option(help="KV chunks, safetensors; made up if not given.", show_default=False),
    ] = None,
    chunks: Annotated[int, typer.Option(min=1, max=128, help="How many to store.")] = 32,
    nodes: Annotated[int, typer.Option(min=1, max=16, help="Of the development server.")] = 1,
) -> None:
    """Store KV chunks through LMCache, drop them from memory, load them back, compare all bytes.

    Starts a development server unless --hosts names a cluster. Needs lmcache and torch.
    """
    _require_lmcache()
    tensors, origin = _chunks(data, chunks)
    with _cluster(session, nodes) as (hosts, where):
        adapter = _adapter(session, hosts)
        _print_start(session, where, origin, tensors, adapter)
        with Store(**adapter["adapter_params"]) as witness:
            steps, verified = _Run(adapter, tensors, witness).all_steps()
    _print_report(session, steps, verified, tensors)
    if verified != len(tensors):
        stop(MISS)


def _require_lmcache() -> None:
    # LMCache's own log would bury the report.
    os.environ.setdefault("LMCACHE_LOG_LEVEL", "ERROR")
    warnings.simplefilter("ignore", FutureWarning)
    try:
        import lmcache  # noqa: F401, PLC0415 - an optional part of the package
        import torch  # noqa: F401, PLC0415
    except ImportError as error:
        msg = f"demo: {error}; it needs LMCache and torch: pip install 'lmcache-aerospike[lmcache]'"
        raise AerospikeConfigError(msg) from None


@contextlib.contextmanager
def _cluster(session: Session, nodes: int) -> Iterator[tuple[str, str]]:
    """The hosts to use, and what they are."""
    given = session.hosts or os.environ.get("LMCACHE_AEROSPIKE_HOSTS")
    if given:
        yield given, f"the cluster at {given}"
        return
    with _native.DevServer(nodes=nodes, replication=min(2, nodes)) as server:
        noun = "node" if nodes == 1 else "nodes"
        yield server.hosts, f"a development server with {nodes} {noun} at {server.hosts}"


def _adapter(session: Session, hosts: str) -> dict[str, Any]:
    given = {name: value for name, value in session.given().items() if value}
    return {
        "type": "native_plugin",
        "module_path": "lmcache_aerospike.native_connector",
        "class_name": "AerospikeNativeConnector",
        "adapter_params": {"namespace": "lmcache", "set_name": "demo", **given, "hosts": hosts},
    }


def _chunks(path: Path | None, count: int) -> tuple[list[torch.Tensor], str]:
    """`count` different chunks; recorded ones are shifted along the tokens."""
    import torch  # noqa: PLC0415 - an optional part of the package

    if path is None:
        generator = torch.Generator().manual_seed(1)
        made = [torch.randn(_SHAPE, generator=generator).bfloat16() for _ in range(count)]
        return made, "made-up numbers"
    recorded = _read_safetensors(path)
    shifted = [recorded[i % len(recorded)].roll(i // len(recorded), dims=2) for i in range(count)]
    return shifted, f"recorded from a real model, {path.name}"


def _read_safetensors(path: Path) -> list[torch.Tensor]:
    """All bfloat16 tensors of four dimensions, by name."""
    import torch  # noqa: PLC0415 - an optional part of the package

    raw = path.read_bytes()
    try:
        (header_bytes,) = struct.unpack_from("<Q", raw)
        header = json.loads(raw[8 : 8 + header_bytes])
    except (struct.error, ValueError):
        msg = f"--data: {path}: not in safetensors format"
        raise AerospikeConfigError(msg) from None
    out = []
    for name in sorted(header):
        entry = header[name]
        if name == "__metadata__" or entry["dtype"] != "BF16" or len(entry["shape"]) != 4:
            continue
        start, end = entry["data_offsets"]
        data = bytearray(raw[8 + header_bytes + start : 8 + header_bytes + end])
        out.append(torch.frombuffer(data, dtype=torch.bfloat16).reshape(entry["shape"]))
    if not out:
        msg = f"--data: {path}: no bfloat16 tensors of four dimensions"
        raise AerospikeConfigError(msg)
    return out


def _storage_manager(adapter: dict[str, Any], size: int) -> Any:  # noqa: ANN401 - a class of LMCache
    """LMCache's storage manager, configured as its server does it from `--l2-adapter`."""
    import lmcache.v1.distributed.l2_adapters  # noqa: F401, PLC0415 - registers the adapter types
    from lmcache.v1.distributed.config import (  # noqa: PLC0415 - an optional part
        EvictionConfig,
        L1ManagerConfig,
        L1MemoryManagerConfig,
        StorageManagerConfig,
    )
    from lmcache.v1.distributed.l2_adapters.config import (  # noqa: PLC0415
        add_l2_adapters_args,
        parse_args_to_l2_adapters_config,
    )
    from lmcache.v1.distributed.storage_manager import StorageManager  # noqa: PLC0415

    parser = argparse.ArgumentParser()
    add_l2_adapters_args(parser)
    arguments = parser.parse_args(["--l2-adapter", json.dumps(adapter)])
    memory = L1MemoryManagerConfig(
        size_in_bytes=max(_L1_BYTES_MIN, 2 * size), use_lazy=False, shm_name=""
    )
    return StorageManager(
        StorageManagerConfig(
            l1_manager_config=L1ManagerConfig(memory_config=memory),
            eviction_config=EvictionConfig(eviction_policy="noop"),
            l2_adapter_config=parse_args_to_l2_adapters_config(arguments),
        )
    )


class _Run:
    """The chunks, and LMCache's storage manager that moves them.

    Args:
        adapter: The JSON of `--l2-adapter`.
        tensors: The chunks.
        witness: A client of its own, which sees what has arrived.
    """

    def __init__(
        self, adapter: dict[str, Any], tensors: list[torch.Tensor], witness: Store
    ) -> None:
        from lmcache.v1.distributed.api import MemoryLayoutDesc, ObjectKey  # noqa: PLC0415

        salt = f"demo-{os.getpid()}-{time.time_ns()}"
        self._tensors = tensors
        self._witness = witness
        self._keys = [
            ObjectKey(
                chunk_hash=i.to_bytes(32, "big"),
                model_name=_MODEL,
                kv_rank=0x01000100,
                cache_salt=salt,
            )
            for i in range(len(tensors))
        ]
        self._names = [f"{_MODEL}@01000100@0@{key.chunk_hash.hex()}@{salt}" for key in self._keys]
        self._layout = MemoryLayoutDesc(shapes=[tensors[0].shape], dtypes=[tensors[0].dtype])
        self._manager = _storage_manager(adapter, _size(tensors))

    def all_steps(self) -> tuple[list[Step], int]:
        """Runs all steps; returns them and how many chunks came back with every byte right."""
        try:
            steps = [self._store(), self._drop()]
            step, verified = self._load()
        finally:
            self._manager.close()
        return [*steps, step, self._delete()], verified

    def _store(self) -> Step:
        """Puts the chunks into LMCache's memory and waits until the witness sees them all."""
        objects = self._manager.reserve_write(self._keys, self._layout)
        for key, tensor in zip(self._keys, self._tensors, strict=True):
            objects[key].tensor.copy_(tensor.reshape(objects[key].tensor.shape))
        started = time.monotonic()
        self._manager.finish_write(self._keys)
        _await(lambda: all(f is True for f in self._witness.exists_many(self._names)), "store")
        return self._step("store, until a second client sees all", started, is_transfer=True)

    def _drop(self) -> Step:
        """Deletes the chunks from LMCache's memory, which locks them until they are stored."""
        started = time.monotonic()
        _await(lambda: self._manager.delete_l1_keys(self._keys)[1] == 0, "drop from memory")
        return self._step("drop them from LMCache's memory", started)

    def _load(self) -> tuple[Step, int]:
        """Looks the chunks up, loads them into LMCache's memory and compares every byte."""
        import torch  # noqa: PLC0415 - an optional part of the package
        from lmcache.v1.distributed.api import (  # noqa: PLC0415 - an optional part
            GroupedObjectKeys,
            PrefetchTaskSpec,
        )

        group = GroupedObjectKeys(object_group_id=0, keys=self._keys, layout_desc=self._layout)
        started = time.monotonic()
        handle = self._manager.submit_prefetch_task(PrefetchTaskSpec(key_groups=[group]))
        self._manager.wait_prefetch_status(handle, _WAIT_SECONDS)
        step = self._step("look up and load them back", started, is_transfer=True)
        result = self._manager.query_prefetch_status(handle)
        step.count = result.l2_hit_cells[0].popcount() if result else 0
        keys, objects = self._manager.unsafe_read(self._keys[: step.count])
        expected = dict(zip(self._keys, self._tensors, strict=True))
        verified = 0
        for key, loaded in zip(keys, objects, strict=True):
            pair = (loaded.tensor, expected[key])
            verified += torch.equal(*(side.reshape(-1).view(torch.uint8) for side in pair))
        if keys:
            self._manager.finish_read_prefetched(keys)
        return step, verified

    def _delete(self) -> Step:
        started = time.monotonic()
        self._witness.delete_many(self._names)
        return self._step("delete them from the cluster", started)

    def _step(self, name: str, started: float, *, is_transfer: bool = False) -> Step:
        seconds = time.monotonic() - started
        return Step(name, len(self._tensors), _size(self._tensors), seconds, is_transfer)


def _size(tensors: list[torch.Tensor]) -> int:
    return sum(tensor.nbytes for tensor in tensors)


def _await(is_done: Callable[[], bool], what: str) -> None:
    deadline = time.monotonic() + _WAIT_SECONDS
    while not is_done():
        if time.monotonic() > deadline:
            msg = f"demo: {what}: not done after {_WAIT_SECONDS} s"
            raise TimeoutError(msg)
        time.sleep(_POLL_SECONDS)


def _print_start(
    session: Session, where: str, origin: str, tensors: list[torch.Tensor], adapter: dict[str, Any]
) -> None:
    if session.json:
        return
    out = session.output
    out.print(f"[bold]1.[/] Connected to {where}.")
    out.print(
        f"[bold]2.[/] {len(tensors)} KV chunks of {bytes_text(tensors[0].nbytes)}: "
        f"{list(tensors[0].shape)} bfloat16, {origin}."
    )
    out.print("[bold]3.[/] LMCache's StorageManager runs with this --l2-adapter:\n")
    out.print(Syntax(json.dumps(adapter, indent=2), "json", background_color="default"))


def _print_report(
    session: Session, steps: list[Step], verified: int, tensors: list[torch.Tensor]
) -> None:
    count = len(tensors)
    if session.json:
        session.write_json(
            {
                "chunks": count,
                "verified": verified,
                "bytes": _size(tensors),
                "steps": [vars(step) for step in steps],
            }
        )
        return
    table = Table(box=None, pad_edge=False, header_style="bold")
    table.add_column("what LMCache did")
    for title in ("chunks", "bytes", "seconds", "per second"):
        table.add_column(title, justify="right")
    for step in steps:
        rate = bytes_text(step.size / max(step.seconds, 1e-9)) if step.is_transfer else ""
        table.add_row(
            step.name,
            str(step.count),
            bytes_text(step.size),
            f"{step.seconds:.3f}",
            rate,
        )
    session.output.print()
    session.output.print(table)
    style = "bold green" if verified == count else "bold red"
    session.output.print(
        f"\n[{style}]{verified} of {count} chunks came back with every byte as it was.[/]\n"
    )
    session.output.print(
        Panel.fit(
            "On a real cluster (its namespace needs nsup-period, e.g. 120):\n"
            "  lmcache-aerospike demo --hosts HOST:3000\n"
            "In LMCache: the JSON above as --l2-adapter, with your hosts.",
            title="next",
        )
    )
