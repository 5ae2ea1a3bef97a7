"""`twinlog gaps`: source offsets that are missing on the target; `twinlog gaps ack` acknowledges them."""

import shlex
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import typer
from google.protobuf.timestamp_pb2 import Timestamp

from twinlog.api.common.v1 import types_pb2
from twinlog.api.source.v1 import source_service_pb2 as pb2
from twinlog.cli.common.call import Call, Services, command
from twinlog.cli.common.fields import Field, Fields, Row, as_json, print_rows, table, value_of
from twinlog.cli.common.names import MOST_OFFSET, counted, flow_name, parse_flow, producer_words, who
from twinlog.cli.common.options import (
    argument,
    flag,
    flow_and_names,
    option,
    required_flow,
)
from twinlog.cli.common.pasteable import say
from twinlog.cli.source.client import (
    PartitionOption,
    TopicOption,
    every_partition,
    list_flows,
    parse_scope,
)
from twinlog.errors import ConfigError, TwinlogError

ACK = "ack"
LIST = "list"
"""What the command does without a verb, too."""


def offsets(begin: int, end: int) -> str:
    """As people write a range: with its last offset.

    >>> offsets(1424, 1491)
    '1424-1490'
    """
    return f"{begin}-{end - 1}" if end > begin + 1 else str(begin)


GAP: Fields[pb2.LedgerGap] = table(
    "flow|flow topic=partition.topic partition=partition.partition =partition|partition",
    "from=from_offset to=to_offset",
    Field("", column="offsets", text=lambda gap: offsets(gap.from_offset, gap.to_offset)),
    "offsets=lost_offsets|lost> reason|reason found_at|found acknowledged_by? acknowledged_at",
)


def _acknowledged(row: Any) -> str:
    by, at = (value_of(row, name) for name in ("acknowledged_by?", "acknowledged_at"))
    return " ".join(filter(None, (by, at)))


_BY: Field[Any] = Field("", column="acknowledged", text=_acknowledged)


def _with_names(fields: Fields[Row], rows: Iterable[Any]) -> Fields[Row]:
    """With who acknowledged them, where somebody did."""
    return (*fields, _BY) if any(row.acknowledged_by for row in rows) else fields


@command
def gaps_command(
    call: Call,
    words: list[str] | None = argument(
        "[list|ack] [A->B]",
        "Only this flow. `ack 'A->B'` acknowledges its gaps: --topic, --partition and --from say"
        " which, --all takes all of the flow.",
        None,
    ),
    topic: TopicOption = "",
    partition: PartitionOption = None,
    begin: int | None = option(
        "--from OFFSET", "Only the gap that begins here, to acknowledge.", None, min=0, max=MOST_OFFSET
    ),
    everything: bool = flag("--all", "Also those that are acknowledged; with ack: every gap of the flow."),
) -> None:
    """Show every range of source offsets that is missing on the target, with its reason; `ack` acknowledges.

    A topic with several gaps has one row for each reason; --topic shows each of them. `lost` is how many
    offsets are missing: fewer than a range spans if the oldest ranges of a partition were joined. With -o
    json, `to` is the first offset after the range. Acknowledged gaps appear only with --all.
    Exit code 1 when the gaps of a flow are not known.
    """
    named, acknowledges = flow_and_verb(words)
    if acknowledges:
        request = _request(named, topic, partition, begin, everything=everything)
        gaps = call.ask(lambda at: at.source.AcknowledgeGaps(request)).gaps
        told = ["undo: none; `twinlog gaps --all` still shows them"] if gaps else []
        call.tell_rows(GAP, gaps, title="acknowledged", empty="nothing new", lines=told)
        return
    if begin is not None:
        raise ConfigError("--from is for `twinlog gaps ack`", key="--from")
    if partition is not None and not topic:
        raise ConfigError("--partition needs --topic", key="--partition")
    wanted = pb2.ListGapsRequest(flow=None if named is None else parse_flow(named), source_topic=topic)
    answer, is_copied = call.ask(lambda at: _gaps_and(at, wanted))
    found = [gap for gap in answer.gaps if partition in (None, gap.partition.partition)]
    hidden = [] if everything else [gap for gap in found if gap.acknowledged_by]
    shown = [gap for gap in found if gap not in hidden]
    empty = "no gaps" if is_copied else _not_copied(topic)
    _tell(call, shown, answer.unknown, len(hidden), topic, empty=empty)


async def _gaps_and(at: Services, wanted: pb2.ListGapsRequest) -> tuple[pb2.ListGapsResponse, bool]:
    """Also whether the topic is copied, where it has no gaps: its name may be wrong."""
    answer = await at.source.ListGaps(wanted)
    if answer.gaps or answer.unknown or not wanted.source_topic:
        return answer, True
    flow = wanted.flow if wanted.HasField("flow") else None
    return answer, bool(await every_partition(at.source, flow, wanted.source_topic))


