"""`twinlog partitions`: the copy of every partition."""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import typer

from twinlog.api.common.v1 import types_pb2
from twinlog.api.source.v1 import source_service_pb2 as pb2
from twinlog.cli.common.call import Call, Differences, Services, command, looks
from twinlog.cli.common.failures import tell
from twinlog.cli.common.fields import (
    Field,
    Fields,
    as_json,
    clear_screen,
    print_json_line,
    print_rows,
    screen_rows,
    table,
    value_of,
)
from twinlog.cli.common.names import (
    CLOCK,
    MOST_SECONDS,
    flow_name,
    parse_flow,
    producer_words,
    shown_bytes,
    shown_seconds,
)
from twinlog.cli.common.options import OptionalFlowArgument, flag, option
from twinlog.cli.common.pasteable import say
from twinlog.cli.source.client import TopicOption, every_partition, flow_partition, list_flows
from twinlog.cli.status.rows import ClusterRow, outages
from twinlog.cli.verdict.flows import cause_of
from twinlog.errors import TwinlogError
from twinlog.reasons import known_reasons

# One partition as a row of a table, and as JSON. Pure.

UNKNOWN = "?"

_HARMLESS = ("", "DELAYED", "UNTIL_REACHED")
_OLDEST_MS = 30 * 366 * 86_400_000
"""No record of Kafka is so old."""
_FEW = 5
_WORST_FIRST = ("FAULTED", "STALLED", "BACKOFF", "WAITING", "PAUSED", "RUNNING")


def is_troubled(status: pb2.PartitionStatus) -> bool:
    """Whether it is not RUNNING, waits, or differs from its source. A delayed partition is RUNNING."""
    return bool(troubles_of(status))


def troubles_of(status: pb2.PartitionStatus) -> dict[str, str]:
    """What is wrong with it in words, by the reason that has the remedy (empty: there is none)."""
    found: dict[str, str] = {}
    # One with a message and no reason waits for a transaction that is not open for long.
    is_told = status.reason not in _HARMLESS or (status.message and not status.reason)
    if status.state != pb2.PARTITION_STATE_RUNNING or is_told:
        about = " ".join(word for word in (state_name(status), status.reason) if word)
        found[status.reason] = f"{about}: {status.message}" if status.message else about
    if words := _foreign_words(status):
        found["FOREIGN_WRITE"] = words
    if status.proof.verdict == "DIFFERENT":
        found["DIFFERS"] = proof_words(status)
    return found


def worst_first(statuses: Iterable[pb2.PartitionStatus]) -> list[pb2.PartitionStatus]:
    """Faulted partitions first, then those without progress, …, then RUNNING ones; otherwise in the original
    order."""
    ranks = {state: rank for rank, state in enumerate(_WORST_FIRST)}
    return sorted(statuses, key=lambda each: (ranks.get(state_name(each), 0), not is_troubled(each)))


def first_of_each(
    statuses: Sequence[pb2.PartitionStatus],
) -> tuple[list[pb2.PartitionStatus], dict[tuple[str, str], int]]:
    """The first few partitions of each state and reason, and how many more there are of it."""
    seen: Counter[tuple[str, str]] = Counter()
    shown = []
    for each in statuses:
        kind = state_name(each), next(iter(troubles_of(each)), "")
        seen[kind] += 1
        if seen[kind] <= _FEW:
            shown.append(each)
    return shown, {kind: count - _FEW for kind, count in seen.items() if count > _FEW}


OFFSETS: Fields[pb2.PartitionStatus] = table("offsets? offsets_reason offsets_since")
"""Which offsets the copy has; null while undecided."""
TRANSFORM: Fields[pb2.PartitionStatus] = table("transform transform_since")
_PROOF: Fields[pb2.PartitionProof] = table("verdict proven_until proven_at checked_at differences reason")
_FOREIGN: Fields[pb2.ForeignWrite] = table(
    "from_offset to_offset records producer_id producer_epoch written_at"
)


def _or_unknown(value: int | None) -> str:
    return UNKNOWN if value is None else str(value)


def _offset(name: str, column: str) -> Field[pb2.PartitionStatus]:
    """Negative while it is not known."""

    def known(row: pb2.PartitionStatus) -> int | None:
        value: int | None = value_of(row, name)
        return None if value is None or value < 0 else value

    return Field(name, known, column, lambda row: _or_unknown(known(row)), right=True)


POSITION = _offset("position", "position")
SOURCE_END = _offset("source_end_offset", "source end")
LAG = _offset("lag_records", "lag")


def _number(
    name: str,
    of: Callable[[pb2.PartitionStatus], float | None],
    column: str,
    words: Callable[[Any], str],
    spare: int = 0,
) -> Field[pb2.PartitionStatus]:
    return Field(
        *(name, lambda row: _rounded(of(row)), column, lambda row: words(of(row))), right=True, spare=spare
    )


