"""Applies what `twinlog repair` proposes, through the source service: pauses a partition, verifies it again,
sets the position back, and ends its pause. A new copy is made while its whole topic is paused."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any

from twinlog.api.source.v1 import source_service_pb2 as pb2
from twinlog.api.source.v1.source_service_pb2_grpc import SourceServiceStub
from twinlog.cli.common.call import Call, every
from twinlog.cli.common.names import flow_name, who
from twinlog.cli.new_copy import Pause, Repaired, make_again
from twinlog.cli.source.client import every_partition, list_flows, parse_scope
from twinlog.cli.verify.engine import engine, verified
from twinlog.errors import StateError, TransientKafkaError, TwinlogError
from twinlog.kafka.cluster import open_cluster
from twinlog.model import Flow
from twinlog.service.feeds.rules_in_force import flow_in_force
from twinlog.service.waiting import wait_or_stop
from twinlog.verify.repair import Action, Remedy, remedies, what_was_not_seen
from twinlog.verify.report import document

_TARGET_SECONDS = 30.0
_NOTICED_SECONDS = 120.0
"""How long the services may take to notice a new topic after they have refreshed topics."""
_AGAIN_SECONDS = 1.0
_NOT_YET = frozenset(("OFFSETS_PRESERVED", "PARTITION_UNKNOWN", "POSITION_NOT_MOVED", "POSITION_UNCERTAIN"))
"""Why a position cannot be set while the service still takes the topic for the former one."""


async def repair(flow: str, wanted: Sequence[Remedy], call: Call, *, new_copies: bool) -> list[Repaired]:
    """Apply the remedies in order. Raises the service's error: the following ones are not applied."""
    done = []
    configuration = call.configuration
    made: dict[str, Repaired] = {}
    """By topic, because all its partitions are copied again together."""
    async with call.services() as at:
        stub = at.source
        for remedy in wanted:
            if remedy.offset is None and new_copies and not remedy.holds_older:
                if remedy.topic not in made:
                    made[remedy.topic] = await _made_again(stub, configuration, flow, remedy)
                done.append(made[remedy.topic])
            elif remedy.offset is None:
                done.append(_not_repaired(remedy.why))
            else:
                done.append(await _set_back(stub, configuration, flow, remedy, remedy.offset))
    return done


_OUTDATED = Repaired(
    applied=False,
    is_outdated=True,
    reason="NOT_REPAIRED",
    message="the copy has changed since the report was written: verify again",
)


def _not_repaired(message: str) -> Repaired:
    return Repaired(applied=False, reason="NOT_REPAIRED", message=message)


async def _set_back(
    stub: SourceServiceStub, configuration: Any, flow: str, remedy: Remedy, offset: int
) -> Repaired:
    scope = parse_scope(flow, remedy.topic, remedy.partition)
    async with _paused(stub, scope):
        if not await _still_holds(configuration, flow, remedy, offset):
            return _OUTDATED
        request = pb2.SetPositionsRequest(scope=scope, target=pb2.PositionTarget(offset=offset), by=who())
        answer = await stub.SetPositions(request)
    (moved,) = answer.changes
    return Repaired(applied=moved.applied, reason=moved.reason, message=moved.message)


async def _made_again(stub: SourceServiceStub, configuration: Any, flow: str, remedy: Remedy) -> Repaired:
    scope = parse_scope(flow, remedy.topic, None)
    async with _paused(stub, scope) as pause:
        request = engine("verify.request").VerifyRequest(
            flow=Flow.parse(flow), topics=frozenset((remedy.topic,)), wait_seconds=0.0
        )
        told = document(await verified(configuration, request))
        found = remedies(told)
        if not any(each.action is Action.NEW_COPY for each in found):
            return _OUTDATED
        if any(each.holds_older for each in found):
            return _not_repaired("the copy has records that the source no longer has")
        if (unknown := what_was_not_seen(told)) is not None:
            return _not_repaired(f"the copy may have records that the source no longer has: {unknown}")
        client = configuration.flow(Flow.parse(flow)).clients.target_admin
        async with open_cluster(
            client.alias, client.properties, timeout_seconds=_TARGET_SECONDS, client_id_suffix="repair"
        ) as target:
            settings = (await flow_in_force(configuration, Flow.parse(flow), target)).config.configsync
            patience_seconds = settings.refresh_topics_interval_seconds + _NOTICED_SECONDS
            return await make_again(
                target, remedy, pause, lambda made: _set_to_start(stub, scope, made, patience_seconds)
            )


