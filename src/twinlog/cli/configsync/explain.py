"""`twinlog explain topic` and `group`: why a topic is replicated, a group translated, or not."""

from pathlib import Path
from typing import Annotated, Any

import typer

from twinlog.api.configsync.v1 import configsync_service_pb2 as pb2
from twinlog.cli.checkpoint.explain_group import group_command
from twinlog.cli.common.failures import reported_failures, run_async
from twinlog.cli.common.flow_choice import OptionalFlowOption, named_of_flow
from twinlog.cli.common.location import ConfigOption, EndpointOption
from twinlog.cli.common.output import Column, Output, OutputOption, print_json, print_table
from twinlog.cli.configsync.client import (
    PASS_TIMEOUT_SECONDS,
    answered,
    configsync_stub,
    flow_name,
    parse_flow,
)
from twinlog.cli.configsync.explain_offsets import (
    Partitions,
    copies_of,
    limits_of,
    offsets_document,
    offsets_words,
    standing_words,
    trouble_words,
)
from twinlog.cli.configsync.plan_view import offsets_as_json
from twinlog.cli.configsync.plan_view import offsets_words as expected_words

app = typer.Typer(
    no_args_is_help=True,
    add_completion=False,
    help="Explain why a topic is replicated or a group is translated, or why not.",
)

_HELP = """Explain why a topic is replicated or not: the rule that decides, for each flow.

TOPIC is a topic on a source (orders) or on a target (A.orders); it need not exist. `now` is the state of its
partitions, what is left to copy, and the limits in force. `offsets` says whether its
copy has the source's offsets (docs/offsets.md), if the source service answers; of a topic that waits for its
copy, which offsets that will have, and what filling costs.
"""

_COLUMNS = (
    Column(title="flow"),
    Column(title="on"),
    Column(title="verdict"),
    Column(title="now"),
    Column(title="offsets"),
    Column(title="because"),
)


@app.command("topic")
def topic_command(
    names: Annotated[
        list[str],
        typer.Argument(metavar="[A->B] TOPIC", help="Only this flow; a topic's name, on either side."),
    ],
    flow: OptionalFlowOption = None,
    config: ConfigOption = None,
    endpoint: EndpointOption = None,
    output: OutputOption = Output.TABLE,
) -> None:
    with reported_failures():
        flow, name = named_of_flow(names, flow, "topic")
    explained = run_async(_explain(name, flow, config, endpoint))
    with reported_failures():
        if output is Output.JSON:
            print_json([_as_json(each, copies) for each, copies, _ in explained])
        else:
            print_table("", _COLUMNS, [_cells(*each) for each in explained])


topic_command.__doc__ = _HELP
app.command("group")(group_command)


async def _explain(
    topic: str, flow: str | None, config: Path | None, endpoint: list[str] | None
) -> list[tuple[pb2.TopicExplanation, Partitions | None, list[str]]]:
    async with configsync_stub(config, endpoint) as stub:
        request = pb2.ExplainTopicRequest(topic=topic, flow=None if flow is None else parse_flow(flow))
        answer = await answered(stub.ExplainTopic(request, timeout=PASS_TIMEOUT_SECONDS))
    copies = await copies_of(answer.explanations, config, endpoint)
    limits = await limits_of(answer.explanations, config, endpoint)
    return list(zip(answer.explanations, copies, limits, strict=True))


def _cells(explanation: pb2.TopicExplanation, copies: Partitions | None, limits: list[str]) -> list[str]:
    return [
        flow_name(explanation.flow),
        explanation.cluster,
        _verdict(explanation),
        "; ".join(each for each in (standing_words(copies), *limits) if each),
        expected_words(explanation.offsets) if explanation.HasField("offsets") else offsets_words(copies),
        "; ".join(each for each in (explanation.rule, trouble_words(copies)) if each),
    ]


def _as_json(explanation: pb2.TopicExplanation, copies: Partitions | None) -> dict[str, Any]:
    return {
        "flow": flow_name(explanation.flow),
        "cluster": explanation.cluster,
        "verdict": _verdict(explanation),
        "rule": explanation.rule,
        "source_topic": explanation.source_topic,
        "target_topic": explanation.target_topic,
        "generation": explanation.topic.generation if explanation.HasField("topic") else None,
        "partitions": offsets_document(copies),
        "expected_offsets": offsets_as_json(explanation.offsets) if explanation.HasField("offsets") else None,
    }


def _verdict(explanation: pb2.TopicExplanation) -> str:
    return pb2.TopicVerdict.Name(explanation.verdict).removeprefix("TOPIC_VERDICT_")
