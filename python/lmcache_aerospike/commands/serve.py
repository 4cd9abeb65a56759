# SPDX-License-Identifier: Apache-2.0
"""``serve``: the development server in the foreground."""

from __future__ import annotations

import signal
from typing import Annotated

import typer

from lmcache_aerospike import _log, _native
from lmcache_aerospike.commands.serve_control import obey_until
from lmcache_aerospike.commands.serve_tls import TlsArguments, TlsSetup, tls_setup
from lmcache_aerospike.commands.specs import parse_bytes, parse_fault, parse_namespace, parse_racks

_NAMESPACE_HELP = (
    "A namespace: name[,size=1G][,nsup=120][,max-record-size=1M][,default-ttl=0]"
    "[,allow-ttl-without-nsup=true]. Can be given more than once."
)

_Port = Annotated[int, typer.Option(help="Port of the first node, the others follow; 0 = any.")]
_Host = Annotated[str, typer.Option(help="Address to bind and to advertise.")]
_Nodes = Annotated[int, typer.Option(help="Nodes of the cluster, in one process.")]
_Replication = Annotated[int, typer.Option(help="Copies of each record.")]
_Namespace = Annotated[list[str] | None, typer.Option(help=_NAMESPACE_HELP)]
_User = Annotated[
    list[str] | None,
    typer.Option(
        help="name:password[:role[+role]][:internal|external|pki]. Without one, logins are refused."
    ),
]
_Fault = Annotated[
    list[str] | None,
    typer.Option(help="For tests: action[,kinds=get+put][,skip=2][,count=1][,code=18]..."),
]
_Threads = Annotated[int, typer.Option(help="That serve connections; 0 = up to 4.")]
_Reserve = Annotated[
    str, typer.Option(help="Memory for new records that is made ready before it is needed.")
]
_Link = Annotated[
    str, typer.Option(help="Bytes a second through the link of each node; 0 = no limit.")
]
_Latency = Annotated[float, typer.Option(help="Milliseconds by which every answer leaves later.")]
_SpareNodes = Annotated[int, typer.Option(help="Nodes that --control can add to those of --nodes.")]
_Racks = Annotated[str, typer.Option(help="Rack of each node, the spare ones included: 1,1,2,2.")]
_AdvertisedHost = Annotated[str, typer.Option(help="Address to advertise in place of --host.")]
_AlternateHost = Annotated[
    str, typer.Option(help="A second address to bind, advertised as alternate.")
]
_TlsDir = Annotated[
    str, typer.Option(help="Speak TLS with certificates that are made in this folder.")
]
_TlsCert = Annotated[str, typer.Option(help="Speak TLS with this certificate (PEM).")]
_TlsKey = Annotated[str, typer.Option(help="Its key (PEM).")]
_TlsCa = Annotated[str, typer.Option(help="Who signs certificates of clients (PEM).")]
_TlsName = Annotated[str, typer.Option(help="Name of the certificate, for clients.")]
_TlsPort = Annotated[int, typer.Option(help="TLS port of the first node; 0 = any.")]
_TlsClientCertificates = Annotated[
    str, typer.Option(help="Whether clients show one: none, optional or required.")
]
_ClearPort = Annotated[bool, typer.Option(help="Serve clear text as well, where TLS is served.")]
_Control = Annotated[bool, typer.Option("--control", help="Take commands on stdin, one a line.")]


def serve(
    *,
    port: _Port = 3000,
    host: _Host = "127.0.0.1",
    nodes: _Nodes = 1,
    replication: _Replication = 2,
    namespace: _Namespace = None,
    user: _User = None,
    fault: _Fault = None,
    threads: _Threads = 0,
    reserve: _Reserve = "256M",
    link: _Link = "0",
    latency: _Latency = 0.0,
    spare_nodes: _SpareNodes = 0,
    racks: _Racks = "",
    advertised_host: _AdvertisedHost = "",
    alternate_host: _AlternateHost = "",
    tls_dir: _TlsDir = "",
    tls_cert: _TlsCert = "",
    tls_key: _TlsKey = "",
    tls_ca: _TlsCa = "",
    tls_name: _TlsName = "",
    tls_port: _TlsPort = 0,
    tls_client_certificates: _TlsClientCertificates = "none",
    clear_port: _ClearPort = True,
    control: _Control = False,
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
    tls_arguments = TlsArguments(
        directory=tls_dir,
        cert=tls_cert,
        key=tls_key,
        ca=tls_ca,
        name=tls_name,
        port=tls_port,
        client_certificates=tls_client_certificates,
    )
    tls = tls_setup(tls_arguments, users)
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
        _announce(server, tls)
        _await_end(server, ends, takes_commands=control)


def _announce(server: _native.DevServer, tls: TlsSetup | None) -> None:
    typer.echo(f"ready {server.hosts}")
    if tls:
        typer.echo(f"tls {server.tls_hosts}")
        typer.echo(f"client --hosts {server.tls_hosts} {tls.client_line()}")


def _await_end(
    server: _native.DevServer, ends: set[signal.Signals], *, takes_commands: bool
) -> None:
    if takes_commands:
        obey_until(server, ends)
    else:
        signal.sigwait(ends)
