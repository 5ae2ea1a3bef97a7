"""Deletions of source topics: reported always, followed only when asked for, late, and a few at a time."""

import asyncio
from dataclasses import replace
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from twinlog.errors import FatalKafkaError, KafkaError, TransientKafkaError
from twinlog.kafka.ports import TopicDescription
from twinlog.service.feeds.replicated_topics import TopicState
from twinlog.testing.fakes.cluster import Call
from twinlog_configsync.model.reasons import SyncReason
from twinlog_configsync.model.schedule import Scope
from twinlog_configsync.planning.registry import FORGET_AFTER_MS
from unit.configsync.configsync_rig import ConfigSyncRig, make_flow

TOPICS = [Scope.TOPICS]
ALL = [Scope.TOPICS, Scope.CONFIGS, Scope.ACLS]


def following(directory: Path, *, grace_seconds: int = 3600, per_hour: int = 2) -> ConfigSyncRig:
    flow = make_flow(
        directory,
        {
            "twinlog.sync.topic.deletes.enabled": "true",
            "twinlog.sync.topic.deletes.grace.seconds": str(grace_seconds),
            "twinlog.sync.topic.deletes.max.per.hour": str(per_hour),
        },
    )
    for name in ("a", "b", "c"):
        flow.source.add_topic(name)
    return flow


async def following_without(directory: Path, *gone: str, **limits: int) -> ConfigSyncRig:
    """One that has its copies, of which these topics are gone from the source."""
    flow = following(directory, **limits)
    await flow.refresh(TOPICS)
    await flow.source.delete_topics(gone)
    return flow


def copies(flow: ConfigSyncRig) -> list[str]:
    return sorted(name for name in flow.target.topics if name.startswith("A."))


async def test_by_default_a_deletion_is_only_reported(tmp_path: Path) -> None:
    flow = make_flow(tmp_path)
    flow.source.add_topic("a")
    await flow.refresh(TOPICS)
    await flow.source.delete_topics(["a"])
    flow.clock.advance(1_000_000)
    await flow.refresh(TOPICS)
    flow.clock.advance(1_000_000)
    await flow.refresh(TOPICS)
    assert copies(flow) == ["A.a"]
    assert flow.topics()["a"].state is TopicState.DELETED_AT_SOURCE


async def test_it_is_followed_after_the_grace_period_and_forgotten_by_watchers(tmp_path: Path) -> None:
    flow = await following_without(tmp_path, "a")
    await flow.refresh(TOPICS)
    flow.clock.advance(3599)
    await flow.refresh(TOPICS)
    assert copies(flow) == ["A.a", "A.b", "A.c"]
    (told,) = await flow.commands.explain("a")
    assert told.rule == "a is gone from the source; A.a is deleted 3600 s after it (`twinlog plan --skips`)"
    flow.clock.advance(1)
    await flow.refresh(TOPICS)
    assert copies(flow) == ["A.b", "A.c"]
    assert sorted(flow.topics()) == ["b", "c"]


async def test_a_topic_that_comes_back_within_the_grace_period_stays(tmp_path: Path) -> None:
    flow = await following_without(tmp_path, "a")
    await flow.refresh(TOPICS)
    flow.source.add_topic("a")
    flow.clock.advance(10_000)
    await flow.refresh(TOPICS)
    assert copies(flow) == ["A.a", "A.b", "A.c"]
    assert flow.topics()["a"].generation == 2


async def test_a_topic_of_the_past_is_forgotten_and_its_generation_is_not(tmp_path: Path) -> None:
    flow = await following_without(tmp_path, "a")
    await flow.refresh(TOPICS)
    flow.clock.advance(3600)
    await flow.refresh(TOPICS)
    assert copies(flow) == ["A.b", "A.c"]
    flow.clock.advance(FORGET_AFTER_MS / 1000)
    await flow.refresh(TOPICS)
    memory = flow.sync.passes.memory
    assert "a" not in memory.entries
    assert "a" not in memory.last_set
    flow.restart()
    flow.source.add_topic("a")
    await flow.refresh(TOPICS)
    assert flow.topics()["a"].generation == 2


async def test_no_more_than_the_limit_within_an_hour_also_over_a_restart(tmp_path: Path) -> None:
    flow = following(tmp_path, grace_seconds=0)
    flow.source.add_topic("d")
    await flow.refresh(TOPICS)
    await flow.source.delete_topics(["a", "b", "c"])
    await flow.refresh(TOPICS)
    await flow.refresh(TOPICS)
    assert copies(flow) == ["A.c", "A.d"]
    flow.restart()
    flow.clock.advance(3599)
    await flow.refresh(TOPICS)
    assert copies(flow) == ["A.c", "A.d"]
    flow.clock.advance(1)
    await flow.refresh(TOPICS)
    assert copies(flow) == ["A.d"]


