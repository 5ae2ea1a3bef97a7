"""Converts the driver's state into messages of SourceService. Pure."""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from typing import TypeGuard

from google.protobuf.timestamp_pb2 import Timestamp

from twinlog.api.source.v1 import source_service_pb2 as pb
from twinlog.batches import LaneReason
from twinlog.batches.bodies import OpenRecord, decode_record
from twinlog.kafka.reasons import KafkaReason
from twinlog.model import Flow
from twinlog.service.api_values import (
    cluster_message,
    duration,
    flow_message,
    message_of,
    partition_message,
    timestamp,
)
from twinlog.service.clusters import ClusterStatus
from twinlog.service.owner.name import OwnerReason
from twinlog.verify.standing import ProofStanding
from twinlog_source.driver.flow_driver import FlowDriver
from twinlog_source.driver.moves import Move
from twinlog_source.log.facts import CopyFact
from twinlog_source.log.gaps import Gap
from twinlog_source.partitions.copy_mode import OffsetsReason
from twinlog_source.partitions.orders import ForeignWrite, PartitionState
from twinlog_source.partitions.rows import PartitionRow
from twinlog_source.partitions.standing import (
    FlowFacts,
    PartitionStanding,
    backlog_of,
    standing_of,
    told_target_end,
    translated_since,
)
from twinlog_source.reasons import HELD, PartitionReason
from twinlog_source.records.trial import Tried
from twinlog_source.topics.flow_back import CopiedBack

LATEST_MS = 253_402_300_799_999
"""The end of the year 9999, the last one of a Timestamp; a record may claim a later one."""
_MOST_FOREIGN = 5
"""So many copies with foreign records are named."""


def flow_status(
    driver: FlowDriver, clusters: Iterable[ClusterStatus], *, lent_workers: Mapping[str, int]
) -> pb.FlowStatus:
    table, facts = driver.state.table, driver.facts()
    told = [(row, standing_of(row, facts)) for row in table.rows.values()]
    reason, message = facts.idle_reason, facts.idle_message
    if not reason:
        reason, message = _most_frequent_trouble(driver, told)
    backlog = backlog_of(told, facts)
    left_out = sum((row.left_out for row, _ in told), Counter[str]())
    seen = [row for row, _ in told if row.end is not None]
    held = [
        f"{row.partition}: {standing.message}"
        for row, standing in told
        if standing.reason == PartitionReason.OPEN_TRANSACTION
    ]
    proofs = [table.proofs.get(row.partition) for row, _ in told]
    oldest_ms = min((0 if proof is None else proof.proven_at_ms for proof in proofs), default=0)
    return pb.FlowStatus(
        flow=flow_message(driver.flow),
        epoch=0 if driver.current is None else driver.current.number,
        slots=0 if driver.current is None else len(driver.current.slots),
        partitions_by_state=Counter(str(standing.state) for _, standing in told),
        records=table.records,
        bytes=table.bytes,
        records_per_second=sum(row.records.shown(facts.now) for row, _ in told),
        bytes_per_second=sum(row.bytes.shown(facts.now) for row, _ in told),
        last_known_lag_records=backlog.last_known_records,
        partitions_of_unknown_lag=backlog.unknown_partitions,
        foreign_records=sum(row.foreign_records for row, _ in told),
        echo_records=left_out.pop(LaneReason.ECHO, 0),
        left_out_records=left_out,
        partitions_both_ways=sum(_is_both_ways(row) for row, _ in told),
        exactly_once=driver.state.flow.settings.exactly_once,
        spark_ui=driver.jobs.runner.workers.spark_ui,
        lent_workers=lent_workers,
        reason=reason,
        message=message,
        clusters=[cluster_message(status) for status in clusters],
        pauses=pauses(driver),
        throttles=throttles(driver),
        lag_records=backlog.records,
        caught_up_in=duration(backlog.caught_up_in_seconds),
        falls_behind_per_second=backlog.falls_behind_per_second,
        delay=duration(facts.delay_seconds or None),
        foreign_partitions=[partition_message(row.partition) for row in _most_foreign(told)],
        offsets_lost_by_reason=Counter(copy.reason for row, _ in told if _lost_offsets(copy := row.copy)),
        partitions_behind_transactions=len(held),
        open_transaction=held[0] if held else "",
        oldest_record_at=_at(facts, backlog.began_at),
        source_ends_as_of=_at(facts, min((row.end_at for row in seen), default=None)),
        source_watched_since=_at(facts, max((row.watched_since for row in seen), default=None)),
        source_grew_at=_at(facts, backlog.source_grew_at),
        last_copied_at=timestamp(table.last_copied_at_ms or None),
        last_copied_record_time=timestamp(table.last_copied_record_ms or None),
        partitions_by_proof=Counter(str(proof.verdict) for proof in proofs if proof is not None),
        proven_at=timestamp(oldest_ms or None),
    )


