"""`twinlog explain topic` and `group`: why a topic is replicated, a group translated, or not."""

from dataclasses import dataclass
from typing import Annotated

import typer

from twinlog.api.configsync.v1 import configsync_service_pb2 as pb2
from twinlog.cli.checkpoint.explain_group import group_command
from twinlog.cli.common.call import Call, Services, command
from twinlog.cli.common.fields import Field, Fields, as_json
from twinlog.cli.common.flow_choice import OptionalFlowOption, named_of_flow
from twinlog.cli.common.names import parse_flow
from twinlog.cli.configsync.explain_offsets import (
    Partitions,
    copies_of,
    limits_of,
    offsets_document,
    offsets_words,
    standing_words,
    trouble_words,
)
from twinlog.cli.configsync.plan_view import EXPECTED
from twinlog.cli.configsync.plan_view import offsets_words as expected_words
from twinlog.cli.explain_reason import reason_command

app = typer.Typer(
    no_args_is_help=True,
    add_completion=False,
    help="Explain why a topic is replicated or a group is translated, or why not; or a reason.",
)

_HELP = """Explain why a topic is replicated or not: the rule that decides, for each flow.

TOPIC is a topic on a source (orders) or on a target (A.orders); it need not exist. `now` is the state of its
partitions, what is left to copy, and the limits in force. `offsets` says whether its
copy has the source's offsets (docs/offsets.md), if the source service answers; of a topic that waits for its
copy, which offsets that will have, and what filling costs.
"""


@app.command("topic")
@command
def topic_command(
    call: Call,
    names: Annotated[
        list[str],
        typer.Argument(metavar="[A->B] TOPIC", help="Only this flow; a topic's name, on either side."),
    ],
    flow: OptionalFlowOption = None,
) -> None:
    named, name = named_of_flow(names, flow, "topic")
    call.tell_rows(_EXPLAINED, call.ask(lambda at: _explain(at, name, named)))


topic_command.__doc__ = _HELP
app.command("group")(group_command)
app.command("reason")(reason_command)


@dataclass(frozen=True, slots=True)
class _Explained:
    told: pb2.TopicExplanation
    copies: Partitions | None
    limits: list[str]


_EXPLAINED: Fields[_Explained] = (
    Field("flow", "told.flow", "flow"),
    Field("cluster", "told.cluster", "on"),
    Field("verdict", "told.verdict", "verdict"),
    Field(
        "",
        column="now",
        text=lambda row: "; ".join(each for each in (standing_words(row.copies), *row.limits) if each),
    ),
    Field("", column="offsets", text=lambda row: _offsets(row)),
    Field(
        "rule",
        "told.rule",
        "because",
        lambda row: "; ".join(each for each in (row.told.rule, trouble_words(row.copies)) if each),
    ),
    Field("source_topic", "told.source_topic"),
    Field("target_topic", "told.target_topic"),
    Field("generation", "told.topic.generation"),
    Field("partitions", lambda row: offsets_document(row.copies)),
    Field(
        "expected_offsets",
        lambda row: as_json(EXPECTED, row.told.offsets) if row.told.HasField("offsets") else None,
    ),
)


def _offsets(row: _Explained) -> str:
    return expected_words(row.told.offsets) if row.told.HasField("offsets") else offsets_words(row.copies)


async def _explain(at: Services, topic: str, flow: str | None) -> list[_Explained]:
    request = pb2.ExplainTopicRequest(topic=topic, flow=None if flow is None else parse_flow(flow))
    found = (await at.configsync.ExplainTopic(request)).explanations
    copies, limits = await copies_of(found, at), await limits_of(found, at)
    return [_Explained(*each) for each in zip(found, copies, limits, strict=True)]
