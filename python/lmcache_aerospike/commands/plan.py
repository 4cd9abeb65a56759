# SPDX-License-Identifier: Apache-2.0
"""``plan``: how many nodes, index memory and storage a fleet needs."""

from __future__ import annotations

import json as json_module
import math
import sys
from dataclasses import asdict
from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table

from lmcache_aerospike.commands import session
from lmcache_aerospike.commands._sizing import (
    DTYPE_BYTES,
    FILL,
    PRESETS,
    Fleet,
    Model,
    Plan,
    conf_lines,
    make_plan,
)
from lmcache_aerospike.commands.session import bytes_text, duration_text
from lmcache_aerospike.commands.specs import parse_bytes
from lmcache_aerospike.errors import AerospikeConfigError

_RECORD_BYTES_MIN = 128 << 10
_RECORD_BYTES_MAX = 8 << 20
_WIDE = 200

_NAMES = ", ".join(PRESETS)

_Parts = Annotated[
    int, typer.Option(min=1, help="GPUs that share the heads; one object for each and chunk.")
]
_Ratio = Annotated[
    float, typer.Option(min=0.01, max=2.0, help="Bytes behind the serde; 0.5 for fp8.")
]
_LoadRate = Annotated[
    float, typer.Option(min=0, help="Tokens a second that are loaded, all engines.")
]
_StoreRate = Annotated[
    float | None,
    typer.Option(
        min=0,
        help="Tokens a second that are stored; what fills the cache once a TTL.",
        show_default=False,
    ),
]


def plan(
    *,
    model: Annotated[
        str | None, typer.Option(help=f"A known one: {_NAMES}.", show_default=False)
    ] = None,
    layers: Annotated[int, typer.Option(min=0, help="Of another model.")] = 0,
    kv_heads: Annotated[int, typer.Option(min=0, help="Key-value heads of it.")] = 0,
    head_dim: Annotated[int, typer.Option(min=0, help="Elements of a head.")] = 0,
    latent: Annotated[
        int, typer.Option(min=0, help="Elements of a token and layer, for latent attention (MLA).")
    ] = 0,
    dtype: Annotated[str, typer.Option(help="Of the KV cache: " + ", ".join(DTYPE_BYTES))] = (
        "bfloat16"
    ),
    tokens: Annotated[int, typer.Option(min=0, help="To keep, of all users.")] = 0,
    users: Annotated[int, typer.Option(min=0, help="Instead: users, with --context.")] = 0,
    context: Annotated[int, typer.Option(min=0, help="Tokens of each user.")] = 0,
    chunk_tokens: Annotated[int, typer.Option(min=1, help="LMCache's chunk size.")] = 256,
    tp: _Parts = 1,
    serde_ratio: _Ratio = 1.0,
    ttl: Annotated[int, typer.Option(min=1, help="Seconds that an object lives.")] = 86_400,
    replication: Annotated[int, typer.Option(min=1, max=8, help="Copies.")] = 1,
    record_size: Annotated[str, typer.Option(help="max-record-size of the server.")] = "1M",
    node_ram: Annotated[str, typer.Option(help="Memory of a node.")] = "64G",
    node_ssd: Annotated[
        str, typer.Option(help="Devices of a node; 0 = objects are kept in memory.")
    ] = "0",
    node_gbit: Annotated[float, typer.Option(min=0.1, help="Link of a node, Gbit/s.")] = 25.0,
    load_rate: _LoadRate = 0.0,
    store_rate: _StoreRate = None,
    namespace: Annotated[str, typer.Option(help="Name in aerospike.conf.")] = "lmcache",
    json: session.Json = False,
) -> None:
    """Say how many nodes, index memory and storage a fleet needs, and write aerospike.conf.

    Needs a model and what to keep: --model llama-3.1-8b --users 200 --context 32000. No server.
    """
    shape = _model(model, Model(layers, kv_heads, head_dim, latent))
    fleet = Fleet(
        chunks=_chunks(tokens, users, context, chunk_tokens),
        chunk_tokens=chunk_tokens,
        # Latent attention has no heads to share: one copy serves all GPUs.
        parts=1 if shape.latent else tp,
        ratio=serde_ratio,
        record_bytes=_record_bytes(record_size),
        replication=replication,
        ttl=ttl,
        node_ram=_positive("--node-ram", node_ram),
        node_ssd=parse_bytes("--node-ssd", node_ssd),
        node_link=node_gbit * 1e9 / 8,
        load_rate=load_rate,
        store_rate=store_rate,
    )
    if dtype not in DTYPE_BYTES:
        msg = f"--dtype: '{dtype}', expected one of {', '.join(DTYPE_BYTES)}"
        raise AerospikeConfigError(msg)
    made = make_plan(shape, DTYPE_BYTES[dtype], fleet)
    lines = conf_lines(made, fleet, namespace)
    if json:
        json_module.dump({**asdict(made), "aerospike_conf": lines}, sys.stdout, indent=2)
        sys.stdout.write("\n")
        return
    console = Console(highlight=False, width=None if sys.stdout.isatty() else _WIDE)
    console.print(_table(made, fleet))
    console.print()
    for line in lines:
        typer.echo(line)
    Console(stderr=True, highlight=False).print(
        f"and for LMCache: default_ttl_seconds={ttl}", markup=False
    )


