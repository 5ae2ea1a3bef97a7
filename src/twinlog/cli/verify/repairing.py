"""Applies what `twinlog repair` proposes, through the source service: pauses a partition, verifies it again,
sets the position back, and ends its pause. A new copy is made while its whole topic is paused."""

import asyncio
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

from twinlog.api.source.v1 import source_service_pb2 as pb2
from twinlog.api.source.v1.source_service_pb2_grpc import SourceServiceStub
from twinlog.cli.common.call import Call
from twinlog.cli.common.names import flow_name, who
from twinlog.cli.common.pasteable import pasteable
from twinlog.cli.source.client import every_partition, list_flows, parse_scope
from twinlog.cli.verify.options import engine, verified
from twinlog.errors import KafkaError, StateError, TransientKafkaError, TwinlogError, required
from twinlog.kafka.cluster import open_cluster
from twinlog.kafka.ports import ConfigSource, KafkaCluster, NewTopic
from twinlog.kafka.reasons import KafkaReason
from twinlog.model import Flow
from twinlog.service.feeds.rules import flow_in_force
from twinlog.service.waiting import wait_or_stop
from twinlog.verify.repair import Action, Remedy, remedies, what_was_not_seen
from twinlog.verify.report import document

# Recreates the copy of a topic: deletes it, creates it with the same settings, and copies it from the start.
#
# Invariant: from the deletion on, the topic stays paused until its copy begins from the start. If a step
# fails, the error says what is left to do.

_PATIENCE_SECONDS = 120.0
"""How long brokers may take to carry a deletion out."""
_POLL_SECONDS = 0.2
_UNKNOWN, _EXISTS = "TOPIC_UNKNOWN", "TOPIC_EXISTS"


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicAgain:
    """A topic and its settings, for recreating it."""

    topic: NewTopic
    topic_id: str


async def topic_as_it_is(cluster: KafkaCluster, name: str) -> TopicAgain:
    """Raises KafkaError."""
    found = required((await cluster.describe_topics([name]))[name])
    entries = required((await cluster.describe_topic_configs([name]))[name])
    configs = {
        entry.name: entry.value
        for entry in entries
        if entry.source is ConfigSource.TOPIC and entry.value is not None
    }
    topic = NewTopic(
        name=name,
        partition_count=found.partition_count,
        replication_factor=found.replication_factor,
        configs=configs,
    )
    return TopicAgain(topic=topic, topic_id=found.topic_id)


async def create_again(cluster: KafkaCluster, again: TopicAgain) -> str:
    """Create it after its deletion; return the id of the new topic once it exists. Raises KafkaError, whose
    message has the settings."""
    try:
        async with asyncio.timeout(_PATIENCE_SECONDS):
            return await _create(cluster, again.topic, again.topic_id)
    except (KafkaError, TimeoutError) as error:
        reason = error.reason if isinstance(error, KafkaError) else "KAFKA_TIMEOUT"
        settings = ", ".join(f"{name}={value}" for name, value in sorted(again.topic.configs.items()))
        raise TransientKafkaError(
            f"topic {again.topic.name} was deleted, but could not be created again"
            f" ({reason}): create it with {again.topic.partition_count} partitions, replication factor"
            f" {again.topic.replication_factor}{' and ' + settings if settings else ''}",
            reason=reason,
            metadata={"topic": again.topic.name},
        ) from error


async def _create(cluster: KafkaCluster, new: NewTopic, old_id: str) -> str:
    """While the old topic is being deleted its name is taken; configsync may be faster than this."""
    while True:
        found = (await cluster.describe_topics([new.name]))[new.name]
        if not isinstance(found, KafkaError) and found.topic_id != old_id:
            return found.topic_id
        if isinstance(found, KafkaError) and found.reason == _UNKNOWN:
            refusal = (await cluster.create_topics([new]))[new.name]
            if refusal is not None and refusal.reason != _EXISTS:
                raise refusal
        await wait_or_stop(asyncio.Event(), _POLL_SECONDS)


@dataclass(frozen=True, slots=True, kw_only=True)
class Repaired:
    """The outcome of one remedy."""

    applied: bool
    is_outdated: bool = False
    """The copy has changed since the report, so nothing is known about it."""
    reason: str = ""
    message: str = ""


@dataclass(slots=True)
class Pause:
    """The pause of a topic while it is repaired."""

    left_to_do: Sequence[str] = ()
    """Commands that have to run before the topic may be copied again: the pause stays while there are any."""


async def make_again(
    target: KafkaCluster, remedy: Remedy, pause: Pause, set_to_start: Callable[[str], Awaitable[None]]
) -> Repaired:
    """Call it while the topic is paused. `set_to_start` gets the id of the new topic, and returns when the
    service copies it from the start. Raises KafkaError as long as nothing is changed."""
    again = await topic_as_it_is(target, remedy.target_topic)
    pause.left_to_do = remedy.commands[-2:]
    try:
        refusal = await _delete(target, remedy.target_topic)
        if refusal is not None and not refusal.retriable:
            pause.left_to_do = ()  # It was not deleted.
            return Repaired(applied=False, reason=refusal.reason, message=str(refusal))
        await set_to_start(await create_again(target, again))
    except TwinlogError as error:
        message = f"{error}. {_what_is_left(remedy, pause)}"
        return Repaired(applied=False, reason=error.reason, message=message)
    except BaseException:
        sys.stderr.write(f"{_what_is_left(remedy, pause)}\n")
        raise
    pause.left_to_do = ()
    return Repaired(applied=True)


async def _delete(target: KafkaCluster, topic: str) -> KafkaError | None:
    """Return why the topic was not deleted; a retriable error means that it may have been, or will be
    soon."""
    try:
        refusal = (await target.delete_topics([topic]))[topic]
    except KafkaError as error:
        return error
    return None if refusal is not None and refusal.reason == KafkaReason.TOPIC_UNKNOWN else refusal


def _what_is_left(remedy: Remedy, pause: Pause) -> str:
    return (
        f"{remedy.target_topic} was not fully recreated, and {remedy.topic} stays paused. Once the copy"
        f" exists and is empty, run {', then '.join(map(pasteable, pause.left_to_do))}"
    )


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
        told = await _verified_again(configuration, flow, remedy)
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
    found = await stub.ListGaps(request)
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
    partition = frozenset((remedy.partition,))
    found = remedies(await _verified_again(configuration, flow, remedy, partitions=partition, begin=begin))
    return [(each.action, each.offset) for each in found] == [(remedy.action, offset)]


async def _verified_again(configuration: Any, flow: str, remedy: Remedy, **more: Any) -> dict[str, Any]:
    request = engine("verify.request").VerifyRequest(
        flow=Flow.parse(flow), topics=frozenset((remedy.topic,)), wait_seconds=0.0, **more
    )
    return document(await verified(configuration, request))


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
