"""`twinlog topology`: clusters, the flows between them, and the paths that heartbeats have taken."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from functools import partial
from typing import Any

import typer

from twinlog.api.heartbeat.v1 import heartbeat_service_pb2 as pb2
from twinlog.cli.common.call import Call, Services, command
from twinlog.cli.common.failures import ANSWERS_IN_JSON
from twinlog.cli.common.fields import Field, Fields, print_json, table
from twinlog.cli.common.fields import as_json as row_as_json
from twinlog.cli.common.options import option
from twinlog.cli.status.rows import Status
from twinlog.errors import TwinlogError

CALL_TIMEOUT_SECONDS = 5.0
ALIVE = "ALIVE"
NOTABLE_SKEW_SECONDS = 1.0


class TopologyOutput(StrEnum):
    TREE = "tree"
    JSON = "json"
    DOT = "dot"


def _note(output: TopologyOutput) -> TopologyOutput:
    ANSWERS_IN_JSON.set(output is TopologyOutput.JSON)
    return output


@dataclass(frozen=True, slots=True, kw_only=True)
class Link:
    """A flow, as its heartbeats prove it."""

    source: str
    target: str
    state: str
    """ALIVE, SILENT or UNKNOWN."""
    delay_seconds: float | None = None
    """Delay of the newest heartbeat that arrived."""
    age_seconds: float | None = None
    """The age of that heartbeat."""
    reason: str = ""
    message: str = ""
    clock_skew_seconds: float | None = None
    """How far the clock of another writer of heartbeats is ahead; None = unknown."""
    partitions: Mapping[str, int] = field(default_factory=dict)
    """How many partitions of the flow are in each state; empty = the source service does not say."""
    lag_records: int | None = None
    """None = unknown."""

    @property
    def words(self) -> str:
        return "; ".join(filter(None, (self._copied, self._heartbeats)))

    @property
    def _copied(self) -> str:
        if not self.partitions:
            return ""
        lag = "?" if self.lag_records is None else f"{self.lag_records:,}"
        states = ", ".join(f"{count} {state}" for state, count in sorted(self.partitions.items()))
        return f"{states}, lag {lag}"

    @property
    def _heartbeats(self) -> str:
        if self.state == ALIVE and self.delay_seconds is not None:
            return f"heartbeats {self.state}, {self.delay_seconds:.3f} s{self._skew}"
        return f"heartbeats {self.state}" + (f": {self.reason}" if self.reason else "")

    @property
    def _skew(self) -> str:
        """Shown when it is large enough to explain odd times."""
        skew = self.clock_skew_seconds
        if skew is None or abs(skew) < NOTABLE_SKEW_SECONDS:
            return ""
        return f", another writer's clock is {abs(skew):.1f} s {'ahead' if skew > 0 else 'behind'}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Topology:
    clusters: Mapping[str, str]
    """Alias -> why it does not answer; empty while it does."""
    links: Sequence[Link]
    paths: Sequence[tuple[tuple[str, ...], str]]
    """The clusters from the origin of heartbeats to where they were seen, and the topic there."""
    failure: TwinlogError | None = None
    """Why nothing is known of heartbeats; None otherwise."""


@partial(command, takes=("config", "endpoint"))
def topology_command(
    call: Call,
    output: TopologyOutput = option(
        "--output -o", "How to print; dot is for Graphviz.", TopologyOutput.TREE, callback=_note
    ),
) -> None:
    """Show which cluster is copied where, the states and the lag of partitions, and how long heartbeats take.

    Below the tree are the paths that heartbeats have taken, also over several hops.

    If the heartbeat service does not answer, clusters and flows come from the other services, delays are not
    known, and the exit code is 1.
    """
    found = call.ask(lambda at: _ask(call, at))
    if output is TopologyOutput.JSON:
        print_json(as_json(found))
    else:
        typer.echo("\n".join((as_dot if output is TopologyOutput.DOT else as_tree)(found)))
    if found.failure is not None:
        raise found.failure


async def _ask(call: Call, at: Services) -> Topology:
    """Raises TwinlogError if no service reports a flow."""
    try:
        found = await _ask_heartbeat(at)
        copied = await call.status(CALL_TIMEOUT_SECONDS, "source")
        return replace(found, links=[_with_copies(link, copied) for link in found.links])
    except TwinlogError as error:
        others = await call.status(CALL_TIMEOUT_SECONDS)
        if not others.flows:
            raise
        return without_heartbeats(others, error)


def without_heartbeats(status: Status, failure: TwinlogError) -> Topology:
    """The topology from services that do not know heartbeats. Pure."""
    return Topology(
        clusters={
            alias: "" if True in row.seen_by.values() or not row.notes else row.notes[0].reason
            for alias, row in status.clusters.items()
        },
        links=[
            _with_copies(
                Link(
                    source=source, target=target, state="UNKNOWN", reason=failure.reason, message=str(failure)
                ),
                status,
            )
            for source, _, target in (name.partition("->") for name in sorted(status.flows))
        ],
        paths=[],
        failure=failure,
    )


async def _ask_heartbeat(at: Services) -> Topology:
    shown = await at.heartbeat.GetTopology(pb2.GetTopologyRequest(), timeout=CALL_TIMEOUT_SECONDS)
    delays = await at.heartbeat.ListDelays(pb2.ListDelaysRequest(), timeout=CALL_TIMEOUT_SECONDS)
    return Topology(
        clusters={
            cluster.alias: "" if cluster.reachable else cluster.reason or "UNKNOWN"
            for cluster in shown.clusters
        },
        links=[_link(delay) for delay in delays.delays],
        paths=[((*path.upstream_clusters, path.observed_on), path.topic) for path in shown.paths],
    )


def _with_copies(link: Link, status: Status) -> Link:
    row = status.flows.get(f"{link.source}->{link.target}")
    return link if row is None else replace(link, partitions=row.partitions, lag_records=row.lag_records)


_DELAY: Fields[pb2.FlowDelay] = table(
    "state delay_seconds=last_delay age_seconds=age reason message clock_skew_seconds=clock_skew"
)


def _link(delay: pb2.FlowDelay) -> Link:
    return Link(source=delay.flow.source, target=delay.flow.target, **row_as_json(_DELAY, delay))


_LINK: Fields[Link] = table(
    Field("flow", lambda link: f"{link.source}->{link.target}"),
    "state delay_seconds age_seconds reason message clock_skew_seconds partitions lag_records",
)


def as_json(topology: Topology) -> dict[str, Any]:
    return {
        "clusters": [
            {"alias": alias, "reachable": not reason, "reason": reason}
            for alias, reason in sorted(topology.clusters.items())
        ],
        "flows": [row_as_json(_LINK, link) for link in topology.links],
        "paths": [{"clusters": list(clusters), "topic": topic} for clusters, topic in topology.paths],
    }


def as_dot(topology: Topology) -> Iterator[str]:
    """In Graphviz's format."""
    yield "digraph twinlog {"
    yield "  rankdir=LR;"
    for alias, reason in sorted(topology.clusters.items()):
        label = f"{alias}\n{reason}" if reason else alias
        yield f"  {_quoted(alias)} [label={_quoted(label)}];"
    for link in topology.links:
        style = "solid" if link.state == ALIVE else "dashed"
        yield (
            f"  {_quoted(link.source)} -> {_quoted(link.target)}"
            f" [label={_quoted(link.words)}, style={style}];"
        )
    yield "}"


