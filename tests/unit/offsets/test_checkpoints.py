"""Where checkpoints go and which may: MM2's MirrorCheckpointTaskTest; the rest of it is test_checkpointer."""

import pytest

from twinlog.model import Flow, TopicPartition
from twinlog.offsets import CheckpointHistory, is_progress, target_partition
from twinlog.policy import DefaultReplicationPolicy, IdentityReplicationPolicy
from twinlog.wire import Checkpoint, TopicIds

FLOW = Flow("source1", "target2")
POLICY = DefaultReplicationPolicy()
TP = TopicPartition("topic1", 0)
TARGET_TP = TopicPartition("source1.topic1", 0)


def checkpoint(upstream: int, downstream: int, group: str = "g1", ids: TopicIds | None = None) -> Checkpoint:
    return Checkpoint(
        topic_ids=ids,
        group=group,
        partition=TARGET_TP,
        upstream_offset=upstream,
        downstream_offset=downstream,
    )


@pytest.mark.parametrize(
    ("topic", "renamed"),
    [
        ("topic3", "source1.topic3"),
        ("target2.topic3", "topic3"),
        ("source6.topic7", "source1.source6.topic7"),
        ("target2.source6.topic7", "source6.topic7"),
        ("target2.shop.orders", "shop.orders"),
    ],
)
def test_downstream_topic_renaming(topic: str, renamed: str) -> None:
    """MM2's own test takes `topic7` of the third name: `orders` of the last one would be another topic."""
    assert target_partition(POLICY, FLOW, TopicPartition(topic, 4)) == TopicPartition(renamed, 4)


def test_identity_renames_nothing() -> None:
    identity = IdentityReplicationPolicy(source_cluster_alias="source1")
    assert target_partition(identity, FLOW, TP) == TP


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
        (checkpoint(5, 5, ids=TopicIds("a", "b")), checkpoint(6, 4, ids=TopicIds("a", "b")), False),
        (checkpoint(5, 5, ids=TopicIds("a", "b")), checkpoint(6, 4, ids=TopicIds("a", "c")), True),
        (checkpoint(5, 5), checkpoint(5, 5, ids=TopicIds("a", "b")), True),
        (checkpoint(5, 5, ids=TopicIds("a", "b")), checkpoint(5, 5), False),
    ],
)
def test_checkpoint_guard(last: Checkpoint | None, candidate: Checkpoint, progress: bool) -> None:
    assert is_progress(last, candidate) is progress


def test_the_guard_knows_groups_and_partitions_apart() -> None:
    history = CheckpointHistory()
    history.remember(checkpoint(5, 5))
    assert not history.admits(checkpoint(6, 5))
    assert history.admits(checkpoint(6, 5, group="g2"))
    assert history.groups() == {"g1"}
    assert history.latest("g1") == {TARGET_TP: checkpoint(5, 5)}
    assert history.latest("g2") == {}


def test_of_groups_that_are_gone_only_the_latest_are_remembered() -> None:
    history = CheckpointHistory(most_old=10)
    for number in range(100):
        history.remember(checkpoint(number, number, group=f"g{number}"))
    history.remember(checkpoint(5, 6, group="g50"))
    current = [("g0", TARGET_TP), ("g1", TARGET_TP)]
    assert history.forget_old(current) == 88
    assert len(history) == 12
    assert history.groups() == {"g0", "g1", "g50", *(f"g{number}" for number in range(91, 100))}
    assert history.wrote("g50", TARGET_TP, 6, upstream=5)
    assert not history.wrote("g2", TARGET_TP, 2, upstream=5)
    assert history.forget_old(current) == 0


def test_what_groups_hold_now_is_never_forgotten() -> None:
    history = CheckpointHistory(most_old=0)
    for number in range(100):
        history.remember(checkpoint(number, number, group=f"g{number}"))
    assert history.forget_old([(f"g{number}", TARGET_TP) for number in range(100)]) == 0
    assert len(history) == 100


def test_an_offset_that_was_written_further_on_is_told_from_one_that_was_wrong() -> None:
    history = CheckpointHistory()
    history.remember(checkpoint(100, 90, group="g"))
    assert history.wrote("g", TARGET_TP, 90, upstream=100)
    assert not history.wrote_further("g", TARGET_TP, 90, upstream=100)
    assert history.wrote_further("g", TARGET_TP, 90, upstream=40)
    assert not history.wrote_further("g", TARGET_TP, 91, upstream=40)
