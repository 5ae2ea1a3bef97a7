"""`twinlog explain group`: why a consumer group is translated or not."""

from pathlib import Path
from typing import Annotated, Any

import typer

from twinlog.api.checkpoint.v1 import checkpoint_service_pb2 as pb2
from twinlog.cli.checkpoint.client import (
    CALL_TIMEOUT_SECONDS,
    FlowOption,
    answered,
    checkpoint_stub,
    shown,
    topic_partition,
    verdict_name,
)
from twinlog.cli.checkpoint.groups_view import group_as_json
from twinlog.cli.common.failures import reported_failures, run_async
from twinlog.cli.common.flow_choice import named_of_flow
from twinlog.cli.common.location import ConfigOption, EndpointOption
from twinlog.cli.common.output import Column, Output, OutputOption, print_json, print_table
from twinlog.cli.configsync.client import flow_name, parse_flow

_FINDINGS = (Column(title="rule"), Column(title=""), Column(title="because"))
_PARTITIONS = (
    Column(title="partition"),
    Column(title="offset", right=True),
    Column(title="on target", right=True),
    Column(title="verdict"),
    Column(title="message"),
)


def group_command(
    names: Annotated[
        list[str],
        typer.Argument(
            metavar="[A->B] GROUP", help="Only this flow; a consumer group's id, which need not exist."
        ),
    ],
    flow: FlowOption = None,
    config: ConfigOption = None,
    endpoint: EndpointOption = None,
    output: OutputOption = Output.TABLE,
) -> None:
    """Explain why a consumer group is translated or not: every rule in turn, up to the one that decides."""
    with reported_failures():
        flow, group = named_of_flow(names, flow, "group")
        wanted = None if flow is None else parse_flow(flow)
        request = pb2.ExplainGroupRequest(group=group, flow=wanted, from_owner=True)
        explanations = run_async(_explain(request, config, endpoint))
        if output is Output.JSON:
            print_json([_as_json(each) for each in explanations])
            return
        for each in explanations:
            _print(each)


async def _explain(
    request: pb2.ExplainGroupRequest, config: Path | None, endpoint: list[str] | None
) -> list[pb2.GroupExplanation]:
    async with checkpoint_stub(config, endpoint) as stub:
        answer = await answered(stub.ExplainGroup(request, timeout=CALL_TIMEOUT_SECONDS))
        return list(answer.explanations)


def _print(explanation: pb2.GroupExplanation) -> None:
    verdict = "translated" if explanation.translated else "not translated"
    title = f"{flow_name(explanation.flow)} {explanation.group}: {verdict}"
    rows = [
        [finding.rule, "yes" if finding.passed else "no", finding.message] for finding in explanation.findings
    ]
    print_table(title, _FINDINGS, rows)
    if explanation.partitions:
        print_table("", _PARTITIONS, [_cells(row) for row in explanation.partitions])


def _cells(row: pb2.GroupPartition) -> list[str]:
    return [
        topic_partition(row.source),
        str(row.upstream_offset),
        shown(row.downstream_offset if row.HasField("downstream_offset") else None),
        verdict_name(row.verdict),
        row.message,
    ]


def _as_json(explanation: pb2.GroupExplanation) -> dict[str, Any]:
    return {
        "flow": flow_name(explanation.flow),
        "group": explanation.group,
        "translated": explanation.translated,
        "state_on_source": explanation.state_on_source or None,
        "state_on_target": explanation.state_on_target or None,
        "findings": [
            {"rule": finding.rule, "passed": finding.passed, "message": finding.message}
            for finding in explanation.findings
        ],
        "partitions": [group_as_json(row) for row in explanation.partitions],
    }
