"""`twinlog gaps`: source offsets that are missing on the target; `twinlog gaps ack` acknowledges them."""

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

import typer

from twinlog.api.source.v1 import source_service_pb2 as pb2
from twinlog.cli.common.failures import reported_failures, run_async
from twinlog.cli.common.flow_choice import OptionalFlowOption, chosen_flow, is_flow, required_flow
from twinlog.cli.common.location import ConfigOption, EndpointOption
from twinlog.cli.common.numbers import MOST_OFFSET
from twinlog.cli.common.output import Column, Output, OutputOption, print_json, print_table
from twinlog.cli.common.pasteable import say
from twinlog.cli.configsync.client import flow_name, parse_flow
from twinlog.cli.source.client import (
    CALL_TIMEOUT_SECONDS,
    PartitionOption,
    TopicOption,
    answered,
    every_gap,
    parse_scope,
    partition_name,
    source_stub,
    who,
)
from twinlog.errors import ConfigError, TwinlogError

ACK = "ack"

_COLUMNS = (
    Column(title="flow"),
    Column(title="partition"),
    Column(title="from", right=True),
    Column(title="to", right=True),
    Column(title="offsets", right=True),
    Column(title="reason"),
    Column(title="found"),
)
_ACKNOWLEDGED = Column(title="acknowledged")


def gaps_command(
    words: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[ack] [A->B]",
            help="Only this flow. `ack 'A->B'` acknowledges its gaps: --topic, --partition and --from say"
            " which, --all takes all of the flow.",
            show_default=False,
        ),
    ] = None,
    flow: OptionalFlowOption = None,
    topic: TopicOption = "",
    partition: PartitionOption = None,
    begin: Annotated[
        int | None,
        typer.Option(
            "--from",
            min=0,
            max=MOST_OFFSET,
            metavar="OFFSET",
            help="Only the gap that begins here, to acknowledge.",
        ),
    ] = None,
    everything: Annotated[
        bool,
        typer.Option("--all", help="Also those that are acknowledged; with ack: every gap of the flow."),
    ] = False,
    config: ConfigOption = None,
    endpoint: EndpointOption = None,
    output: OutputOption = Output.TABLE,
) -> None:
    """Show every range of source offsets that is missing on the target, with its reason; `ack` acknowledges.

    `to` is the first offset after the range. `offsets` is how many offsets of the range are missing: fewer
    than it spans if the oldest ranges of a partition were joined. Acknowledged gaps appear only with --all.
    Exit code 1 when the gaps of a flow are not known.
    """
    with reported_failures():
        named, acknowledges = flow_and_verb(words or [], flow)
        if acknowledges:
            request = _request(named, topic, partition, begin, everything=everything)
            _print_acknowledged(run_async(_acknowledge(request, config, endpoint)), output)
            return
        if begin is not None:
            raise ConfigError("--from is for `twinlog gaps ack`", metadata={"key": "--from"})
        if partition is not None and not topic:
            raise ConfigError("--partition needs --topic", metadata={"key": "--partition"})
        answer = run_async(_gaps(named, topic, config, endpoint))
        gaps = [gap for gap in answer.gaps if partition in (None, gap.partition.partition)]
        hidden = [] if everything else [gap for gap in gaps if gap.acknowledged_by]
        _print([gap for gap in gaps if gap not in hidden], answer.unknown, len(hidden), output)
        if answer.unknown:
            raise _unknown(answer.unknown)


def flow_and_verb(words: Sequence[str], option: str | None) -> tuple[str | None, bool]:
    """The flow, and whether something is to be acknowledged. Raises ConfigError."""
    acknowledge = bool(words) and words[0] == ACK
    rest = words[1:] if acknowledge else words
    if len(rest) > 1 or (rest and not is_flow(rest[0])):
        raise ConfigError(
            f"{' '.join(rest)}: expected a flow such as 'A->B' (in quotes), or ack and a flow",
            metadata={"key": "FLOW"},
        )
    return chosen_flow(rest[0] if rest else None, option), acknowledge