def _not_copied(topic: str) -> str:
    return f"no flow copies {topic}: `twinlog explain topic {shlex.quote(topic)}` says why"


def flow_and_verb(words: Sequence[str] | None) -> tuple[str | None, bool]:
    """The flow, and whether something is to be acknowledged. Raises ConfigError."""
    flow, rest = flow_and_names(words)
    if rest not in ([], [ACK], [LIST]):
        raise ConfigError(
            f"{' '.join(rest)}: expected a flow such as 'A->B' (in quotes), or ack and a flow; a topic is"
            " named with --topic",
            key="FLOW",
        )
    return flow, rest == [ACK]


def how_to_ack(kind: str, rows: Iterable[Any], rest: str = "") -> list[str]:
    """A line for each flow of the `rows`, with the command that acknowledges all of them."""
    flows = dict.fromkeys(flow_name(row.flow) for row in rows)
    return [f"once dealt with: `twinlog {kind} ack {shlex.quote(flow)}{rest}`" for flow in flows]


def _only(topic: str, everything: str = "") -> str:
    """The end of that command: what was asked for is acknowledged."""
    return f" --topic {shlex.quote(topic)}" if topic else everything


def _request(
    flow: str | None, topic: str, partition: int | None, begin: int | None, *, everything: bool
) -> pb2.AcknowledgeGapsRequest:
    """Raises ConfigError if the selection is not clear."""
    if everything == bool(topic):
        raise ConfigError(
            "choose the gaps: --topic (with --partition, --from), or --all for all of the flow", key="--all"
        )
    if begin is not None and partition is None:
        raise ConfigError("--from needs --partition", key="--from")
    scope = parse_scope(required_flow(flow), topic, partition)
    return pb2.AcknowledgeGapsRequest(scope=scope, from_offset=begin, by=who())


def _unknown(ledgers: Sequence[pb2.UnknownLedger]) -> TwinlogError:
    """Flows with unreadable gaps: an empty list would mean that there are none."""
    told = [f"the gaps of {flow_name(each.flow)} cannot be read: {each.message}" for each in ledgers]
    metadata = {"flows": ", ".join(flow_name(each.flow) for each in ledgers)}
    if len(ledgers) == 1:
        metadata["flow"] = metadata.pop("flows")
    return TwinlogError("; ".join(told), reason=ledgers[0].reason, metadata=metadata)


_TopicGaps = tuple[str, str, str, Sequence[pb2.LedgerGap]]
"""Flow, topic, reason, and the gaps."""
_OF_TOPIC: Fields[_TopicGaps] = (
    Field("", column="flow", text=lambda row: row[0]),
    Field("", column="topic", text=lambda row: row[1]),
    Field("", column="gaps", text=lambda row: f"{len(row[3]):,}", right=True),
    Field("", column="lost", text=lambda row: f"{_lost(row[3]):,}", right=True),
    Field("", column="reason", text=lambda row: row[2]),
    Field("", column="newest", text=lambda row: max(gap.found_at.ToJsonString() for gap in row[3])),
)


def _by_topic(gaps: Sequence[pb2.LedgerGap]) -> list[_TopicGaps]:
    found: dict[tuple[str, str, str], list[pb2.LedgerGap]] = {}
    for gap in gaps:
        found.setdefault((flow_name(gap.flow), gap.partition.topic, gap.reason), []).append(gap)
    return [(*key, own) for key, own in found.items()]


def _lost(gaps: Iterable[pb2.LedgerGap]) -> int:
    return sum(gap.lost_offsets for gap in gaps)


def gaps_words(gaps: Sequence[pb2.LedgerGap]) -> str:
    """How much is recorded, by reason."""
    by_reason: dict[str, int] = {}
    for gap in gaps:
        by_reason[gap.reason] = by_reason.get(gap.reason, 0) + gap.lost_offsets
    told = ", ".join(f"{count:,} {reason}".strip() for reason, count in by_reason.items())
    return f"{counted(len(gaps), 'gap')}, {counted(_lost(gaps), 'source offset')}: {told}"


def _tell(
    call: Call,
    gaps: Sequence[pb2.LedgerGap],
    unknown: Sequence[pb2.UnknownLedger],
    hidden: int,
    topic: str,
    *,
    empty: str,
) -> None:
    def text() -> None:
        if gaps:
            say(gaps_words(gaps))
        if gaps and not topic and len(gaps) > len(merged := _by_topic(gaps)):
            print_rows(_OF_TOPIC, merged)
        elif gaps or not unknown:
            print_rows(_with_names(GAP, gaps), gaps, empty=empty)
        if hidden:
            typer.echo(f"{hidden} acknowledged: --all shows them")
        for line in how_to_ack(
            "gaps", [gap for gap in gaps if not gap.acknowledged_by], _only(topic, " --all")
        ):
            say(line)
        if len(gaps) > 1:
            say(gaps_words(gaps))

    if gaps or not unknown or not call.in_json:
        call.tell([as_json(GAP, gap) for gap in gaps], text)
    if unknown:
        raise _unknown(unknown)