def _quoted(text: str) -> str:
    escaped = text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
    return f'"{escaped}"'


def as_tree(topology: Topology) -> Iterator[str]:
    """A tree from each cluster that is not a target; for a circle, from its first cluster by name."""
    below: dict[str, list[Link]] = {}
    for link in sorted(topology.links, key=lambda each: (each.source, each.target)):
        below.setdefault(link.source, []).append(link)
    targets = {link.target for link in topology.links}
    aliases = sorted({*topology.clusters, *below, *targets})
    shown: set[str] = set()
    for root in [*(alias for alias in aliases if alias not in targets), *aliases]:
        if root not in shown:
            yield _cluster(root, topology)
            shown.add(root)
            yield from _branches(root, below, topology, shown, indent="")
    far = [path for path in topology.paths if len(path[0]) > 1]
    if far:
        yield ""
        yield "heartbeats seen:"
        for clusters, topic in far:
            yield f"  {' -> '.join(clusters)} ({topic})"


def _branches(
    source: str, below: Mapping[str, Sequence[Link]], topology: Topology, shown: set[str], *, indent: str
) -> Iterator[str]:
    links = below.get(source, ())
    for number, link in enumerate(links, start=1):
        is_last = number == len(links)
        yield f"{indent}{'└─ ' if is_last else '├─ '}{_cluster(link.target, topology)}  {link.words}" + (
            " (see above)" if link.target in shown and below.get(link.target) else ""
        )
        if link.target not in shown:
            shown.add(link.target)
            deeper = indent + ("   " if is_last else "│  ")
            yield from _branches(link.target, below, topology, shown, indent=deeper)


def _cluster(alias: str, topology: Topology) -> str:
    reason = topology.clusters.get(alias, "")
    return f"{alias} [{reason}]" if reason else alias
