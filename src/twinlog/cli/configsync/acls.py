"""`twinlog acls`: the ACLs of both clusters of a flow, their copies, and who created these."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import typer

from twinlog.api.common.v1 import types_pb2
from twinlog.api.configsync.v1 import configsync_service_pb2 as pb2
from twinlog.api.configsync.v1.configsync_service_pb2_grpc import ConfigSyncServiceStub
from twinlog.cli.common.each_flow import FlowFailure, ask_each, failure_as_json, print_failure
from twinlog.cli.common.failures import EXIT_FAILED, exiting_with, run_async
from twinlog.cli.common.location import ConfigOption, EndpointOption
from twinlog.cli.common.output import Column, Output, OutputOption, print_json, print_table
from twinlog.cli.configsync.client import (
    PAGE,
    PASS_TIMEOUT_SECONDS,
    answered,
    chosen_flows,
    configsync_stub,
    flow_name,
    parse_flow,
)
from twinlog.cli.configsync.plan_view import acl_as_json
from twinlog.errors import ConfigError

_HELP = """Show the ACLs of a flow: those of its source with their copies, then what only the target has.

\b
IN_STEP   the target has the copy
MISSING   the target does not have it yet: see `twinlog plan --scope acls`
LEFT_OUT  it is not copied; the rule says why
SURPLUS   Twinlog made it, and the source no longer has it
FOREIGN   somebody else made it on the target; Twinlog does not change it

With a cluster instead of a flow it shows the ACLs that are or should be on this cluster, for every flow \
from or to it. The command changes nothing.

Exit code 1 if the ACLs of a flow cannot be read: the flow is named, with its reason, after the others.
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class FlowAcls:
    """A flow's ACLs, as far as they were requested."""

    flow: types_pb2.Flow
    entries: Sequence[pb2.AclEntry]


def acls_command(
    scope: Annotated[
        str | None,
        typer.Argument(
            metavar="[A->B|CLUSTER]", help="A flow such as `A->B`, or a cluster; all flows when left out."
        ),
    ] = None,
    config: ConfigOption = None,
    endpoint: EndpointOption = None,
    output: OutputOption = Output.TABLE,
) -> None:
    print_acls(run_async(_acls(scope, config, endpoint)), output)


acls_command.__doc__ = _HELP


def print_acls(answers: Sequence[FlowAcls | FlowFailure], output: Output) -> None:
    """Exits with 1 when a flow failed."""
    failures = [each for each in answers if isinstance(each, FlowFailure)]
    with exiting_with(EXIT_FAILED if failures else 0):
        if output is Output.JSON:
            print_json(
                [
                    document
                    for each in answers
                    for document in (
                        [failure_as_json(each)] if isinstance(each, FlowFailure) else _as_json(each)
                    )
                ]
            )
        else:
            for each in answers:
                if isinstance(each, FlowAcls):
                    _print_flow(each)
        for failure in failures:
            print_failure(failure)


def on_cluster(acls: FlowAcls, cluster: str) -> FlowAcls:
    """Only those that are, or should be, on this cluster of the flow."""
    is_source = acls.flow.source == cluster
    entries = [entry for entry in acls.entries if entry.HasField("source" if is_source else "target")]
    return FlowAcls(flow=acls.flow, entries=entries)


def flows_of(flows: Sequence[types_pb2.Flow], cluster: str) -> list[types_pb2.Flow]:
    """The flows from or to a cluster. Raises ConfigError when there are none."""
    found = [flow for flow in flows if cluster in (flow.source, flow.target)]
    if not found:
        known = ", ".join(sorted({alias for flow in flows for alias in (flow.source, flow.target)}))
        raise ConfigError(
            f"{cluster} is neither a flow such as A->B nor a cluster of a flow (clusters: {known or 'none'})",
            metadata={"key": "FLOW|CLUSTER"},
        )
    return found


async def _acls(
    scope: str | None, config: Path | None, endpoint: list[str] | None
) -> list[FlowAcls | FlowFailure]:
    cluster = None if scope is None or "->" in scope else scope
    async with configsync_stub(config, endpoint) as stub:
        if cluster is None:
            flows = [parse_flow(scope)] if scope is not None else await chosen_flows(stub, None)
            return await ask_each(flows, lambda flow: every_acl(stub, flow))
        flows = flows_of(await chosen_flows(stub, None), cluster)
        answers = await ask_each(flows, lambda flow: every_acl(stub, flow))
    return [on_cluster(each, cluster) if isinstance(each, FlowAcls) else each for each in answers]


async def every_acl(stub: ConfigSyncServiceStub, flow: types_pb2.Flow, *, page: int = PAGE) -> FlowAcls:
    """All pages of one observation. Raises the service's error."""
    request = pb2.ListAclsRequest(flow=flow, page_size=page)
    entries: list[pb2.AclEntry] = []
    while True:
        answer = await answered(stub.ListAcls(request, timeout=PASS_TIMEOUT_SECONDS))
        entries += answer.entries
        if not answer.next_page_token:
            return FlowAcls(flow=flow, entries=entries)
        request.page_token = answer.next_page_token


def _print_flow(acls: FlowAcls) -> None:
    counts = Counter(_state(entry) for entry in acls.entries)
    told = ", ".join(f"{count} {state}" for state, count in sorted(counts.items()))
    columns = (
        Column(title="state"),
        Column(title=f"on {acls.flow.source}"),
        Column(title=f"on {acls.flow.target}"),
        Column(title="made by"),
        Column(title="rule"),
    )
    print_table(
        f"{flow_name(acls.flow)}: {told}",
        columns,
        [_cells(entry) for entry in acls.entries],
        empty=f"{flow_name(acls.flow)}: no ACLs",
    )


def _cells(entry: pb2.AclEntry) -> list[str]:
    return [
        _state(entry),
        _text(entry.source) if entry.HasField("source") else "",
        _text(entry.target) if entry.HasField("target") else "",
        _maker(entry),
        entry.rule,
    ]


def _text(binding: pb2.AclBinding) -> str:
    """As in plans, in the order of kafka-acls."""
    return (
        f"{binding.permission} {binding.principal} {binding.operation} on {binding.pattern_type} "
        f"{binding.resource_type} {binding.resource_name} from {binding.host}"
    )


def _maker(entry: pb2.AclEntry) -> str:
    """Who created the ACL on the target."""
    if entry.made_by_twinlog:
        return "Twinlog"
    return "others" if entry.state in (pb2.ACL_STATE_IN_STEP, pb2.ACL_STATE_FOREIGN) else ""


def _state(entry: pb2.AclEntry) -> str:
    return pb2.AclState.Name(entry.state).removeprefix("ACL_STATE_")


def _as_json(acls: FlowAcls) -> list[dict[str, Any]]:
    return [
        {
            "flow": flow_name(acls.flow),
            "source": acl_as_json(entry.source) if entry.HasField("source") else None,
            "target": acl_as_json(entry.target) if entry.HasField("target") else None,
            "state": _state(entry),
            "rule": entry.rule,
            "made_by_twinlog": entry.made_by_twinlog,
        }
        for entry in acls.entries
    ]
