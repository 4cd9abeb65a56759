# SPDX-License-Identifier: Apache-2.0
"""What the client commands share: connection options, output, exit codes."""

from __future__ import annotations

import contextlib
import functools
import inspect
import json
import logging
import re
import sys
from collections.abc import Callable
from dataclasses import dataclass, fields
from typing import Annotated, Any, NoReturn

import typer
from rich.console import Console
from rich.logging import RichHandler

from lmcache_aerospike.config import Config
from lmcache_aerospike.errors import AerospikeConfigError
from lmcache_aerospike.store import Store

MISS = 1
USAGE = 2
UNAVAILABLE = 3

_WIDE = 200

Hosts = Annotated[
    str | None, typer.Option("--hosts", help="Nodes: host:port[,host:port...].", show_default=False)
]
Namespace = Annotated[
    str | None, typer.Option("--namespace", help="Namespace of the server.", show_default=False)
]
SetName = Annotated[
    str | None, typer.Option("--set", help="Set that holds the objects.", show_default=False)
]
Username = Annotated[
    str | None, typer.Option("--username", help="User, if there is a login.", show_default=False)
]
PasswordFile = Annotated[
    str | None, typer.Option("--password-file", help="File with its password.", show_default=False)
]
More = Annotated[
    list[str] | None,
    typer.Option(
        "--option", "-O", metavar="NAME=VALUE", help="Any other option.", show_default=False
    ),
]
Json = Annotated[bool, typer.Option("--json", help="Machine-readable output.")]


# The engine logs what fails, and that a namespace is full; commands report the same, for each key.
_OUTCOME = re.compile(
    r"namespace .+(, set .+: \w+ failed: | takes (no more writes: |stores again))"
)


class _Gate(logging.Handler):
    """Holds records back until it is opened; leaves out what the command says itself."""

    def __init__(self, target: logging.Handler) -> None:
        super().__init__()
        self._target = target
        self._held: list[logging.LogRecord] | None = []

    def emit(self, record: logging.LogRecord) -> None:
        if _OUTCOME.match(record.getMessage()):
            return
        if self._held is None:
            self._target.handle(record)
        else:
            self._held.append(record)

    def open(self) -> None:
        """Lets all records through, the held ones first."""
        with self.lock or contextlib.nullcontext():
            held, self._held = self._held or [], None
            for record in held:
                self._target.handle(record)


@dataclass
class Session:
    """What was given on the command line, before or behind the command.

    Attributes:
        hosts: Option `hosts`.
        namespace: Option `namespace`.
        set_name: Option `set_name`.
        username: Option `username`.
        password_file: Option `password_file`.
        option: Others, as "name=value".
        json: Whether output is for programs.
    """

    hosts: str | None = None
    namespace: str | None = None
    set_name: str | None = None
    username: str | None = None
    password_file: str | None = None
    option: list[str] | None = None
    json: bool = False

    def __post_init__(self) -> None:
        self.messages = Console(stderr=True, highlight=False)
        # Lines that a program reads are not folded.
        self.output = Console(highlight=False, width=None if sys.stdout.isatty() else _WIDE)

    def merged(self, inner: Session) -> Session:
        """These, overridden by what `inner` has."""
        both = {
            entry.name: getattr(inner, entry.name) or getattr(self, entry.name)
            for entry in fields(self)
        }
        both["option"] = [*(self.option or []), *(inner.option or [])]
        return Session(**both)

    def given(self) -> dict[str, Any]:
        """The options by name."""
        out: dict[str, Any] = {
            name: getattr(self, name)
            for name in ("hosts", "namespace", "set_name", "username", "password_file")
        }
        for text in self.option or ():
            name, equals, value = text.partition("=")
            if not equals:
                msg = f"--option: '{text}', expected NAME=VALUE"
                raise AerospikeConfigError(msg)
            out[name] = value
        return out

    def open(self) -> Store:
        """Connects; log lines of the engine go to stderr from here on.

        Those of a failed attempt are left out: the error says the same.
        """
        handler = _Gate(RichHandler(console=self.messages, show_time=False, show_path=False))
        logging.basicConfig(level=logging.WARNING, format="%(message)s", handlers=[handler])
        store = Store(**self.given())
        handler.open()
        return store

    def resolved(self) -> Config:
        """The options, checked."""
        return Config.resolve(self.given())

    def say(self, text: str) -> None:
        """Words for people, on stderr."""
        self.messages.print(text, markup=False, soft_wrap=True)

    def write_json(self, value: object) -> None:
        """One JSON document on stdout."""
        json.dump(value, sys.stdout, indent=2)
        sys.stdout.write("\n")


def client_command(function: Callable[..., None]) -> Callable[..., None]:
    """Gives a command the connection options; its first parameter becomes the Session."""
    own = inspect.signature(function, eval_str=True)
    first, *parameters = own.parameters.values()
    common = {
        "hosts": (Hosts, None),
        "namespace": (Namespace, None),
        "set_name": (SetName, None),
        "username": (Username, None),
        "password_file": (PasswordFile, None),
        "option": (More, None),
        "json": (Json, False),
    }

    @functools.wraps(function)
    def command(ctx: typer.Context, **arguments: Any) -> None:  # noqa: ANN401 - any option
        inner = Session(**{name: arguments.pop(name) for name in common})
        outer = ctx.obj if isinstance(ctx.obj, Session) else Session()
        function(outer.merged(inner), **arguments)

    keyword = inspect.Parameter.KEYWORD_ONLY
    context = inspect.Parameter("ctx", keyword, annotation=typer.Context)
    shared = [
        inspect.Parameter(name, keyword, default=default, annotation=kind)
        for name, (kind, default) in common.items()
    ]
    every = [context, *(p.replace(kind=keyword) for p in parameters), *shared]
    command.__signature__ = own.replace(parameters=every)  # type: ignore[attr-defined]
    command.__annotations__ = {p.name: p.annotation for p in every}
    del first
    return command


def stop(code: int) -> NoReturn:
    """Ends the command with an exit code."""
    raise typer.Exit(code)


def confirm(question: str, *, yes: bool) -> None:
    """Asks on the terminal; ends the command unless the answer is yes.

    Args:
        question: What is about to happen.
        yes: The option that answers beforehand.

    Raises:
        AerospikeConfigError: There is nobody to ask.
    """
    if yes:
        return
    if not sys.stdin.isatty():
        msg = f"--yes: not given, expected it where no terminal can answer: {question}"
        raise AerospikeConfigError(msg)
    if not typer.confirm(question, err=True):
        stop(MISS)


def bytes_text(count: float) -> str:
    """A size for people: "2.25 MiB"."""
    for unit in ("B", "KiB", "MiB", "GiB"):
        if count < 1024:
            return f"{count:.0f} {unit}" if unit == "B" else f"{count:.2f} {unit}"
        count /= 1024
    return f"{count:.2f} TiB"


def duration_text(seconds: float | None) -> str:
    """A time span for people: "23 h 59 min"; None is never."""
    if seconds is None:
        return "never"
    seconds = max(0, int(seconds))
    for unit, size, smaller, part in (("d", 86400, "h", 3600), ("h", 3600, "min", 60)):
        if seconds >= size:
            return f"{seconds // size} {unit} {seconds % size // part} {smaller}"
    return f"{seconds // 60} min {seconds % 60} s" if seconds >= 60 else f"{seconds} s"