def _at(facts: FlowFacts, monotonic: float | None) -> Timestamp | None:
    return timestamp(None if monotonic is None else facts.wall_ms(monotonic))


def _tell_of_copy(status: pb.PartitionStatus, driver: FlowDriver, row: PartitionRow, copy: CopyFact) -> None:
    status.offsets = "preserved" if copy.preserved else "translated"
    status.offsets_reason = copy.reason
    status.offsets_since = translated_since(copy, row.losses, driver.state.positions.gaps.values())
    fact = driver.state.control.transforms.get(row.partition)
    if fact is not None and fact.target_topic_id == copy.target_topic_id:
        status.transform, status.transform_since = fact.starts[-1]


def partition_status(
    driver: FlowDriver, row: PartitionRow, standing: PartitionStanding, facts: FlowFacts
) -> pb.PartitionStatus:
    proof, began = driver.state.table.proofs.get(row.partition), row.lag_time.began(facts.now)
    status = pb.PartitionStatus(
        flow=flow_message(driver.flow),
        source=partition_message(row.partition),
        target_topic=row.target_topic,
        state=pb.PartitionState.Value(f"PARTITION_STATE_{standing.state}"),
        position=-1 if row.position is None else row.position,
        source_end_offset=-1 if row.end is None else row.end,
        lag_records=standing.lag_records,
        caught_up_in=duration(standing.caught_up_in_seconds),
        records_per_second=row.records.shown(facts.now),
        bytes_per_second=row.bytes.shown(facts.now),
        slot=-1 if row.slot is None else row.slot,
        is_heartbeats=row.is_heartbeats,
        source_topic_id=_source_topic_id(driver, row.partition.topic),
        target_end=told_target_end(row, facts, exactly_once=driver.state.flow.settings.exactly_once),
        echo_records=row.left_out[LaneReason.ECHO],
        left_out_records={why: count for why, count in row.left_out.items() if why != LaneReason.ECHO},
        reason=standing.reason,
        message=_words(driver, row, standing),
        retry_at=timestamp(retry_ms(row, facts)),
        as_of=timestamp(row.reported_at_ms or None),
        source_end_as_of=_at(facts, None if row.end is None else row.end_at),
        oldest_record_at=_at(facts, None if standing.lag_seconds is None else began),
        proof=None if proof is None else _proof(proof),
        target_topic_id="" if row.copy is None else row.copy.target_topic_id,
        stalled_since=_at(facts, standing.stalled_since),
        foreign_write=None if row.foreign_write is None else foreign_write_message(row.foreign_write),
        foreign_records=0 if row.foreign_write is None else row.foreign_records,
        foreign_writes=map(foreign_write_message, row.foreign_writes),
        foreign_acknowledged_by=row.foreign_acknowledged_by,
        foreign_acknowledged_at=timestamp(row.foreign_acknowledged_at_ms or None),
    )
    copy = row.copy or driver.state.control.copies.get(row.partition)
    if copy is not None:
        _tell_of_copy(status, driver, row, copy)
    if row.report is not None:
        status.lane = pb.Lane.Value(f"LANE_{row.report.lane or 'UNSPECIFIED'}")
        if row.report.replication_latency_ns is not None:
            status.replication_latency.FromNanoseconds(row.report.replication_latency_ns)
    return status


def copied_back_message(flow: Flow, copied: CopiedBack) -> pb.PartitionStatus:
    return pb.PartitionStatus(
        flow=flow_message(flow),
        source=partition_message(copied.partition),
        state=pb.PARTITION_STATE_WAITING,
        position=copied.position,
        source_end_offset=-1,
        slot=-1,
        target_end=copied.target_end,
        source_topic_id=copied.topic_id,
        target_topic_id=copied.target_topic_id,
        reason=OwnerReason.OWNED_ELSEWHERE,
    )


def _source_topic_id(driver: FlowDriver, topic: str) -> str:
    fact = driver.state.control.topics.get(topic)
    return "" if fact is None else fact.topic_id


def _proof(proof: ProofStanding) -> pb.PartitionProof:
    proven_at = timestamp(proof.proven_at_ms) if proof.proven_at_ms else None
    return message_of(pb.PartitionProof, proof, proven_at=proven_at)


def retry_ms(row: PartitionRow, facts: FlowFacts) -> int | None:
    """The wall-clock time at which a partition in back-off is tried again; None for others."""
    if row.blocker is not None:
        return facts.wall_ms(row.blocker.retry_at)
    return None if row.retry_at is None else facts.wall_ms(row.retry_at)


def gap_message(flow: Flow, gap: Gap) -> pb.LedgerGap:
    acknowledged_at = timestamp(gap.acknowledged_at_ms) if gap.acknowledged_by else None
    return message_of(pb.LedgerGap, gap, flow=flow_message(flow), acknowledged_at=acknowledged_at)


def foreign_message(row: PartitionRow) -> pb.ForeignCopy:
    write = row.foreign_write
    return pb.ForeignCopy(
        partition=partition_message(row.partition),
        records=row.foreign_records,
        last=None if write is None else foreign_write_message(write),
    )