async def _set_to_start(
    stub: SourceServiceStub, scope: pb2.Scope, topic_id: str, patience_seconds: float
) -> None:
    """Copy a topic from the start of the source to the target topic with this id. Returns once the service
    knows that topic: before, it would count what it copies there as lost with the former one. A preserved
    copy begins there by itself. Raises TwinlogError."""
    request = pb2.SetPositionsRequest(
        scope=scope, target=pb2.PositionTarget(earliest=pb2.Earliest()), by=who()
    )
    loop = asyncio.get_running_loop()
    give_up_at = loop.time() + patience_seconds
    while True:
        problem: TwinlogError = TransientKafkaError(
            f"the source service did not notice within {patience_seconds:g} s that the topic is another one:"
            " it learns that from configsync (refresh.topics.interval.seconds)",
            reason="TARGET_RECREATED",
        )
        try:
            answer = await stub.SetPositions(request)
            refused = next((moved for moved in answer.changes if not moved.applied), None)
            if refused is None:
                found = await every_partition(stub, scope.flow, scope.source_topic, from_owner=True)
                if found and all(each.target_topic_id == topic_id for each in found):
                    await _acknowledge(stub, scope)
                    return
            elif refused.reason in _NOT_YET:
                problem = TransientKafkaError(refused.message, reason=refused.reason)
            else:
                raise StateError(refused.message, reason=refused.reason)
        except TwinlogError as error:
            if not error.retriable:
                raise
            problem = error
        if loop.time() > give_up_at:
            raise problem
        await wait_or_stop(asyncio.Event(), _AGAIN_SECONDS)


async def _acknowledge(stub: SourceServiceStub, scope: pb2.Scope) -> None:
    """Acknowledge the deletion: the content of the former copy is copied again, so nobody has to act. Raises
    TwinlogError."""
    request = pb2.ListGapsRequest(flow=scope.flow, source_topic=scope.source_topic)
    found = await every(stub.ListGaps, request, "gaps")
    for gap in found.gaps:
        if gap.reason != "TARGET_RECREATED" or gap.acknowledged_by:
            continue
        place = parse_scope(flow_name(scope.flow), gap.partition.topic, gap.partition.partition)
        await stub.AcknowledgeGaps(
            pb2.AcknowledgeGapsRequest(scope=place, from_offset=gap.from_offset, by=who())
        )


async def _still_holds(configuration: Any, flow: str, remedy: Remedy, offset: int) -> bool:
    """Whether a verification of the paused partition still proposes the same remedy."""
    begin = engine("verify.request").Instant(offset=offset) if remedy.action is Action.COPY_FROM else None
    request = engine("verify.request").VerifyRequest(
        flow=Flow.parse(flow),
        topics=frozenset((remedy.topic,)),
        partitions=frozenset((remedy.partition,)),
        begin=begin,
        wait_seconds=0.0,
    )
    found = remedies(document(await verified(configuration, request)))
    return [(each.action, each.offset) for each in found] == [(remedy.action, offset)]


@asynccontextmanager
async def _paused(stub: SourceServiceStub, scope: pb2.Scope) -> AsyncIterator[Pause]:
    """Pause it meanwhile; a pause by somebody else stays."""
    made = Pause()
    (status,) = await list_flows(stub, flow_name(scope.flow))
    if any(pause.scope == scope for pause in status.pauses):
        yield made
        return
    pause = pb2.PauseReplicationRequest(scope=scope, by=who())
    await stub.PauseReplication(pause)
    try:
        yield made
    finally:
        if not made.left_to_do:
            resume = pb2.ResumeReplicationRequest(scope=scope, by=who())
            await stub.ResumeReplication(resume)
