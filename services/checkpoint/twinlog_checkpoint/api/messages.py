"""Converts between protobuf messages of the API and the domain's values. Pure."""

from collections.abc import Iterable

from twinlog.api.checkpoint.v1 import checkpoint_service_pb2 as pb2
from twinlog.errors import ConfigError
from twinlog.model import Flow, TopicPartition
from twinlog.service.api_values import flow_message, message_of, partition_message, timestamp
from twinlog_checkpoint.api.group_explainer import GroupExplanation
from twinlog_checkpoint.api.offset_queries import Direction, OffsetQuery, OffsetTranslation
from twinlog_checkpoint.flow.parts import FlowParts
from twinlog_checkpoint.groups.progress import GroupProgress, ProgressSummary
from twinlog_checkpoint.translation.translation import Verdict

VERDICTS = {verdict: pb2.Verdict.Value(f"VERDICT_{verdict.value}") for verdict in Verdict}


# ---------------------------------------------------------------------------------------------- groups


def group_partition(row: GroupProgress) -> pb2.GroupPartition:
    told = row.translation
    return message_of(
        pb2.GroupPartition,
        row,
        downstream_offset=told.downstream_offset,
        verdict=VERDICTS[told.verdict],
        message=told.message,
    )


def group_summary(flow: Flow, summary: ProgressSummary) -> pb2.GroupSummary:
    return pb2.GroupSummary(
        flow=flow_message(flow),
        group_count=summary.group_count,
        partitions_by_verdict={
            verdict.value: count for verdict, count in summary.partitions_by_verdict.items()
        },
    )


def unsupported_group(flow: Flow, group: str, group_type: str) -> pb2.UnsupportedGroup:
    return pb2.UnsupportedGroup(flow=flow_message(flow), group=group, group_type=group_type)


def flow_progress(parts: FlowParts) -> pb2.FlowProgress:
    groups, table = parts.checkpointer.groups, parts.checkpointer.table
    return message_of(
        pb2.FlowProgress,
        parts,
        ready=parts.syncs_are_read,
        obstacle=parts.blocker,
        obstacle_reason=parts.blocker_reason,
        confirmed=timestamp(table.confirmed_ms),
        deletions_held_reason=table.deletions_held[0],
        deletions_held=table.deletions_held[1],
        offsets_held_reason=table.offsets_held[0],
        offsets_held=table.offsets_held[1],
        groups_listed=timestamp(groups.listed_at_ms),
        next_listing=timestamp(parts.checkpointer.next_listing_ms),
        listing_failed_reason="" if groups.problem is None else groups.problem.reason,
        listing_failed="" if groups.problem is None else str(groups.problem),
    )


def group_explanation(explanation: GroupExplanation) -> pb2.GroupExplanation:
    return message_of(
        pb2.GroupExplanation,
        explanation,
        findings=[message_of(pb2.Finding, finding) for finding in explanation.findings],
        partitions=[group_partition(row) for row in explanation.rows],
    )


# --------------------------------------------------------------------------------------------- queries


def direction_of(direction: "pb2.Direction.ValueType") -> Direction:
    return Direction.BACK if direction == pb2.DIRECTION_BACK else Direction.FORWARD


def offset_queries(queries: Iterable[pb2.OffsetQuery]) -> list[OffsetQuery]:
    """Raises ConfigError if a query has neither offset nor time, or a negative offset; it names the query."""
    found: list[OffsetQuery] = []
    for index, query in enumerate(queries):
        partition = TopicPartition(query.partition.topic, query.partition.partition)
        match query.WhichOneof("position"):
            case "offset" if query.offset >= 0:
                found.append(OffsetQuery(partition=partition, offset=query.offset))
            case "timestamp":
                found.append(OffsetQuery(partition=partition, timestamp_ms=query.timestamp.ToMilliseconds()))
            case _:
                raise ConfigError(
                    f"query {index + 1} ({partition}): expected an offset from 0 up, or a timestamp",
                    reason="INVALID_QUERY",
                    metadata={"query": str(index)},
                )
    return found


def offset_translation(answer: OffsetTranslation) -> pb2.OffsetTranslation:
    return pb2.OffsetTranslation(
        partition=partition_message(answer.query.partition),
        offset=answer.offset,
        translated_partition=None if answer.partition is None else partition_message(answer.partition),
        translated_offset=answer.translation.downstream_offset,
        verdict=VERDICTS[answer.translation.verdict],
        message=answer.translation.message,
    )


# ---------------------------------------------------------------------------------------------- common