def change_message(move: Move) -> pb.PositionChange:
    return message_of(
        pb.PositionChange,
        move,
        from_offset=-1 if move.from_offset is None else move.from_offset,
        to_offset=-1 if move.to_offset is None else move.to_offset,
    )


def pauses(driver: FlowDriver) -> list[pb.Pause]:
    marks = driver.state.control.pauses.values()
    return [
        pb.Pause(
            scope=_scope(driver.flow, mark.topic, mark.partition), by=mark.by, since=timestamp(mark.at_ms)
        )
        for mark in sorted(
            marks, key=lambda mark: (mark.topic or "", -1 if mark.partition is None else mark.partition)
        )
    ]


def throttles(driver: FlowDriver) -> list[pb.Throttle]:
    marks = driver.state.control.throttles.values()
    return [
        pb.Throttle(
            scope=_scope(driver.flow, mark.topic),
            bytes_per_second=mark.bytes_per_second,
            by=mark.by,
            since=timestamp(mark.at_ms) if mark.at_ms else None,
        )
        for mark in sorted(marks, key=lambda mark: mark.topic or "")
    ]


def _words(driver: FlowDriver, row: PartitionRow, standing: PartitionStanding) -> str:
    """Why a partition makes no progress, and which service could help."""
    if standing.reason == KafkaReason.TOPIC_UNKNOWN and not driver.state.decisions.connected:
        return f"{standing.message}; configsync, which would create it, does not answer"
    pause = driver.state.control.pause_of(row.partition)
    if standing.state == PartitionState.PAUSED and pause is not None:
        return f"by {pause.by} since {timestamp(pause.at_ms).ToJsonString()}"
    return standing.message


def _most_frequent_trouble(
    driver: FlowDriver, told: Iterable[tuple[PartitionRow, PartitionStanding]]
) -> tuple[str, str]:
    """The most frequent problem of the partitions that make no progress; empty when all are copied or were
    stopped on purpose."""
    troubled = [
        (row, standing)
        for row, standing in told
        if standing.reason not in ("", PartitionReason.OPEN_TRANSACTION, *HELD)
        and standing.state != PartitionState.PAUSED
    ]
    if not troubled:
        return "", ""
    ((reason, count),) = Counter(standing.reason for _, standing in troubled).most_common(1)
    row, standing = next(each for each in troubled if each[1].reason == reason)
    others = "" if count == len(troubled) else f" ({len(troubled) - count} more for other reasons)"
    partitions = "1 partition" if count == 1 else f"{count} partitions"
    return reason, f"{partitions}{others}, such as {row.partition}: {_words(driver, row, standing)}"


def _most_foreign(told: Iterable[tuple[PartitionRow, PartitionStanding]]) -> list[PartitionRow]:
    """The copies into which others wrote most."""
    found = [row for row, _ in told if row.foreign_records]
    return sorted(found, key=lambda row: (-row.foreign_records, row.partition))[:_MOST_FOREIGN]


def _lost_offsets(copy: CopyFact | None) -> TypeGuard[CopyFact]:
    """Whether the copy had the source's offsets and has its own now."""
    if copy is None or copy.preserved or copy.reason == OffsetsReason.BOTH_WAYS:
        return False
    # Of a source that was recreated it has no offset, so that began at 0.
    return copy.since > 0 or copy.reason == OffsetsReason.SOURCE_RECREATED


def _is_both_ways(row: PartitionRow) -> bool:
    """A copy that lost the source's offsets before for another reason keeps that reason."""
    reason = None if row.copy is None else row.copy.reason
    return reason == OffsetsReason.BOTH_WAYS or row.left_out[LaneReason.ECHO] > 0


def _scope(flow: Flow, topic: str | None, partition: int | None = None) -> pb.Scope:
    return pb.Scope(flow=flow_message(flow), source_topic=topic or "", partition=partition)


def tried_records(tried: Tried) -> Iterator[pb.TriedRecord]:
    for record in tried.records:
        passed = tried.changed.passed.get(record[0])
        yield pb.TriedRecord(
            partition=partition_message(tried.partition),
            offset=record[0],
            before=_content(record),
            after=None if passed is None else _content(passed),
            error=tried.changed.failed.get(record[0], ""),
            route=tried.changed.routes.get(record[0], "") if passed is not None else "",
        )


def _content(record: OpenRecord) -> pb.RecordContent:
    _, timestamp_ms, key, value, headers = decode_record(record)
    return pb.RecordContent(
        timestamp_ms=timestamp_ms,
        key=key,
        value=value,
        headers=[pb.RecordHeader(key=name, value=content) for name, content in headers],
    )


def foreign_write_message(write: ForeignWrite) -> pb.ForeignWrite:
    written_at = timestamp(min(write.written_at_ms, LATEST_MS)) if write.written_at_ms > 0 else None
    return message_of(pb.ForeignWrite, write, written_at=written_at)
