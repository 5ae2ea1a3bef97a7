"""`twinlog adopt FILE`: whether Twinlog may take over from MirrorMaker 2 now, and where it will continue."""

from collections import Counter
from typing import TYPE_CHECKING

import typer

from twinlog.cli.common.call import Call, printing
from twinlog.cli.common.fields import Field, Fields, as_json, table
from twinlog.cli.common.location import FileArgument, load_config
from twinlog.cli.common.options import option
from twinlog.cli.common.output import print_rows
from twinlog.cli.common.pasteable import say
from twinlog.cli.common.times import MOST_SECONDS
from twinlog.printable import printable

if TYPE_CHECKING:
    from collections.abc import Sequence

    from twinlog.model import TopicPartition
    from twinlog.preflight.adoption import Adoption, Continuation


@printing
def adopt_command(
    call: Call,
    file: FileArgument,
    connect_group: str = option(
        "--connect-group GROUP",
        "The group.id of Connect workers that ran only MirrorMaker 2, such as Strimzi's.",
        "",
    ),
    look: float = option(
        "--look SECONDS",
        "How long to watch whether MirrorMaker 2 still writes.",
        5.0,
        min=0.0,
        max=MOST_SECONDS,
    ),
    timeout: float = option(
        "--timeout SECONDS", "How long a cluster may take to answer.", 10.0, min=1.0, max=MOST_SECONDS
    ),
) -> None:
    """Show where Twinlog would continue what MirrorMaker 2 copied, and whether it may start.

    The command changes nothing.

    For each flow: whether MirrorMaker 2 still runs, where each partition continues and how far it is behind,
    what Twinlog will do differently, and which partitions have a position but are not selected by the file.

    \b
    The answer is no (exit code 1) while
      - MirrorMaker 2's Connect group (A-mm2, or --connect-group) has members
      - new heartbeats or positions of the flow are written while the command watches
      - Twinlog runs the flow already
      - positions are stored under another connector name or in another topic than
        the file says, so that everything would be copied again; for Kafka Connect
        set A->B.name and A->B.offsets.storage.topic

    Exit codes: 0 Twinlog may start: `twinlog run FILE`; 1 not now; 2 the file is wrong.
    """
    from twinlog.preflight.adoption import judge_adoption
    from twinlog.preflight.gather_adoption import gather_adoption

    patience = {"look_seconds": look, "timeout_seconds": timeout}
    facts = call.run(gather_adoption(load_config(file), connect_group=connect_group, **patience))
    found = [judge_adoption(each) for each in facts]
    documents = [as_json(_ADOPTION, adoption) for adoption in found]
    call.tell(documents, lambda: [*map(_print, found)], fails=any(each.refusals for each in found))


_TOPIC: Fields["Sequence[Continuation]"] = (
    Field("", column="topic", text=lambda found: found[0].partition.topic),
    Field("", column="copy", text=lambda found: found[0].target_topic),
    Field("", column="partitions", text=lambda found: str(len(found)), right=True),
    Field("", column="begin", text=lambda found: _begins(found)),
    Field("", column="behind", text=lambda found: _behind(found), right=True),
    Field("", column="lost", text=lambda found: str(sum(each.lost for each in found)), right=True),
    Field("", column="remark", text=lambda found: _remarks(found)),
)
_PARTITION: Fields["Continuation"] = table(
    "topic=partition.topic partition=partition.partition target_topic begins=start position lag lost remark",
)
_PLACE: Fields["TopicPartition"] = table("topic partition")
_ADOPTION: Fields["Adoption"] = table(
    Field("flow", lambda adoption: str(adoption.flow)),
    Field("may_begin", lambda adoption: not adoption.refusals),
    "refusals changes",
    Field("partitions", lambda adoption: [as_json(_PARTITION, each) for each in adoption.continuations]),
    Field("left_behind", lambda adoption: [as_json(_PLACE, each) for each in adoption.left_behind]),
)


def _print(adoption: "Adoption") -> None:
    by_topic: dict[str, list[Continuation]] = {}
    for each in adoption.continuations:
        by_topic.setdefault(each.partition.topic, []).append(each)
    print_rows(_TOPIC, by_topic.values(), title=f"{adoption.flow}", empty="no topic is selected")
    for topic, count in Counter(each.topic for each in adoption.left_behind).items():
        say(printable(f"not selected: {topic} has {count} positions, and stays as it is"))
    for change in adoption.changes:
        say(printable(f"from then on: {change}"))
    for refusal in adoption.refusals:
        say(printable(f"not now: {refusal}"), fg=typer.colors.RED)
    if not adoption.refusals:
        typer.secho(f"{adoption.flow}: Twinlog may begin", fg=typer.colors.GREEN)


def _begins(found: "Sequence[Continuation]") -> str:
    begins = Counter(each.start.value for each in found)
    return ", ".join(f"{start} {count}" if len(begins) > 1 else start for start, count in begins.items())


def _behind(found: "Sequence[Continuation]") -> str:
    lags = [each.lag for each in found if each.lag is not None]
    return str(sum(lags)) if len(lags) == len(found) else "?"


def _remarks(found: "Sequence[Continuation]") -> str:
    remarks = Counter(each.remark for each in found if each.remark)
    return "; ".join(f"{remark} ({count})" for remark, count in remarks.items())
