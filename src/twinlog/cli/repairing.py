"""Carries out what `twinlog repair` proposes, by the source service: it pauses a partition, verifies it once
more, sets the position back and takes its pause back. A new copy is made while its whole topic is paused."""

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from twinlog.api.source.v1 import source_service_pb2 as pb2
from twinlog.api.source.v1.source_service_pb2_grpc import SourceServiceStub
from twinlog.cli.common.location import load_config
from twinlog.cli.configsync.client import flow_name
from twinlog.cli.source.client import (
    CALL_TIMEOUT_SECONDS,
    answered,
    list_flows,
    parse_scope,
    source_stub,
    who,
)
from twinlog.cli.topic_again import recreate_topic
from twinlog.cli.verifying import engine, verified
from twinlog.kafka.cluster import open_cluster
from twinlog.model import Flow
from twinlog.verify.repair import Action, Remedy, remedies
from twinlog.verify.report import document


@dataclass(frozen=True, slots=True, kw_only=True)
class Repaired:
    """What became of one remedy."""

    applied: bool
    reason: str = ""
    message: str = ""


async def repair(
    flow: str, wanted: Sequence[Remedy], config: Path, endpoint: list[str] | None, *, new_copies: bool
) -> list[Repaired]:
    """In the order of the remedies. Raises the error that the service told: what follows is not done."""
    done = []
    configuration = load_config(config)
    made: dict[str, Repaired] = {}
    """By topic: all its partitions are copied again together."""
    async with source_stub(config, endpoint) as stub:
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


def _not_repaired(message: str) -> Repaired:
    return Repaired(applied=False, reason="NOT_REPAIRED", message=message)


async def _set_back(
    stub: SourceServiceStub, configuration: Any, flow: str, remedy: Remedy, offset: int
) -> Repaired:
    scope = parse_scope(flow, remedy.topic, remedy.partition)
    async with _paused(stub, scope):
        if not await _still_holds(configuration, flow, remedy, offset):
            return _not_repaired("the copy is not as the report says any more: verify again")
        request = pb2.SetPositionsRequest(scope=scope, target=pb2.PositionTarget(offset=offset), by=who())
        answer = await answered(stub.SetPositions(request, timeout=CALL_TIMEOUT_SECONDS))
    (moved,) = answer.changes
    return Repaired(applied=moved.applied, reason=moved.reason, message=moved.message)


async def _made_again(stub: SourceServiceStub, configuration: Any, flow: str, remedy: Remedy) -> Repaired:
    scope = parse_scope(flow, remedy.topic, None)
    async with _paused(stub, scope):
        request = engine("request").VerifyRequest(
            flow=Flow.parse(flow), topics=frozenset((remedy.topic,)), wait_seconds=0.0
        )
        found = remedies(document(await verified(configuration, request)))
        if not any(each.action is Action.NEW_COPY for each in found):
            return _not_repaired("the copy is not as the report says any more: verify again")
        if any(each.holds_older for each in found):
            return _not_repaired("the copy holds records that the source has no more")
        client = configuration.flow(Flow.parse(flow)).clients.target_admin
        async with open_cluster(
            client.alias, client.properties, timeout_seconds=CALL_TIMEOUT_SECONDS, client_id_suffix="repair"
        ) as target:
            await recreate_topic(target, remedy.target_topic)
        request_position = pb2.SetPositionsRequest(
            scope=scope, target=pb2.PositionTarget(earliest=pb2.Earliest()), by=who()
        )
        answer = await answered(stub.SetPositions(request_position, timeout=CALL_TIMEOUT_SECONDS))
    refused = next((moved for moved in answer.changes if not moved.applied), None)
    if refused is not None:
        return Repaired(applied=False, reason=refused.reason, message=refused.message)
    return Repaired(applied=True)


async def _still_holds(configuration: Any, flow: str, remedy: Remedy, offset: int) -> bool:
    """Whether a verification of the partition as it rests asks for the same remedy."""
    begin = engine("request").Instant(offset=offset) if remedy.action is Action.COPY_FROM else None
    request = engine("request").VerifyRequest(
        flow=Flow.parse(flow),
        topics=frozenset((remedy.topic,)),
        partitions=frozenset((remedy.partition,)),
        begin=begin,
        wait_seconds=0.0,
    )
    found = remedies(document(await verified(configuration, request)))
    return [(each.action, each.offset) for each in found] == [(remedy.action, offset)]


@asynccontextmanager
async def _paused(stub: SourceServiceStub, scope: pb2.Scope) -> AsyncIterator[None]:
    """Nothing more is copied meanwhile; a pause of somebody else stays."""
    (status,) = await list_flows(stub, flow_name(scope.flow))
    if any(pause.scope == scope for pause in status.pauses):
        yield
        return
    pause = pb2.PauseReplicationRequest(scope=scope, by=who())
    await answered(stub.PauseReplication(pause, timeout=CALL_TIMEOUT_SECONDS))
    try:
        yield
    finally:
        resume = pb2.ResumeReplicationRequest(scope=scope, by=who())
        await answered(stub.ResumeReplication(resume, timeout=CALL_TIMEOUT_SECONDS))
