"""`twinlog explain group`: why a consumer group is translated or not."""

from twinlog.api.checkpoint.v1 import checkpoint_service_pb2 as pb2
from twinlog.cli.checkpoint.groups_view import GROUP
from twinlog.cli.common.call import Call, command
from twinlog.cli.common.fields import Field, Fields, as_json, table
from twinlog.cli.common.names import flow_name, parse_flow
from twinlog.cli.common.options import argument, named_of_flow
from twinlog.cli.common.output import print_rows

_FINDING: Fields[pb2.Finding] = table(
    "rule|rule",
    Field("passed", column=" ", text=lambda finding: "yes" if finding.passed else "no"),
    "message|because",
)
_PARTITION: Fields[pb2.GroupPartition] = table(
    "=source|partition upstream_offset|offset> downstream_offset|on_target> verdict|verdict message|message",
)
_GROUP: Fields[pb2.GroupExplanation] = table(
    "flow group translated state_on_source? state_on_target?",
    Field("findings", lambda group: [as_json(_FINDING, each) for each in group.findings]),
    Field("partitions", lambda group: [as_json(GROUP, row) for row in group.partitions]),
)


@command
def group_command(
    call: Call,
    names: list[str] = argument(
        "[A->B] GROUP", "Only this flow; a consumer group's id, which need not exist."
    ),
) -> None:
    """Explain why a consumer group is translated or not: every rule in turn, up to the one that decides."""
    named, group = named_of_flow(names, "group")
    wanted = None if named is None else parse_flow(named)
    request = pb2.ExplainGroupRequest(group=group, flow=wanted, from_owner=True)
    found = call.ask(lambda at: at.checkpoint.ExplainGroup(request)).explanations
    call.tell([as_json(_GROUP, each) for each in found], lambda: [*map(_print, found)])


def _print(explanation: pb2.GroupExplanation) -> None:
    verdict = "translated" if explanation.translated else "not translated"
    title = f"{flow_name(explanation.flow)} {explanation.group}: {verdict}"
    print_rows(_FINDING, explanation.findings, title=title)
    if explanation.partitions:
        print_rows(_PARTITION, explanation.partitions)
