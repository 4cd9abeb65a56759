# SPDX-License-Identifier: Apache-2.0
"""``serve``: the development server in the foreground."""

from __future__ import annotations

import signal
from typing import Annotated

import typer

from lmcache_aerospike import _log, _native
from lmcache_aerospike.commands.specs import parse_bytes, parse_fault, parse_namespace, parse_user

_NAMESPACE_HELP = (
    "A namespace: name[,size=1G][,nsup=120][,max-record-size=1M][,default-ttl=0]"
    "[,allow-ttl-without-nsup=true]. Can be given more than once."
)


def serve(
    *,
    port: Annotated[
        int, typer.Option(help="Port of the first node, the others follow; 0 = any.")
    ] = 3000,
    host: Annotated[str, typer.Option(help="Address to bind and to advertise.")] = "127.0.0.1",
    nodes: Annotated[int, typer.Option(help="Nodes of the cluster, in one process.")] = 1,
    replication: Annotated[int, typer.Option(help="Copies of each record.")] = 2,
    namespace: Annotated[list[str] | None, typer.Option(help=_NAMESPACE_HELP)] = None,
    user: Annotated[
        list[str] | None,
        typer.Option(help="name:password[:read|:write]. Without users, logins are refused."),
    ] = None,
    fault: Annotated[
        list[str] | None,
        typer.Option(help="For tests: action[,kinds=get+put][,skip=2][,count=1][,code=18]..."),
    ] = None,
    threads: Annotated[int, typer.Option(help="That serve connections; 0 = up to 4.")] = 0,
    reserve: Annotated[
        str, typer.Option(help="Memory for new records that is made ready before it is needed.")
    ] = "256M",
    link: Annotated[
        str, typer.Option(help="Bytes a second through the link of each node; 0 = no limit.")
    ] = "0",
) -> None:
    """Run a development server: in memory, no root; for tests, demos and single machines.

    Prints "ready host:port[,host:port...]" once it takes clients. Ends with Ctrl-C or SIGTERM.
    """
    ends = {signal.SIGINT, signal.SIGTERM}
    # Blocked before the server makes its threads, so that only sigwait() sees them.
    signal.pthread_sigmask(signal.SIG_BLOCK, ends)
    _log.start()
    faults = [parse_fault(text) for text in fault or ()]
    with _native.DevServer(
        host=host,
        port=port,
        nodes=nodes,
        replication=min(replication, nodes),
        namespaces=[parse_namespace(text) for text in namespace or ["lmcache"]],
        users=[parse_user(text) for text in user or ()],
        threads=threads,
        reserve_bytes=parse_bytes("--reserve", reserve),
        link_bytes_per_second=parse_bytes("--link", link),
    ) as server:
        for entry in faults:
            server.add_fault(**entry)
        typer.echo(f"ready {server.hosts}")
        signal.sigwait(ends)
