"""`twinlog acls`: the ACLs of both clusters of a flow, their copies, and who created these."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from twinlog.api.common.v1 import types_pb2
from twinlog.api.configsync.v1 import configsync_service_pb2 as pb2
from twinlog.cli.common.call import Call, Services, command
from twinlog.cli.common.fields import Field, Fields, as_json, print_rows, table, value_of
from twinlog.cli.common.names import flow_name
from twinlog.cli.common.options import FailedFlow, argument, ask_each, failure_as_json, telling_failures
from twinlog.cli.configsync.topics import chosen_flows
from twinlog.errors import ConfigError


@dataclass(frozen=True, slots=True)
class FlowAcls:
    """A flow's ACLs, as far as they were requested."""

    flow: types_pb2.Flow
    entries: Sequence[pb2.AclEntry]


@command
def acls_command(
    call: Call,
    scope: str | None = argument(
        "[A->B|CLUSTER]", "A flow such as `A->B`, or a cluster; all flows when left out.", None
    ),
) -> None:
    """Show the ACLs of a flow: those of its source with their copies, then what only the target has.

    \b
    IN_STEP   the target has the copy
    MISSING   the target does not have it yet: see `twinlog plan --scope acls`
    LEFT_OUT  it is not copied; the rule says why
    SURPLUS   Twinlog made it, and the source no longer has it
    FOREIGN   somebody else made it on the target; Twinlog does not change it

    With a cluster instead of a flow it shows the ACLs that are or should be on this cluster, for every flow
    from or to it. The command changes nothing.

    Exit code 1 if the ACLs of a flow cannot be read: the flow is named, with its reason, after the others.
    """
    print_acls(call.ask(lambda at: _acls(at, scope)), call)


def print_acls(answers: Sequence[FlowAcls | FailedFlow], call: Call) -> None:
    """Exits with 1 when a flow failed."""
    found = [each for each in answers if isinstance(each, FlowAcls)]
    documents: list[dict[str, Any]] = []
    for each in answers:
        if isinstance(each, FailedFlow):
            documents.append(failure_as_json(each))
        else:
            documents += ({"flow": flow_name(each.flow), **as_json(_ACL, entry)} for entry in each.entries)
    with telling_failures(answers):
        call.tell(documents, lambda: [*map(_print_flow, found)])


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
            key="FLOW|CLUSTER",
        )
    return found


async def _acls(at: Services, scope: str | None) -> list[FlowAcls | FailedFlow]:
    cluster = None if scope is None or "->" in scope else scope
    flows = await chosen_flows(at.configsync, None if cluster else scope)
    if cluster is not None:
        flows = flows_of(flows, cluster)

    async def acls(flow: types_pb2.Flow) -> FlowAcls:
        return FlowAcls(flow, (await at.configsync.ListAcls(pb2.ListAclsRequest(flow=flow))).entries)

    answers = await ask_each(flows, acls)
    if cluster is None:
        return answers
    return [on_cluster(each, cluster) if isinstance(each, FlowAcls) else each for each in answers]


def _print_flow(acls: FlowAcls) -> None:
    counts = Counter(_state(entry) for entry in acls.entries)
    told = ", ".join(f"{count} {state}" for state, count in sorted(counts.items()))
    name = flow_name(acls.flow)
    titled = (
        replace(each, column=f"{each.column} {getattr(acls.flow, each.name)}")
        if each.name in ("source", "target")
        else each
        for each in _ACL
    )
    print_rows(tuple(titled), acls.entries, title=f"{name}: {told}", empty=f"{name}: no ACLs")


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
    return str(value_of(entry, "state"))


_ACL: Fields[pb2.AclEntry] = table(
    Field("", column="state", text=_state),
    Field("source", column="on", text=lambda entry: _text(entry.source) if entry.HasField("source") else ""),
    Field("target", column="on", text=lambda entry: _text(entry.target) if entry.HasField("target") else ""),
    Field("", column="made by", text=_maker),
    "state rule|rule made_by_twinlog",
)