async def test_what_was_deleted_before_a_crash_counts(tmp_path: Path) -> None:
    flow = await following_without(tmp_path, "a", "b", grace_seconds=0, per_hour=1)
    await flow.refresh(TOPICS)

    def die(_call: Call) -> None:
        flow.target.take_away()

    undo = flow.target.intercept("delete_topics", die, after=True)
    dying = asyncio.ensure_future(flow.refresh(TOPICS))
    while not dying.done():
        # It waits for the target to show the deletion.
        flow.clock.advance(1)
        await asyncio.wait([dying], timeout=1)
    with pytest.raises(TransientKafkaError):
        await dying
    undo()
    flow.target.bring_back()
    flow.restart()
    await flow.refresh(TOPICS)
    assert copies(flow) == ["A.b", "A.c"]


async def test_another_topic_under_the_name_is_left_alone(tmp_path: Path) -> None:
    flow = await following_without(tmp_path, "a", grace_seconds=0)
    flow.target.add_topic("A.a")
    for _ in range(3):
        await flow.refresh(TOPICS)
    assert "A.a" in copies(flow)


async def test_another_topic_that_got_the_name_after_the_plan_was_made_is_left_alone(tmp_path: Path) -> None:
    flow = await following_without(tmp_path, "a", grace_seconds=0)
    await flow.refresh(TOPICS)

    def create_again(_call: Call) -> None:
        flow.target.add_topic("A.a")

    flow.target.intercept("create_partitions", create_again)
    await flow.refresh(TOPICS)
    assert "A.a" in copies(flow)


@pytest.mark.parametrize("follow", [True, False])
async def test_a_topic_gone_from_both_sides_is_forgotten_but_keeps_its_generation(
    tmp_path: Path, follow: bool
) -> None:
    flow = following(tmp_path, grace_seconds=0) if follow else make_flow(tmp_path)
    flow.source.add_topic("a")
    await flow.refresh(TOPICS)
    await flow.source.delete_topics(["a"])
    await flow.target.delete_topics(["A.a"])
    with capture_logs() as logs:
        await flow.refresh(TOPICS)
    assert "topics_no_longer_copied" not in {each["event"] for each in logs}, "no rule leaves it out"
    assert "a" not in flow.topics()
    flow.source.add_topic("a")
    await flow.refresh(TOPICS)
    entry = flow.topics()["a"]
    assert (entry.state, entry.generation) == (TopicState.READY, 2)


@pytest.mark.parametrize("beats", [False, True], ids=["nothing", "heartbeats"])
@pytest.mark.parametrize("rebuilt", [False, True])
async def test_nothing_is_deleted_after_a_source_that_lost_everything(
    tmp_path: Path, rebuilt: bool, beats: bool
) -> None:
    """Wiped, restored empty, and then filled again little by little: the copies are what is left."""
    flow = following(tmp_path, grace_seconds=0)
    if beats:
        flow.source.add_topic("heartbeats")
    await flow.refresh(TOPICS)
    before = copies(flow)
    await flow.source.delete_topics(["a", "b", "c"])
    if rebuilt:
        flow.source.add_topic("a")
    for _ in range(3):
        await flow.refresh(TOPICS)
        flow.clock.advance(100_000)
    flow.source.add_topic("a") if not rebuilt else None
    flow.source.add_topic("new")
    flow.restart()
    for _ in range(3):
        await flow.refresh(TOPICS)
        flow.clock.advance(100_000)
    assert copies(flow) == sorted([*before, "A.new"])
    assert flow.topics()["b"].reason == SyncReason.SOURCE_LOST
    assert flow.topics()["a"].reason == ""
    assert flow.sync.status.reason == SyncReason.SOURCE_LOST
    assert "A.b, A.c" in flow.sync.status.message
    plan, _ = await flow.commands.preview(TOPICS)
    assert all("SOURCE_LOST" in str(action) for action in plan.actions)


async def test_the_copies_of_a_lost_source_go_by_hand_and_then_deletions_are_followed_again(
    tmp_path: Path,
) -> None:
    flow = await following_without(tmp_path, "a", "b", "c", grace_seconds=0)
    flow.source.add_topic("x")
    flow.source.add_topic("y")
    await flow.refresh(TOPICS)
    await flow.target.delete_topics(["A.a", "A.b", "A.c"])
    await flow.refresh(TOPICS)
    assert flow.sync.status.reason == ""
    await flow.source.delete_topics(["x"])
    for _ in range(2):
        await flow.refresh(TOPICS)
    assert copies(flow) == ["A.y"]