def _request(
    flow: str | None, topic: str, partition: int | None, begin: int | None, *, everything: bool
) -> pb2.AcknowledgeGapsRequest:
    """Raises ConfigError if the selection is not clear."""
    if everything == bool(topic):
        raise ConfigError(
            "choose the gaps: --topic (with --partition, --from), or --all for all of the flow",
            metadata={"key": "--all"},
        )
    if begin is not None and partition is None:
        raise ConfigError("--from needs --partition", metadata={"key": "--from"})
    scope = parse_scope(required_flow(flow, None), topic, partition)
    return pb2.AcknowledgeGapsRequest(scope=scope, from_offset=begin, by=who())


def _unknown(ledgers: Sequence[pb2.UnknownLedger]) -> TwinlogError:
    """Flows with unreadable gaps: an empty list would mean that there are none."""
    told = [f"the gaps of {flow_name(each.flow)} cannot be read: {each.message}" for each in ledgers]
    metadata = {"flows": ", ".join(flow_name(each.flow) for each in ledgers)}
    if len(ledgers) == 1:
        metadata["flow"] = metadata.pop("flows")
    return TwinlogError("; ".join(told), reason=ledgers[0].reason, metadata=metadata)


def _print(
    gaps: Sequence[pb2.LedgerGap], unknown: Sequence[pb2.UnknownLedger], hidden: int, output: Output
) -> None:
    if output is Output.JSON:
        if gaps or not unknown:
            print_json([_as_json(gap) for gap in gaps])
        return
    if gaps:
        with_names = any(gap.acknowledged_by for gap in gaps)
        columns = (*_COLUMNS, _ACKNOWLEDGED) if with_names else _COLUMNS
        print_table("", columns, [_cells(gap, with_names=with_names) for gap in gaps])
    elif not unknown:
        typer.echo("no gaps")
    if hidden:
        typer.echo(f"{hidden} acknowledged: --all shows them")


def _print_acknowledged(gaps: Sequence[pb2.LedgerGap], output: Output) -> None:
    if output is Output.JSON:
        print_json([_as_json(gap) for gap in gaps])
        return
    print_table(
        "acknowledged", _COLUMNS, [_cells(gap, with_names=False) for gap in gaps], empty="nothing new"
    )
    if gaps:
        say("undo: none; `twinlog gaps --all` still shows them")


def _cells(gap: pb2.LedgerGap, *, with_names: bool) -> list[str]:
    cells = [
        flow_name(gap.flow),
        partition_name(gap.partition),
        str(gap.from_offset),
        str(gap.to_offset),
        str(gap.lost_offsets),
        gap.reason,
        gap.found_at.ToJsonString(),
    ]
    if with_names:
        known = f"{gap.acknowledged_by} {gap.acknowledged_at.ToJsonString()}" if gap.acknowledged_by else ""
        cells.append(known)
    return cells


def _as_json(gap: pb2.LedgerGap) -> dict[str, Any]:
    return {
        "flow": flow_name(gap.flow),
        "topic": gap.partition.topic,
        "partition": gap.partition.partition,
        "from": gap.from_offset,
        "to": gap.to_offset,
        "offsets": gap.lost_offsets,
        "reason": gap.reason,
        "found_at": gap.found_at.ToJsonString(),
        "acknowledged_by": gap.acknowledged_by or None,
        "acknowledged_at": gap.acknowledged_at.ToJsonString() if gap.HasField("acknowledged_at") else None,
    }


async def _gaps(
    flow: str | None, topic: str, config: Path | None, endpoint: list[str] | None
) -> pb2.ListGapsResponse:
    wanted = None if flow is None else parse_flow(flow)
    async with source_stub(config, endpoint) as stub:
        return await answered(every_gap(stub, wanted, topic, timeout_seconds=CALL_TIMEOUT_SECONDS))


async def _acknowledge(
    request: pb2.AcknowledgeGapsRequest, config: Path | None, endpoint: list[str] | None
) -> list[pb2.LedgerGap]:
    async with source_stub(config, endpoint) as stub:
        return list((await answered(stub.AcknowledgeGaps(request, timeout=CALL_TIMEOUT_SECONDS))).gaps)
