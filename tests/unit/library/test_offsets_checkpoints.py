"""Checkpoints and group offsets: MM2's MirrorCheckpointTaskTest."""

import pytest

from twinlog.kafka.ports import CommittedOffset
from twinlog.model import Flow, TopicPartition
from twinlog.offsets import (
    CheckpointHistory,
    CheckpointPlanner,
    OffsetSyncStore,
    is_progress,
    offsets_to_write,
    target_partition,
)
from twinlog.policy import DefaultReplicationPolicy, IdentityReplicationPolicy
from twinlog.wire import Checkpoint, OffsetSync

FLOW = Flow("source1", "target2")
POLICY = DefaultReplicationPolicy()
TP = TopicPartition("topic1", 0)
TARGET_TP = TopicPartition("source1.topic1", 0)


def store_of(*syncs: tuple[TopicPartition, int, int], loaded: bool = False) -> OffsetSyncStore:
    store = OffsetSyncStore(must_read_to_end=False)
    if not loaded:
        store.finish_reading()
    for partition, upstream, downstream in syncs:
        store.apply(OffsetSync(partition=partition, upstream_offset=upstream, downstream_offset=downstream))
    store.finish_reading()
    return store


def planner(store: OffsetSyncStore) -> CheckpointPlanner:
    return CheckpointPlanner(policy=POLICY, flow=FLOW, store=store)


def at(next_offset: int, metadata: str = "") -> CommittedOffset:
    return CommittedOffset(next_offset=next_offset, metadata=metadata)


def checkpoint(upstream: int, downstream: int, group: str = "g1", metadata: str = "") -> Checkpoint:
    return Checkpoint(
        group=group,
        partition=TARGET_TP,
        upstream_offset=upstream,
        downstream_offset=downstream,
        metadata=metadata,
    )


@pytest.mark.parametrize(
    ("topic", "renamed"),
    [
        ("topic3", "source1.topic3"),
        ("target2.topic3", "topic3"),
        ("source6.topic7", "source1.source6.topic7"),
        ("target2.source6.topic7", "topic7"),
    ],
)
def test_downstream_topic_renaming(topic: str, renamed: str) -> None:
    assert target_partition(POLICY, FLOW, TopicPartition(topic, 4)) == TopicPartition(renamed, 4)


def test_identity_renames_nothing() -> None:
    identity = IdentityReplicationPolicy(source_cluster_alias="source1")
    assert target_partition(identity, FLOW, TP) == TP


def test_checkpoint() -> None:
    topic5 = TopicPartition("target2.topic5", 6)
    plan = planner(store_of((TP, 3, 4), (topic5, 7, 8)))
    assert plan.checkpoint("g1", TP, at(10, "meta")) == checkpoint(10, 5, metadata="meta")
    assert plan.checkpoint("group11", topic5, at(12)) == Checkpoint(
        group="group11", partition=TopicPartition("topic5", 6), upstream_offset=12, downstream_offset=9
    )
    assert plan.checkpoint("group13", topic5, at(7)) == Checkpoint(
        group="group13", partition=TopicPartition("topic5", 6), upstream_offset=7, downstream_offset=8
    )


def test_no_checkpoint_for_topic_without_offset_syncs() -> None:
    plan = planner(store_of((TP, 3, 4)))
    assert plan.checkpoint("g1", TopicPartition("topic1", 1), at(10)) is None
    assert plan.checkpoint("g1", TP, at(10)) is not None


def test_no_checkpoint_for_topic_with_null_offset_and_metadata() -> None:
    assert planner(store_of((TP, 1, 3))).checkpoint("g1", TP, None) is None


def test_no_checkpoint_for_an_offset_too_far_in_the_past() -> None:
    assert planner(store_of((TP, 100, 100))).checkpoint("g1", TP, at(99)) is None


def test_no_checkpoint_before_the_syncs_are_read() -> None:
    store = OffsetSyncStore(must_read_to_end=True)
    store.apply(OffsetSync(partition=TP, upstream_offset=1, downstream_offset=1))
    assert planner(store).checkpoint("g1", TP, at(1)) is None


