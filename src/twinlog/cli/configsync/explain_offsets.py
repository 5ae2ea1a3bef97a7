"""Which offsets the copy of an explained topic has, and what is wrong with it, by the source service."""

import asyncio
from collections import Counter
from collections.abc import Sequence
from typing import Any

from twinlog.api.configsync.v1 import configsync_service_pb2 as pb2
from twinlog.api.source.v1 import source_service_pb2 as source_pb
from twinlog.cli.common.call import Services
from twinlog.cli.common.fields import Field, Fields, as_json
from twinlog.cli.common.names import flow_name, partition_name, shown_bytes
from twinlog.cli.source.client import every_partition, list_flows, scope_name
from twinlog.cli.source.partition_rows import OFFSETS, is_troubled, state_name
from twinlog.errors import TwinlogError

ASK_SECONDS = 10.0

Partitions = Sequence[source_pb.PartitionStatus]


async def copies_of(explanations: Sequence[pb2.TopicExplanation], at: Services) -> list[Partitions | None]:
    """The partitions of each explained topic; None if it is not copied, or it is unknown."""
    return [await _copies(each, at) for each in explanations]


async def _copies(explanation: pb2.TopicExplanation, at: Services) -> Partitions | None:
    if explanation.verdict != pb2.TOPIC_VERDICT_REPLICATED:
        return None
    try:
        async with asyncio.timeout(ASK_SECONDS):
            return await every_partition(at.source, explanation.flow, explanation.source_topic)
    except (TwinlogError, TimeoutError):
        return None  # The user asked for configsync's answer; this is only added if it is known.


def offsets_words(partitions: Partitions | None) -> str:
    """`preserved`, `translated: COMPACTED`, `2 preserved, 1 translated: FILL_TOO_LARGE`; empty while
    unknown."""
    kinds = Counter(
        f"{each.offsets}: {each.offsets_reason}" if each.offsets_reason else each.offsets
        for each in partitions or ()
        if each.offsets
    )
    if len(kinds) == 1:
        return next(iter(kinds))
    return ", ".join(f"{count} {kind}" for kind, count in sorted(kinds.items()))


def standing_words(partitions: Partitions | None) -> str:
    """`RUNNING, 0 behind`, `2 PAUSED, 1 RUNNING; 700 behind`; empty while unknown."""
    if not partitions:
        return ""
    states = Counter(state_name(each) for each in partitions)
    known = next(iter(states)) if len(states) == 1 else ""
    told = known or ", ".join(f"{count} {state}" for state, count in sorted(states.items()))
    lags = [each.lag_records for each in partitions if each.HasField("lag_records")]
    behind = f"{sum(lags):,} behind" if len(lags) == len(partitions) else "behind by an unknown number"
    return f"{told}{', ' if known else '; '}{behind}"


async def limits_of(explanations: Sequence[pb2.TopicExplanation], at: Services) -> list[list[str]]:
    """The limits in force on each topic and its flow, in words; none while unknown."""
    try:
        async with asyncio.timeout(ASK_SECONDS):
            flows = {flow_name(each.flow): each for each in await list_flows(at.source, None)}
    except (TwinlogError, TimeoutError):
        flows = {}
    return [
        [
            f"{scope_name(limit.scope)} limited to {shown_bytes(limit.bytes_per_second)}/s"
            for limit in flows[flow_name(each.flow)].throttles
            if limit.scope.source_topic in ("", each.source_topic)
        ]
        if flow_name(each.flow) in flows
        else []
        for each in explanations
    ]


def trouble_words(partitions: Partitions | None, most: int = 3) -> str:
    """What the source service says of partitions that are not copied as they should; empty where all are."""
    troubled = [each for each in partitions or () if is_troubled(each)]
    told = [
        " ".join(
            word
            for word in (f"{partition_name(each.source)}:", state_name(each), each.reason, each.message)
            if word
        )
        for each in troubled[:most]
    ]
    more = [f"and {len(troubled) - most} more partitions"] if len(troubled) > most else []
    return "; ".join((*told, *more))


_COPY: Fields[source_pb.PartitionStatus] = (
    Field("partition", "source.partition"),
    *OFFSETS,
    *(Field(name) for name in ("state", "reason", "message")),
)


def offsets_document(partitions: Partitions | None) -> list[dict[str, Any]] | None:
    return None if partitions is None else [as_json(_COPY, each) for each in partitions]
