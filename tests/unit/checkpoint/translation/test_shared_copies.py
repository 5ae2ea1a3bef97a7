"""Where two flows write one topic, no offset has a place, and nothing is committed."""

import json
from collections.abc import Mapping
from typing import Any

import pytest

from twinlog.errors import FatalKafkaError, TransientKafkaError
from twinlog.kafka.ports import NewTopic
from twinlog.model import Flow, TopicPartition
from twinlog.policy import IdentityReplicationPolicy
from twinlog.policy.internal_topics import configsync_topic
from twinlog.policy.transformed import TopicTransforms
from twinlog.service.feeds.replicated_topics import ReplicatedTopic
from twinlog.testing.fakes.cluster import FakeCluster
from twinlog.testing.fakes.hooks import Call
from twinlog_checkpoint.api.group_explainer import explain_group
from twinlog_checkpoint.api.moves_servicer import ServedFlow
from twinlog_checkpoint.assembly import assemble_moves
from twinlog_checkpoint.moves.planning.plan import MoveOptions
from twinlog_checkpoint.translation.shared_copies import SharedCopies
from twinlog_checkpoint.translation.translation import Verdict
from unit.checkpoint.checkpoint_rig import A_TO_B, CheckpointFlowRig, NothingKnown

IDENTITY = IdentityReplicationPolicy(source_cluster_alias="A")
ORDERS = TopicPartition("orders", 0)
REGISTRY_OF_C = TopicPartition("mm2-configsync.C.internal", 0)


class Site:
    """A flow that keeps names, and what the configsync of another source has recorded on its target."""

    def __init__(self) -> None:
        self.rig = CheckpointFlowRig(policy=IDENTITY)
        self.rig.source.add_topic("orders")
        self.rig.target.add_topic("orders")

    async def record(self, key: list[str], value: dict[str, Any] | None, *, of: str = "C") -> None:
        registry = TopicPartition(configsync_topic(of), 0)
        if registry.topic not in self.rig.target.topics:
            new = NewTopic(name=registry.topic, partition_count=1, replication_factor=1)
            await self.rig.target.create_topics([new])
        async with self.rig.target.writer() as writer:
            document = None if value is None else json.dumps({"version": 1, **value}).encode()
            await writer.append(registry, key=json.dumps(key).encode(), value=document)

    async def copies(self, **changed: Any) -> None:
        """C->B copies its orders."""
        entry = {"source_topic": "orders", "target_topic": "orders", "selected": True}
        await self.record(["topic", "orders"], {**entry, "target_partition_count": 1, **changed})

    async def write(self, records: int) -> None:
        for cluster in (self.rig.source, self.rig.target):
            async with cluster.writer() as writer:
                for number in range(records):
                    await writer.append(ORDERS, key=None, value=b"%d" % number)

    async def shared(self) -> str:
        shared = self.looks()
        await shared.look()
        return shared.why("orders")

    def looks(self) -> SharedCopies:
        return SharedCopies(
            flow=A_TO_B,
            policy=IDENTITY,
            source=self.rig.source,
            target=self.rig.target,
        )


async def test_another_flow_into_the_same_topic_is_known_by_what_it_recorded() -> None:
    site = Site()
    assert await site.shared() == ""
    await site.copies(target_partition_count=0)
    assert await site.shared() == "", "it has no copy yet"
    await site.copies()
    told = await site.shared()
    assert "C->B" in told
    assert REGISTRY_OF_C.topic in told
    await site.copies(selected=False)
    assert await site.shared() == "", "its rules have left the topic out"
    await site.copies()
    await site.copies(selected=False, target_partition_count=0, deleted_at_ms=5)
    assert await site.shared() == "", "the topic and its copy are gone"
    await site.copies()
    await site.record(["topic", "orders"], None)
    assert await site.shared() == ""


async def test_another_name_of_the_same_source_is_no_other_source() -> None:
    site = Site()
    await site.copies()
    await site.record(["flow"], {"source_cluster_id": await site.rig.source.cluster_id()})
    assert await site.shared() == ""


async def test_what_cannot_be_read_tells_nothing() -> None:
    site = Site()
    async with site.rig.target.writer() as writer:
        await site.record(["plan"], {})
        for key, value in ((b"\xff", b"x"), (b'["topic","orders"]', b"{"), (b'["topic"]', b"1"), (None, b"")):
            await writer.append(REGISTRY_OF_C, key=key, value=value)
    assert await site.shared() == ""


