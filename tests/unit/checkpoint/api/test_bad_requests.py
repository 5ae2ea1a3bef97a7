"""What is asked wrongly, or cannot be answered: a clear status each, and nothing written."""

from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from typing import Any, TypeVar

import pytest

from twinlog.api.checkpoint.v1 import checkpoint_service_pb2 as pb2
from twinlog.api.common.v1 import types_pb2
from twinlog.errors import (
    ConfigError,
    KafkaError,
    NotFoundError,
    StateError,
    TransientKafkaError,
    TwinlogError,
)
from twinlog.kafka.outage import Outage
from twinlog.model import TopicPartition
from twinlog.service.clusters import ClusterStatus
from twinlog.testing.fakes.cluster import Call
from unit.checkpoint.checkpoint_rig import SYNCS_TOPIC, CheckpointFlowRig
from unit.checkpoint.owners import AlwaysOwner
from unit.checkpoint.service_rig import CONTEXT, CheckpointServiceRig

FLOW = types_pb2.Flow(source="A", target="B")
ORDERS = TopicPartition("orders", 0)
T = TypeVar("T")


@dataclass(slots=True, kw_only=True)
class Asked:
    service: CheckpointServiceRig
    written: list[Call]
    """Every change of a cluster."""

    async def translate(self, topic: str, offset: int, flow: types_pb2.Flow = FLOW) -> pb2.OffsetTranslation:
        request = pb2.TranslateOffsetsRequest(
            flow=flow,
            queries=[
                pb2.OffsetQuery(partition=types_pb2.TopicPartition(topic=topic, partition=0), offset=offset)
            ],
        )
        answer = await self.service.servicer.TranslateOffsets(request, CONTEXT)
        return answer.translations[0]

    async def plan(self, *groups: str) -> pb2.MovePlan:
        request = pb2.PlanMoveRequest(
            flow=FLOW,
            kind=pb2.MOVE_KIND_FAILOVER,
            options=pb2.MoveOptions(groups=groups, by="test"),
        )
        told = [answer async for answer in self.service.servicer.PlanMove(request, CONTEXT)]
        return told[-1].plan

    async def run(self, *groups: str) -> list[pb2.RunFailoverResponse]:
        request = pb2.RunFailoverRequest(flow=FLOW, options=pb2.MoveOptions(groups=groups, by="test"))
        events: list[pb2.RunFailoverResponse] = []
        failure: TwinlogError | None = None
        async with self.service.hosting():
            try:
                events = [event async for event in self.service.servicer.RunFailover(request, CONTEXT)]
            except TwinlogError as error:
                failure = error
        if failure is not None:
            raise failure
        return events

    async def explain(self, group: str) -> pb2.GroupExplanation:
        request = pb2.ExplainGroupRequest(group=group)
        return (await self.service.servicer.ExplainGroup(request, CONTEXT)).explanations[0]


@asynccontextmanager
async def asked(*, syncs_topic: bool = True, source_away: bool = False) -> AsyncIterator[Asked]:
    """A flow with one topic of ten records, copied; from now on changes are noted."""
    fakes = CheckpointFlowRig(translation_max_bytes=1 << 30)
    for cluster, partition in ((fakes.source, ORDERS), (fakes.target, TopicPartition("A.orders", 0))):
        cluster.add_topic(partition.topic)
        async with cluster.writer() as writer:
            for number in range(10):
                await writer.append(partition, key=None, value=b"%d" % number, timestamp_ms=number)
    fakes.source.set_group("g", {ORDERS: 5})
    if syncs_topic:
        await fakes.write_sync("orders", 0, 0)
    else:
        del fakes.source.topics[SYNCS_TOPIC]
    outage = Outage(reason="KAFKA_UNAVAILABLE", brokers={1: "a1:9092"})
    away = ClusterStatus(alias="A", reachable=False, reason=outage.reason, message="gone", outage=outage)
    async with fakes.running(until_ready=syncs_topic) as parts:
        service = CheckpointServiceRig(fakes, parts, statuses=[away] if source_away else [])
        written: list[Call] = []
        for cluster in (fakes.source, fakes.target):
            for operation in ("append", "alter_group_offsets", "create_acls", "create_topics"):
                cluster.intercept(operation, written.append)
        yield Asked(service=service, written=written)


async def test_an_unknown_group_is_named_and_nothing_is_moved() -> None:
    async with asked() as service:
        assert not (await service.service.list_groups("nobody")).groups
        explanation = await service.explain("nobody")
        assert explanation.findings[-1].message == "the source has no such group"
        assert any("nobody" in blocker for blocker in (await service.plan("nobody")).blockers)
        with pytest.raises(StateError, match="nobody") as refused:
            await service.run("nobody")
    assert refused.value.reason == "MOVE_BLOCKED"
    assert service.written == []