def partition_fields(now_ms: int) -> Fields[pb2.PartitionStatus]:
    """As of this time."""
    return table(
        "flow|flow4 topic=source.topic partition=source.partition =source|partition",
        "target_topic state|state",
        replace(POSITION, spare=1),
        replace(SOURCE_END, column=""),
        LAG,
        _number("lag_seconds", lambda row: lag_seconds(row, now_ms=now_ms), "behind", shown_seconds),
        _number(
            "caught_up_in_seconds", lambda row: value_of(row, "caught_up_in"), "caught up", shown_catch_up, 3
        ),
        _number("records_per_second", lambda row: row.records_per_second, "records/s", "{:.0f}".format, 2),
        _number("bytes_per_second", lambda row: row.bytes_per_second, "bytes/s", shown_bytes, 3),
        Field("lane", _lane, "lane", lambda row: (_lane(row) or "").replace("RAW", "UNOPENED"), spare=6),
        *OFFSETS,
        Field("", column="offsets", text=lambda row: f"{row.offsets} {row.offsets_reason}".strip(), spare=7),
        Field("proof", lambda row: _part(_PROOF, row, "proof"), "proof", proof_words, spare=4),
        Field("", column="delay", text=_delay, right=True, spare=5),
        Field("", column="next try", text=lambda row: _until(row, now_ms), right=True, spare=1),
        *TRANSFORM,
        "echo_records",
        Field("left_out_records", lambda row: dict(sorted(row.left_out_records.items()))),
        "foreign_records",
        Field("foreign_write", lambda row: _part(_FOREIGN, row, "foreign_write")),
        "slot",
        Field(
            "reason",
            column="reason",
            text=lambda row: (
                f"{row.reason} {row.message}".strip()
                or _foreign_words(row)
                or left_out_words(row.left_out_records)
            ),
        ),
        "message retry_at stalled_since as_of source_end_as_of",
        Field("replication_latency_ms", _latency_ms),
    )


def _rounded(number: float | None) -> float | None:
    return None if number is None else round(number, 3)


def _part(fields: Fields[Any], row: pb2.PartitionStatus, name: str) -> dict[str, Any] | None:
    return as_json(fields, getattr(row, name)) if row.HasField(name) else None  # type: ignore[arg-type]


def _lane(row: pb2.PartitionStatus) -> str | None:
    return None if row.lane == pb2.LANE_UNSPECIFIED else value_of(row, "lane")


def _latency_ms(row: pb2.PartitionStatus) -> int | None:
    return row.replication_latency.ToMilliseconds() if row.HasField("replication_latency") else None


def _delay(row: pb2.PartitionStatus) -> str:
    latency_ms = _latency_ms(row)
    return "" if latency_ms is None else shown_delay(latency_ms)


def lag_seconds(status: pb2.PartitionStatus, *, now_ms: int) -> float | None:
    """The age of the oldest record that is not copied; None when unknown."""
    if not status.HasField("lag_records"):
        return None
    if not status.lag_records:
        return 0.0
    if not status.HasField("oldest_record_at"):
        return None
    return max(0.0, (now_ms - status.oldest_record_at.ToMilliseconds()) / 1000)


def left_out_words(records: Mapping[str, int]) -> str:
    """What transforms kept out of the copy (`left_out_records`); empty = nothing."""
    return ", ".join(f"{count:,} {why}" for why, count in sorted(records.items()))


def _foreign_words(status: pb2.PartitionStatus) -> str:
    if not status.foreign_records:
        return ""
    write = status.foreign_write
    last = write.to_offset - 1
    place = f"{last}" if last == write.from_offset else f"{write.from_offset} to {last}"
    return (
        f"FOREIGN_WRITE {status.foreign_records} of others' records in the copy, the last at {place} of"
        f" {producer_words(write.producer_id)}"
    )


def proof_words(status: pb2.PartitionStatus) -> str:
    proof = status.proof
    if not proof.verdict:
        return ""
    kinds = ", ".join(f"{count} {kind}" for kind, count in sorted(proof.differences.items()))
    if kinds:
        since = f", since then {proof.reason}" if proof.reason else ""
        return f"DIFFERENT: {kinds}{since}"
    if not proof.HasField("proven_at"):
        return f"{proof.verdict} {proof.reason}"
    since = f", since then {proof.verdict} {proof.reason}" if proof.reason else ""
    return f"PROVEN to {proof.proven_until} at {proof.proven_at.ToDatetime():%H:%M:%S}Z{since}"


def state_name(status: pb2.PartitionStatus) -> str:
    """`RUNNING`."""
    return str(value_of(status, "state"))


def shown_delay(milliseconds: int) -> str:
    """`120 ms`, `12 s`; `?` of a record that has no time of its own: its timestamp is near 0, or below."""
    if milliseconds > _OLDEST_MS:
        return UNKNOWN
    return f"{milliseconds} ms" if milliseconds < 10_000 else shown_seconds(milliseconds / 1000)


def shown_catch_up(seconds: float | None) -> str:
    """`yes`, `in 5 min`, or `?` when unknown."""
    if seconds is None:
        return UNKNOWN
    return f"in {shown_seconds(seconds)}" if seconds else "yes"