async def test_what_could_not_be_read_yet_is_not_known_however_often_it_was_looked_at() -> None:
    """A registry that had been refused counted as one that tells of no copy."""
    site = Site()
    await site.copies()
    shared = site.looks()
    allow = site.rig.target.intercept("fetch", _refuse)
    await shared.look()
    allow()
    registry = site.rig.target.topics[REGISTRY_OF_C.topic].partitions[0]
    registry.leader, leader = -1, registry.leader
    with pytest.raises(TransientKafkaError):
        await shared.look()
    registry.leader = leader
    await shared.look()
    assert "C->B" in shared.why("orders")


def _refuse(call: Call) -> None:
    raise FatalKafkaError(f"{call.operation}: no right", reason="TOPIC_UNAUTHORIZED")


class RoutesKnown(NothingKnown):
    def routes(self, flow: Flow) -> Mapping[str, ReplicatedTopic]:
        told = ReplicatedTopic(source_topic="eu", target_topic="eu", partition_count=1, routed_from="orders")
        return {"eu": told}


async def test_a_route_that_another_flow_takes_as_well_gives_groups_no_place() -> None:
    site = Site()
    site.rig.target.add_topic("eu")
    site.rig.known_topics = RoutesKnown()
    router = {
        "transforms": "day",
        "transforms.day.type": "org.apache.kafka.connect.transforms.TimestampRouter",
    }
    site.rig.transforms = TopicTransforms(router, "A")
    await site.write(200)
    async with site.rig.target.writer() as writer:
        for _ in range(9):
            await writer.append(TopicPartition("eu", 0), key=None, value=b"")
    site.rig.source.set_group("billing", {ORDERS: 20})
    await site.rig.write_sync("eu", 10, 0)
    async with site.rig.running() as parts:
        for shares in (False, True):
            if shares:
                await site.record(
                    ["topic", "eu"],
                    {
                        "source_topic": "eu",
                        "target_topic": "eu",
                        "selected": True,
                        "target_partition_count": 1,
                    },
                )
                site.rig.clock.advance(60)
            await site.rig.do_pass(parts.checkpointer)
            rows = {row.source.topic: row.translation for row in parts.checkpointer.table.rows("billing")}
            assert (rows["eu"].verdict is Verdict.SHARED_COPY) is shares
            assert (rows["eu"].downstream_offset is None) is shares


async def test_nothing_is_committed_where_another_flow_writes_and_everybody_is_told() -> None:
    site = Site()
    await site.write(200)
    site.rig.source.set_group("billing", {ORDERS: 20})
    await site.rig.write_sync("orders", 0, 0)
    async with site.rig.running() as parts:
        served: ServedFlow = assemble_moves({A_TO_B: parts}, site.rig.around())[A_TO_B]
        await site.rig.do_pass(parts.checkpointer)
        (row,) = parts.checkpointer.table.rows("billing")
        assert row.translation.downstream_offset is not None
        await site.copies()
        site.rig.clock.advance(60)
        await site.rig.do_pass(parts.checkpointer)
        (row,) = parts.checkpointer.table.rows("billing")
        assert row.translation.verdict is Verdict.SHARED_COPY
        await site.rig.sync_groups(parts)
        assert (await site.rig.target.group_offsets(["billing"]))["billing"] == {}
        explained = await explain_group(parts, "billing", [])
        assert not explained.translated
        assert any("C->B" in finding.message for finding in explained.findings)
        plan = await served.failover.plan(MoveOptions(wait_seconds=0))
        (entry,) = plan.partitions
        assert (entry.translation.verdict, entry.to_offset) == (Verdict.SHARED_COPY, None)
        assert any("without a translation" in warning for warning in plan.warnings)


async def test_copies_whose_names_tell_their_source_are_not_shared() -> None:
    """Nothing is read for them."""
    rig = CheckpointFlowRig()
    rig.target.add_topic(REGISTRY_OF_C.topic)
    calls: list[object] = []
    rig.target.intercept("list_topics", calls.append)
    shared = SharedCopies(flow=Flow("A", "B"), policy=rig.policy, source=rig.source, target=FakeCluster("B"))
    await shared.look()
    assert (shared.why("A.orders"), calls) == ("", [])