async def test_an_unknown_topic_has_a_verdict() -> None:
    async with asked() as service:
        answer = await service.translate("missing", 3)
    assert answer.verdict == pb2.VERDICT_NOT_REPLICATED
    assert "A has no partition missing-0" in answer.message
    assert not answer.HasField("translated_offset")
    assert service.written == []


async def test_an_offset_past_the_end_has_a_verdict_and_the_end_itself_is_none() -> None:
    async with asked() as service:
        beyond, at_end = await service.translate("orders", 11), await service.translate("orders", 10)
    assert beyond.verdict == pb2.VERDICT_PAST_END
    assert "ends at 10" in beyond.message
    assert not beyond.HasField("translated_offset")
    assert at_end.verdict != pb2.VERDICT_PAST_END
    assert at_end.HasField("translated_offset")


async def test_a_source_that_is_gone_is_named() -> None:
    async with asked(source_away=True) as service:
        with pytest.raises(TransientKafkaError, match=r"A does not answer, .*: start broker 1 at a1:9092"):
            await service.translate("orders", 3)
        service.service.fakes.source.take_away()
        plan = await service.plan()
        assert not plan.from_reachable
        assert any("A does not answer" in blocker for blocker in plan.blockers)
        with pytest.raises(StateError, match="A does not answer"):
            await service.run()
        explanation = await service.explain("g")
    assert [(finding.rule, finding.passed) for finding in explanation.findings] == [("CLUSTER", False)]
    assert service.written == []


async def test_a_source_that_dies_while_it_is_asked_is_named() -> None:
    async with asked() as service:
        service.service.fakes.source.take_away()
        with pytest.raises(KafkaError, match="cluster A") as failed:
            await service.translate("orders", 3)
    assert failed.value.retriable
    assert service.written == []


async def test_a_target_that_is_away_is_named() -> None:
    async with asked() as service:
        service.service.fakes.target.take_away()
        explanation = await service.explain("g")
        with pytest.raises(KafkaError, match="cluster B"):
            await service.translate("orders", 3)
        plan = await service.plan()
    assert not explanation.translated
    assert "cluster B" in explanation.findings[0].message
    (blocker,) = plan.blockers
    assert blocker.startswith("B does not answer, and the groups would move there: start ")
    assert service.written == []


async def test_a_missing_topic_of_offset_syncs_is_named() -> None:
    async with asked(syncs_topic=False) as service:
        with pytest.raises(StateError, match=SYNCS_TOPIC) as refused:
            await service.translate("orders", 3)
        assert refused.value.reason == "NOT_READY"
        plan = await service.plan()
        assert any(SYNCS_TOPIC in blocker for blocker in plan.blockers)
        with pytest.raises(StateError, match=SYNCS_TOPIC):
            await service.run()
        await service.service.fakes.do_pass(service.service.parts.checkpointer)
        listed = await service.service.list_groups()
    (row,) = listed.groups
    assert (row.verdict, row.HasField("downstream_offset")) == (pb2.VERDICT_NO_SYNC, False)
    (flow,) = listed.flows
    assert not flow.ready
    assert SYNCS_TOPIC in flow.obstacle
    assert service.written == []


class StandBy(AlwaysOwner):
    """Another process works at the flow."""

    def refusal(self) -> StateError:
        return StateError("A->B is served by another process now", reason="OWNED_ELSEWHERE")

    async def require(self) -> None:
        raise self.refusal()

    async def hold(self, step: Callable[[], Coroutine[Any, Any, T]], *, grace_seconds: float = 0.0) -> T:
        raise self.refusal()


async def test_a_process_that_stands_by_moves_nothing_and_says_who_does() -> None:
    async with asked() as service:
        here = service.service
        beside = CheckpointServiceRig(here.fakes, replace(here.parts, duty=StandBy().lease))
        service.service = beside
        with pytest.raises(StateError, match="another process") as refused:
            await service.run()
        (flow,) = (await beside.list_groups()).flows
    assert refused.value.reason == "OWNED_ELSEWHERE"
    assert "another process" in flow.obstacle
    assert service.written == []


async def test_unknown_flows_and_requests_without_sense_are_refused() -> None:
    async with asked() as service:
        with pytest.raises(NotFoundError, match="A->B"):
            await service.translate("orders", 3, types_pb2.Flow(source="x", target="y"))
        with pytest.raises(ConfigError, match="query 1"):
            await service.translate("orders", -3)
        with pytest.raises(ConfigError, match="group"):
            await service.explain("")
    assert service.written == []