def test_checkpoint_records_monotonic_if_store_rewinds() -> None:
    store = store_of((TP, 11, 4), (TP, 12, 5))
    history = CheckpointHistory()
    plan = planner(store)
    (first,) = plan.checkpoints_for_group("g1", {TP: at(13)}, history)
    assert first.downstream_offset == 6
    history.remember(first)
    for step in range(5):
        store.apply(OffsetSync(partition=TP, upstream_offset=13 + step, downstream_offset=6 + step))
    assert store.translate(TP, 13).downstream_offset == 5
    assert plan.checkpoints_for_group("g1", {TP: at(13)}, history) == []
    assert plan.checkpoints_for_group("g1", {TP: at(12)}, history) == [checkpoint(12, 5)]


def test_checkpoints_task_restart_uses_existing_checkpoints() -> None:
    before = planner(store_of((TP, 100, 100), (TP, 200, 200), (TP, 300, 300), loaded=True))
    (restored,) = before.checkpoints_for_group("g1", {TP: at(250)}, CheckpointHistory())
    assert restored == checkpoint(250, 201)

    history = CheckpointHistory()
    history.load([checkpoint(1, 1), restored])
    after = planner(store_of(*((TP, offset, offset) for offset in (175, 275, 375, 475)), loaded=True))
    assert after.checkpoints_for_group("g1", {TP: at(250)}, history) == []
    assert after.checkpoints_for_group("g1", {TP: at(370)}, history) == []
    assert after.checkpoints_for_group("g1", {TP: at(400)}, history) == [checkpoint(400, 376)]


@pytest.mark.parametrize(
    ("last", "candidate", "progress"),
    [
        (None, checkpoint(5, 5), True),
        (checkpoint(5, 5), checkpoint(5, 5), False),
        (checkpoint(5, 5), checkpoint(6, 5), False),
        (checkpoint(5, 5), checkpoint(6, 4), False),
        (checkpoint(5, 5), checkpoint(5, 6), True),
        (checkpoint(5, 5), checkpoint(4, 4), True),
        (checkpoint(5, 5), checkpoint(4, 5), True),
    ],
)
def test_checkpoint_guard(last: Checkpoint | None, candidate: Checkpoint, progress: bool) -> None:
    assert is_progress(last, candidate) is progress


def test_the_guard_knows_groups_and_partitions_apart() -> None:
    history = CheckpointHistory()
    history.load([checkpoint(5, 5)])
    assert not history.admits(checkpoint(6, 5))
    assert history.admits(checkpoint(6, 5, group="g2"))
    assert history.groups() == {"g1"}
    assert history.latest("g1") == {TARGET_TP: checkpoint(5, 5)}
    assert history.latest("g2") == {}


# ------------------------------------------------------------------------------------- sync.group.offsets


def test_sync_offset() -> None:
    desired = {TARGET_TP: checkpoint(200, 101, metadata="metadata")}
    assert offsets_to_write(desired, {TARGET_TP: 100}) == desired
    assert offsets_to_write(desired, {}) == desired


@pytest.mark.parametrize("current", [101, 102])
def test_a_group_is_never_moved_back(current: int) -> None:
    assert offsets_to_write({TARGET_TP: checkpoint(200, 101)}, {TARGET_TP: current}) == {}


def test_sync_offset_for_target_group_with_null_offset_and_metadata() -> None:
    desired = {TARGET_TP: checkpoint(200, 101)}
    assert offsets_to_write(desired, {TARGET_TP: None}) == desired


def test_a_group_unknown_on_the_target_gets_everything() -> None:
    desired = {TARGET_TP: checkpoint(200, 101), TP: checkpoint(5, 5)}
    assert offsets_to_write(desired, None) == desired


def test_partitions_are_written_one_by_one() -> None:
    desired = {TARGET_TP: checkpoint(200, 101), TP: checkpoint(5, 5)}
    assert offsets_to_write(desired, {TARGET_TP: 200, TP: 4}) == {TP: checkpoint(5, 5)}