def _until(status: pb2.PartitionStatus, now_ms: int) -> str:
    if not status.HasField("retry_at"):
        return ""
    return f"in {max(0.0, (status.retry_at.ToMilliseconds() - now_ms) / 1000):.0f} s"


_NO_TROUBLE = "no partition that is copied has a problem; `twinlog topics --waiting` shows topics that wait"
_NOTHING = "no partition is copied; `twinlog explain topic NAME` says why"


@command
def partitions_command(
    call: Call,
    flow: OptionalFlowArgument = None,
    topic: TopicOption = "",
    follow: bool = flag(
        "--watch -w",
        "Follow until Ctrl-C: the table whenever something changes; with -o json one line with all "
        "partitions, then one with those that changed (state REMOVED: no longer copied).",
    ),
    every: float = option(
        "--every SECONDS", "With --watch: the time between two looks.", 1.0, min=0.2, max=MOST_SECONDS
    ),
    trouble: bool = flag(
        "--trouble", "Only partitions with a problem, or slow ones; of many with the same one the first."
    ),
    verbose: bool = flag("--verbose -v", "With --trouble: each of those with the same problem."),
) -> None:
    """Show the copy of every partition: state, position, lag, rates, and any problem; problems come first.

    `?` means not known. A narrow terminal shows fewer columns.
    """
    wanted = None if flow is None else parse_flow(flow)
    if follow:
        call.ask(lambda at: _follow(call, at, wanted, topic, every, trouble=trouble))
        return

    async def ask(at: Services) -> tuple[list[pb2.PartitionStatus], list[ClusterRow]]:
        told = list(await every_partition(at.source, wanted, topic))
        if not trouble:
            return told, []
        flows = () if call.in_json else await list_flows(at.source, flow)
        silent = outages("source", (cluster for each in flows for cluster in each.clusters))
        return [status for status in told if is_troubled(status)], silent

    found, silent = call.ask(ask)
    call.tell(
        [as_json(_fields(), status) for status in found],
        lambda: _print_rows(found, trouble=trouble, few_of_each=trouble and not verbose, silent=silent),
    )


async def _follow(
    call: Call, at: Services, flow: types_pb2.Flow | None, topic: str, every_seconds: float, *, trouble: bool
) -> None:
    """Show the partitions whenever they differ, also after restarts of the service."""
    seen = Differences(key=flow_partition, shape=_shape)
    async for look in looks(lambda: every_partition(at.source, flow, topic), seconds=every_seconds):
        if isinstance(look, TwinlogError):
            tell(look, f"{look} ({look.reason}); trying again")
        elif (news := seen.take(look)) is None:
            continue
        elif call.in_json:
            changed = [as_json(_fields(), status) for status in sorted(news[0], key=flow_partition)]
            removed = [{**as_json(_fields(), status), "state": "REMOVED"} for status in news[1]]
            print_json_line([*changed, *removed])
        else:
            clear_screen()
            found = [each for each in sorted(look, key=flow_partition) if is_troubled(each) or not trouble]
            _print_rows(found, trouble=trouble, most=screen_rows())


def _shape(status: pb2.PartitionStatus) -> pb2.PartitionStatus:
    """Without times of observation, and fields that change with the clock."""
    shape = pb2.PartitionStatus()
    shape.CopyFrom(status)
    for name in ("as_of", "source_end_as_of", "oldest_record_at", "caught_up_in"):
        shape.ClearField(name)
    if shape.HasField("proof"):
        shape.proof.ClearField("proven_at")
        shape.proof.ClearField("checked_at")
    return shape


def _print_rows(
    found: Sequence[pb2.PartitionStatus],
    *,
    trouble: bool,
    most: int | None = None,
    few_of_each: bool = False,
    silent: Sequence[ClusterRow] = (),
) -> None:
    """The table, worst first; on a screen that is redrawn, as many rows as fit. `few_of_each`: of many with
    the same problem the first, and how many more there are. `silent`: clusters whose brokers do not
    answer."""
    shown, more = first_of_each(worst_first(found)) if few_of_each else (worst_first(found), {})
    shown = shown[:most]
    empty = _NO_TROUBLE if trouble else _NOTHING
    print_rows(_fields(), shown, empty=empty)
    for (state, reason), count in more.items():
        typer.echo(f"and {count:,} more {' '.join(filter(None, (state, reason)))}; -v lists them")
    causes = {why: cause_of(why, silent) for each in shown if few_of_each for why in troubles_of(each)}
    flows = {why: flow_name(each.flow) for each in reversed(shown) for why in troubles_of(each)}
    for row in silent:
        follow = ", ".join(reason for reason, alias in causes.items() if alias == row.alias)
        say(f"{follow}: {row.outage_words}" if follow else row.outage_words)
    for reason, alias in causes.items():
        if not alias and (known := known_reasons(flows[reason]).get(reason)):
            say(f"{reason}: {known['remedy']}")
    if not few_of_each and len(shown) < len(found):
        typer.echo(f"… and {len(found) - len(shown)} more; --trouble shows those that do not run")


def _fields() -> Fields[pb2.PartitionStatus]:
    return partition_fields(CLOCK.get().now_ms())
