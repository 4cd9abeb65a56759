# SPDX-License-Identifier: Apache-2.0
"""``config``: the table of options and what is in effect."""

from __future__ import annotations

from typing import Annotated

import typer
from rich.table import Table
from rich.text import Text

from lmcache_aerospike.commands.session import Session
from lmcache_aerospike.config import OPTIONS, Config, Option


def config(
    session: Session,
    markdown: Annotated[bool, typer.Option(help="The table of the documentation.")] = False,
) -> None:
    """Show every option: its value, where that came from, and what it does. No secrets."""
    if markdown:
        typer.echo(markdown_table(), nl=False)
        return
    effective = Config.resolve(session.given(), complete=False)
    shown = effective.shown()
    if session.json:
        session.write_json(
            {
                option.name: {
                    "value": shown[option.name],
                    "source": effective.sources[option.name],
                    "default": option.default,
                    "unit": option.unit,
                    "expected": option.expected,
                    "effect": option.effect,
                }
                for option in OPTIONS
            }
        )
        return
    table = Table(box=None, pad_edge=False, header_style="bold")
    for title in ("option", "value", "from", "effect"):
        table.add_column(title, overflow="fold", no_wrap=title == "option")
    for option in OPTIONS:
        value = shown[option.name]
        text = "" if value is None else str(value).lower() if value in (True, False) else str(value)
        source = effective.sources[option.name]
        style = "dim" if source == "default" else "bold"
        table.add_row(option.name, Text(text, style), Text(source, style), Text(option.effect))
    session.output.print(table)


def markdown_table() -> str:
    """The table of docs/reference/config.md."""
    rows = [
        "| option | type, unit | default | good values | effect |",
        "| --- | --- | --- | --- | --- |",
    ]
    for option in OPTIONS:
        kind = f"{option.kind}, {option.unit}" if option.unit else option.kind
        kind = "bytes" if option.kind == "bytes" else kind
        effect = option.effect + _also(option)
        rows.append(
            f"| `{option.name}` | {kind} | {_default_text(option)} | {option.expected} | {effect} |"
        )
    return "\n".join(rows) + "\n"


def _default_text(option: Option) -> str:
    if option.default is None:
        return "none: needed"
    if option.default == "":
        return "empty"
    return f"`{str(option.default).lower()}`"


def _also(option: Option) -> str:
    parts = [f"also accepted as `{alias}`" for alias in option.aliases]
    if option.environment:
        parts.append(f"environment: `{option.environment}`")
    return f" ({'; '.join(parts)})" if parts else ""
