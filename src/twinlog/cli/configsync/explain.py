"""`twinlog explain topic` and `group`: why a topic is replicated, a group translated, or not."""

from pathlib import Path
from typing import Annotated, Any

import typer

from twinlog.api.configsync.v1 import configsync_service_pb2 as pb2
from twinlog.cli.checkpoint.explain_group import group_command
from twinlog.cli.common.failures import reported_failures, run_async
from twinlog.cli.common.flow_choice import OptionalFlowArgument, chosen_flow
from twinlog.cli.common.location import ConfigOption, EndpointOption
from twinlog.cli.common.output import Column, Output, OutputOption, print_json, print_table
from twinlog.cli.configsync.client import (
    PASS_TIMEOUT_SECONDS,
    answered,
    configsync_stub,
    flow_name,
    parse_flow,
)

app = typer.Typer(
    no_args_is_help=True,
    add_completion=False,
    help="Say why a topic is replicated, a group translated, or not.",
)

_HELP = """Say why a topic is replicated or not: the first rule that decided, for each flow.

NAME is a topic on a source (orders) or on a target (A.orders); it need not exist.
"""

_COLUMNS = (Column(title="flow"), Column(title="on"), Column(title="verdict"), Column(title="because"))


@app.command("topic")
def topic_command(
    name: Annotated[str, typer.Argument(metavar="NAME", help="A topic's name, on either side.")],
    flow_argument: OptionalFlowArgument = None,
    flow: Annotated[
        str | None, typer.Option("--flow", metavar="A->B", help="Only this flow; all when left out.")
    ] = None,
    config: ConfigOption = None,
    endpoint: EndpointOption = None,
    output: OutputOption = Output.TABLE,
) -> None:
    with reported_failures():
        flow = chosen_flow(flow_argument, flow)
    explanations = run_async(_explain(name, flow, config, endpoint))
    with reported_failures():
        if output is Output.JSON:
            print_json([_as_json(each) for each in explanations])
        else:
            print_table("", _COLUMNS, [_cells(each) for each in explanations])


topic_command.__doc__ = _HELP
app.command("group")(group_command)


async def _explain(
    topic: str, flow: str | None, config: Path | None, endpoint: list[str] | None
) -> list[pb2.TopicExplanation]:
    async with configsync_stub(config, endpoint) as stub:
        request = pb2.ExplainTopicRequest(topic=topic, flow=None if flow is None else parse_flow(flow))
        answer = await answered(stub.ExplainTopic(request, timeout=PASS_TIMEOUT_SECONDS))
        return list(answer.explanations)


def _cells(explanation: pb2.TopicExplanation) -> list[str]:
    return [
        flow_name(explanation.flow),
        explanation.cluster,
        _verdict(explanation),
        explanation.rule,
    ]


def _as_json(explanation: pb2.TopicExplanation) -> dict[str, Any]:
    return {
        "flow": flow_name(explanation.flow),
        "cluster": explanation.cluster,
        "verdict": _verdict(explanation),
        "rule": explanation.rule,
        "source_topic": explanation.source_topic,
        "target_topic": explanation.target_topic,
        "generation": explanation.topic.generation if explanation.HasField("topic") else None,
    }


def _verdict(explanation: pb2.TopicExplanation) -> str:
    return pb2.TopicVerdict.Name(explanation.verdict).removeprefix("TOPIC_VERDICT_")