async def test_nothing_is_deleted_after_a_source_that_is_another_cluster(tmp_path: Path) -> None:
    flow = following(tmp_path, grace_seconds=0)
    await flow.refresh(TOPICS)
    flow.restart()
    flow.source.kafka.cluster_id = "another"
    await flow.source.delete_topics(["a", "b"])
    for _ in range(3):
        await flow.refresh(TOPICS)
        flow.clock.advance(100_000)
    assert copies(flow) == ["A.a", "A.b", "A.c"]
    assert flow.topics()["a"].reason == SyncReason.SOURCE_REPLACED
    assert flow.sync.status.reason == SyncReason.SOURCE_REPLACED
    await flow.source.delete_topics(["c"])
    flow.source.add_topic("d")
    await flow.refresh(TOPICS)


@pytest.mark.parametrize("rebuilt", ["a", "c"])
async def test_a_topic_that_cannot_be_read_while_the_source_is_replaced_is_kept(
    tmp_path: Path, rebuilt: str
) -> None:
    """Brokers refuse a topic that does not exist, too, as long as rights are missing."""
    flow = following(tmp_path, grace_seconds=0)
    await flow.refresh(TOPICS)
    refusal = FatalKafkaError("an ACL for the topic is missing", reason="TOPIC_UNAUTHORIZED", code=29)

    def hide(call: Call) -> None:
        if "a" in call.result:
            call.result["a"] = refusal

    flow.source.kafka.cluster_id = "another"
    await flow.source.delete_topics(["a", "b", "c"])
    undo = flow.source.intercept("describe_topics", hide, after=True)
    await flow.refresh(TOPICS)
    undo()
    for name in ("c", "d", rebuilt):
        if name not in flow.source.topics:
            flow.source.add_topic(name)
    for _ in range(4):
        await flow.refresh(TOPICS)
        flow.clock.advance(100_000)
    assert copies(flow) == ["A.a", "A.b", "A.c", "A.d"]
    assert flow.topics()["a"].reason == ("" if rebuilt == "a" else SyncReason.SOURCE_REPLACED)
    assert flow.sync.status.reason == SyncReason.SOURCE_REPLACED


async def test_a_topic_that_no_rule_selects_while_the_source_is_replaced_is_kept(tmp_path: Path) -> None:
    settings = {
        "twinlog.sync.topic.deletes.enabled": "true",
        "twinlog.sync.topic.deletes.grace.seconds": "0",
    }
    flow = following(tmp_path, grace_seconds=0)
    await flow.refresh(TOPICS)
    less = make_flow(tmp_path, {**settings, "topics": "b, c"}, source=flow.source, target=flow.target)
    flow.source.kafka.cluster_id = "another"
    await flow.source.delete_topics(["a"])
    await less.refresh(TOPICS)
    flow.restart()
    for _ in range(3):
        await flow.refresh(TOPICS)
        flow.clock.advance(100_000)
    assert copies(flow) == ["A.a", "A.b", "A.c"]
    assert flow.topics()["a"].reason == SyncReason.SOURCE_REPLACED


async def test_nothing_is_deleted_on_a_target_without_topic_ids(tmp_path: Path) -> None:
    flow = following(tmp_path, grace_seconds=0)

    def without_ids(call: Call) -> None:
        call.result.update(
            {
                name: replace(found, topic_id="")
                for name, found in call.result.items()
                if isinstance(found, TopicDescription)
            }
        )

    flow.target.intercept("describe_topics", without_ids, after=True)
    await flow.refresh(TOPICS)
    await flow.source.delete_topics(["a"])
    for _ in range(3):
        await flow.refresh(TOPICS)
        flow.clock.advance(100_000)
    assert copies(flow) == ["A.a", "A.b", "A.c"]
    plan, _ = await flow.commands.preview(TOPICS)
    assert any("no topic ids" in str(action) for action in plan.actions)


@pytest.mark.parametrize(
    "error",
    [
        FatalKafkaError("an ACL for the topic is missing", reason="TOPIC_UNAUTHORIZED", code=29),
        TransientKafkaError("no answer", reason="KAFKA_TIMEOUT"),
    ],
)
async def test_a_topic_of_the_targets_own_is_not_deleted_for_a_name_that_the_source_never_had(
    tmp_path: Path, error: KafkaError
) -> None:
    """Where names are kept, it has the name of a rule. The source did not tell at first that it has no such
    topic."""
    flow = make_flow(
        tmp_path,
        {
            "replication.policy.class": "org.apache.kafka.connect.mirror.IdentityReplicationPolicy",
            "topics": "orders,ledger",
            "twinlog.sync.topic.deletes.enabled": "true",
            "twinlog.sync.topic.deletes.grace.seconds": "1",
        },
    )
    flow.source.add_topic("orders")
    flow.target.add_topic("ledger")

    def hide(call: Call) -> None:
        if "ledger" in call.result:
            call.result["ledger"] = error

    end = flow.source.intercept("describe_topics", hide, after=True)
    await flow.refresh(TOPICS)
    end()
    for _ in range(3):
        await flow.refresh(TOPICS)
        flow.clock.advance(100)
    assert "ledger" in flow.target.topics
    assert sorted(flow.topics()) == ["orders"]