# `twinlog foreign`: records that others wrote into copies; `twinlog foreign ack` acknowledges them.


@dataclass(frozen=True, slots=True)
class _Row:
    flow: types_pb2.Flow
    copy: pb2.ForeignCopy
    acknowledged_by: str = ""
    """Empty: these are not acknowledged."""
    acknowledged_at: Timestamp | None = None


_SOMEBODY = "?"
"""Where an earlier release did not record who."""


FOREIGN: Fields[_Row] = table(
    "flow|flow topic=copy.partition.topic partition=copy.partition.partition =copy.partition|partition",
    Field("records", "copy.records", "records", lambda row: f"{row.copy.records:,}", right=True),
    "from_offset=copy.last.from_offset to_offset=copy.last.to_offset",
    Field(
        "",
        column="last in the copy",
        text=lambda row: offsets(row.copy.last.from_offset, row.copy.last.to_offset),
    ),
    Field(
        "producer_id",
        "copy.last.producer_id",
        "written by",
        lambda row: producer_words(row.copy.last.producer_id),
    ),
    "written_at=copy.last.written_at|at acknowledged_by? acknowledged_at",
)


@command
def foreign_command(
    call: Call,
    words: list[str] | None = argument(
        "[ack] [A->B]", "Only this flow. `ack 'A->B'` acknowledges its foreign records.", None
    ),
    topic: TopicOption = "",
    partition: PartitionOption = None,
    everything: bool = flag("--all", "Also those that are acknowledged."),
    dry_run: bool = flag("--dry-run", "With ack: change nothing."),
) -> None:
    """Show the copies into which somebody else wrote; `ack` acknowledges that.

    Records are counted since the source service started or they were acknowledged. `ack` changes no copy: it
    says that somebody knows of them, and `twinlog status` and the live page no longer name them. Foreign
    records that come later are told again. Acknowledged ones appear only with --all.
    """
    named, acknowledges = flow_and_verb(words)
    if not acknowledges:
        found, is_copied = call.ask(lambda at: _list(at, named, topic, partition))
        left = [row for row in found if not row.acknowledged_by]
        lines = how_to_ack("foreign", left, _only(topic))
        if not everything and len(found) > len(left):
            lines = [f"{len(found) - len(left)} acknowledged: --all shows them", *lines]
        shown = found if everything else left
        empty = "no foreign records" if is_copied or not topic else _not_copied(topic)
        call.tell_rows(_with_names(FOREIGN, shown), shown, empty=empty, lines=lines)
        return
    scope = parse_scope(required_flow(named), topic, partition)
    request = pb2.AcknowledgeForeignWritesRequest(scope=scope, dry_run=dry_run, by=who())
    copies = call.ask(lambda at: at.source.AcknowledgeForeignWrites(request)).copies
    done = (
        "nothing was changed (--dry-run)"
        if dry_run
        else "undo: none; `twinlog foreign --all` still shows them"
    )
    rows = [_Row(scope.flow, copy) for copy in copies]
    call.tell_rows(FOREIGN, rows, empty="nothing to acknowledge", lines=[done] if rows else [])


async def _list(at: Services, flow: str | None, topic: str, partition: int | None) -> tuple[list[_Row], bool]:
    """Also whether any partition is copied."""
    copied = [
        (each.flow, row)
        for each in await list_flows(at.source, flow)
        for row in await every_partition(at.source, each.flow, topic)
        if partition in (None, row.source.partition)
    ]
    return [found for each, row in copied for found in _foreign_in(each, row)], bool(copied)


def _foreign_in(flow: types_pb2.Flow, row: pb2.PartitionStatus) -> Iterator[_Row]:
    """What is acknowledged of it, then what is not."""
    known, last = sum(each.records for each in row.foreign_writes) - row.foreign_records, 0
    for write in row.foreign_writes if known > 0 else ():
        last += write.records
        if last >= known:
            copy = pb2.ForeignCopy(partition=row.source, records=known, last=write)
            by, at = row.foreign_acknowledged_by, row.foreign_acknowledged_at
            yield _Row(flow, copy, by or _SOMEBODY, at if row.HasField("foreign_acknowledged_at") else None)
            break
    if row.foreign_records:
        copy = pb2.ForeignCopy(partition=row.source, records=row.foreign_records, last=row.foreign_write)
        yield _Row(flow, copy)
