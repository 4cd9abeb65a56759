# SPDX-License-Identifier: Apache-2.0
"""The command ``lmcache-aerospike``."""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from lmcache_aerospike import __version__, errors
from lmcache_aerospike.commands.serve import serve

MISS = 1
USAGE = 2
UNAVAILABLE = 3

app = typer.Typer(
    name="lmcache-aerospike",
    help="Keeps the KV cache of LLM serving in an Aerospike cluster.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _print_version(wanted: bool) -> None:
    if wanted:
        typer.echo(__version__)
        raise typer.Exit


@app.callback()
def _options(
    version: Annotated[
        bool,
        typer.Option("--version", callback=_print_version, is_eager=True, help="Print it."),
    ] = False,
) -> None:
    pass


app.command()(serve)


def main() -> None:
    """Runs the command; errors become one line on stderr and an exit code."""
    try:
        app()
    except errors.InvalidArgumentError as error:
        _fail(error, USAGE)
    except errors.NotFoundError as error:
        _fail(error, MISS)
    except errors.AerospikeConnectorError as error:
        _fail(error, UNAVAILABLE)
    except OSError as error:
        _fail(error, USAGE)


def _fail(error: Exception, code: int) -> None:
    print(f"lmcache-aerospike: {error}", file=sys.stderr)
    sys.exit(code)
