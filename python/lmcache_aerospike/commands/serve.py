# SPDX-License-Identifier: Apache-2.0
"""``serve``: the development server in the foreground."""

from __future__ import annotations

import signal
from typing import Annotated

import typer

from lmcache_aerospike import _log, _native
from lmcache_aerospike.commands.serve_control import obey_until
from lmcache_aerospike.commands.serve_tls import TlsArguments, tls_setup
from lmcache_aerospike.commands.specs import parse_bytes, parse_fault, parse_namespace, parse_racks

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
        typer.Option(
            help="name:password[:role[+role]][:internal|external|pki]. Without users, logins are "
            "refused."
        ),
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
    latency: Annotated[
        float, typer.Option(help="Milliseconds by which every answer leaves later.")
    ] = 0.0,
    spare_nodes: Annotated[
        int, typer.Option(help="Nodes that --control can add to those of --nodes.")
    ] = 0,
    racks: Annotated[
        str, typer.Option(help="Rack of each node, the spare ones included: 1,1,2,2.")
    ] = "",
    advertised_host: Annotated[
        str, typer.Option(help="Address to advertise in place of --host.")
    ] = "",
    alternate_host: Annotated[
        str, typer.Option(help="A second address to bind, advertised as alternate.")
    ] = "",
    tls_dir: Annotated[
        str, typer.Option(help="Speak TLS with certificates that are made in this folder.")
    ] = "",
    tls_cert: Annotated[str, typer.Option(help="Speak TLS with this certificate (PEM).")] = "",
    tls_key: Annotated[str, typer.Option(help="Its key (PEM).")] = "",
    tls_ca: Annotated[str, typer.Option(help="Who signs certificates of clients (PEM).")] = "",
    tls_name: Annotated[str, typer.Option(help="Name of the certificate, for clients.")] = "",
    tls_port: Annotated[int, typer.Option(help="TLS port of the first node; 0 = any.")] = 0,
    tls_client_certificates: Annotated[
        str, typer.Option(help="Whether clients show one: none, optional or required.")
    ] = "none",
    clear_port: Annotated[
        bool, typer.Option(help="Serve clear text as well, where TLS is served.")
    ] = True,
    control: Annotated[
        bool, typer.Option("--control", help="Take commands on stdin, one a line.")
    ] = False,
) -> None:
    """Run a development server: in memory, no root; for tests, demos and single machines.

    Prints "ready host:port[,host:port...]" once it takes clients; with TLS also "tls" and the
    addresses, and "client" and the options that a client needs. Ends with Ctrl-C or SIGTERM.
    """
    ends = {signal.SIGINT, signal.SIGTERM}
    # Blocked before the server makes its threads, so that only sigwait() sees them.
    signal.pthread_sigmask(signal.SIG_BLOCK, ends)
    _log.start()
    faults = [parse_fault(text) for text in fault or ()]
    users = list(user or ())
    tls = tls_setup(
        TlsArguments(
            directory=tls_dir,
            cert=tls_cert,
            key=tls_key,
            ca=tls_ca,
            name=tls_name,
            port=tls_port,
            client_certificates=tls_client_certificates,
        ),
        users,
    )
    with _native.DevServer(
        host=host,
        port=port,
        nodes=nodes,
        spare_nodes=spare_nodes,
        replication=min(replication, nodes + spare_nodes),
        namespaces=[parse_namespace(text) for text in namespace or ["lmcache"]],
        users=users,
        threads=threads,
        reserve_bytes=parse_bytes("--reserve", reserve),
        link_bytes_per_second=parse_bytes("--link", link),
        racks=parse_racks(racks),
        advertised_host=advertised_host,
        alternate_host=alternate_host,
        tls=tls.server if tls else None,
        clear_port=clear_port,
    ) as server:
        for entry in faults:
            server.add_fault(**entry)
        server.set_latency(-1, latency)
        typer.echo(f"ready {server.hosts}")
        if tls:
            typer.echo(f"tls {server.tls_hosts}")
            typer.echo(f"client --hosts {server.tls_hosts} {tls.client_line()}")
        if control:
            obey_until(server, ends)
        else:
            signal.sigwait(ends)