def _model(name: str | None, given: Model) -> Model:
    if name is not None:
        if name not in PRESETS:
            msg = f"--model: '{name}', expected one of {_NAMES}; or --layers and the others"
            raise AerospikeConfigError(msg)
        return PRESETS[name]
    if not given.layers or not (given.latent or (given.kv_heads and given.head_dim)):
        msg = (
            "--model: not given, expected a known one, or --layers with --kv-heads and --head-dim, "
            "or --layers with --latent"
        )
        raise AerospikeConfigError(msg)
    return given


def _chunks(tokens: int, users: int, context: int, chunk_tokens: int) -> int:
    if bool(tokens) == bool(users and context):
        msg = "--tokens: expected either --tokens, or --users and --context"
        raise AerospikeConfigError(msg)
    if tokens:
        return math.ceil(tokens / chunk_tokens)
    # LMCache stores full chunks only.
    chunks = users * (context // chunk_tokens)
    if not chunks:
        msg = f"--context: {context}, expected at least one chunk of {chunk_tokens} tokens"
        raise AerospikeConfigError(msg)
    return chunks


def _record_bytes(text: str) -> int:
    size = parse_bytes("--record-size", text)
    if not _RECORD_BYTES_MIN <= size <= _RECORD_BYTES_MAX:
        msg = f"--record-size: {text}, expected 128K to 8M"
        raise AerospikeConfigError(msg)
    return size


def _positive(option: str, text: str) -> int:
    size = parse_bytes(option, text)
    if size == 0:
        msg = f"{option}: 0, expected more"
        raise AerospikeConfigError(msg)
    return size


def _table(made: Plan, fleet: Fleet) -> Table:
    table = Table(box=None, pad_edge=False, show_header=False)
    table.add_column(style="bold", no_wrap=True)
    table.add_column(justify="right", no_wrap=True)
    table.add_column(style="dim", overflow="fold")
    where = "device" if fleet.node_ssd else "memory"
    rows = [
        ("KV cache of a token", bytes_text(made.token_bytes), ""),
        ("of a chunk", bytes_text(made.chunk_bytes), f"{fleet.chunk_tokens} tokens"),
        (
            "stored object",
            bytes_text(made.object_bytes),
            f"{made.segments} x {bytes_text(made.segment_bytes)}; {fleet.parts} for each chunk",
        ),
        ("objects", f"{made.objects:,}", f"{fleet.chunks:,} chunks"),
        ("records", f"{made.records:,}", "segments and meta records"),
        ("payload", bytes_text(made.payload_bytes), "without copies"),
        ("index memory", bytes_text(made.index_bytes), f"64 B x {fleet.replication} copies"),
        ("storage", bytes_text(made.storage_bytes), f"in {where}, overhead and copies included"),
        (
            "space",
            bytes_text(made.storage_bytes / FILL),
            f"so that it is {FILL * 100:.0f} % full; writes stop at 70 %",
        ),
        ("loads", f"{bytes_text(made.load_bytes)}/s", ""),
        (
            "stores",
            f"{bytes_text(made.store_bytes)}/s",
            f"copies included; an object lives {duration_text(fleet.ttl)}",
        ),
        ("nodes by memory", str(made.nodes_memory), f"of {bytes_text(fleet.node_ram)}"),
    ]
    if fleet.node_ssd:
        rows.append(("nodes by device", str(made.nodes_ssd), f"of {bytes_text(fleet.node_ssd)}"))
    rows.append(("nodes by link", str(made.nodes_link), f"of {fleet.node_link * 8 / 1e9:g} Gbit/s"))
    rows.append(("nodes", str(made.nodes), "the most of these, and at least one for each copy"))
    for row in rows:
        table.add_row(*row)
    return table
