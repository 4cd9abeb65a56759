# SPDX-License-Identifier: Apache-2.0
"""The command ``lmcache-aerospike``."""

from __future__ import annotations

import os
import sys
from typing import Annotated

import typer

from lmcache_aerospike import __version__, errors
from lmcache_aerospike.commands import session
from lmcache_aerospike.commands._remedies import explained
from lmcache_aerospike.commands.bench import bench
from lmcache_aerospike.commands.config import config
from lmcache_aerospike.commands.demo import demo
from lmcache_aerospike.commands.doctor import doctor
from lmcache_aerospike.commands.fsck import fsck
from lmcache_aerospike.commands.get import get
from lmcache_aerospike.commands.ls import ls
from lmcache_aerospike.commands.plan import plan
from lmcache_aerospike.commands.put import put
from lmcache_aerospike.commands.replay import replay
from lmcache_aerospike.commands.rm import rm
from lmcache_aerospike.commands.serve import serve
from lmcache_aerospike.commands.stat import stat

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
    ctx: typer.Context,
    *,
    hosts: session.Hosts = None,
    namespace: session.Namespace = None,
    set_name: session.SetName = None,
    username: session.Username = None,
    password_file: session.PasswordFile = None,
    option: session.More = None,
    json: session.Json = False,
    _version: Annotated[
        bool,
        typer.Option("--version", callback=_print_version, is_eager=True, help="Print it."),
    ] = False,
) -> None:
    ctx.obj = session.Session(hosts, namespace, set_name, username, password_file, option, json)


app.command()(serve)
app.command()(plan)
for _command in (demo, put, get, ls, stat, rm, config, bench, replay, doctor, fsck):
    app.command(name=_command.__name__)(session.client_command(_command))


def main() -> None:
    """Runs the command; errors become one line on stderr and an exit code."""
    try:
        app()
    except errors.InvalidArgumentError as error:
        _fail(str(error), session.USAGE)
    except errors.NotFoundError as error:
        _fail(str(error), session.MISS)
    except errors.AerospikeConnectorError as error:
        _fail(explained(error), session.UNAVAILABLE)
    except BrokenPipeError:
        # Whoever read the output has gone; nothing may be written at exit either.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(session.MISS)
    except OSError as error:
        _fail(
            f"{error.filename}: {error.strerror}" if error.filename else str(error), session.USAGE
        )


def _fail(message: str, code: int) -> None:
    print(f"lmcache-aerospike: {message}", file=sys.stderr)
    sys.exit(code)
