"""A flow's passes over two clusters in memory: order of effects, failures, restarts."""

import asyncio
from pathlib import Path

import pytest

from twinlog.errors import FatalKafkaError, KafkaError, StateError, TransientKafkaError, WireFormatError
from twinlog.kafka.ports import ConfigChange, NewTopic
from twinlog.model import TopicPartition
from twinlog.service.feeds.replicated_topics import TopicState
from twinlog.testing.brokers import eventually
from twinlog.testing.fakes.cluster import Call, FakeCluster
from twinlog_configsync.model.reasons import SyncReason
from twinlog_configsync.model.schedule import Scope
from twinlog_configsync.planning.flow_status import SyncState
from unit.configsync.configsync_rig import REGISTRY, ConfigSyncRig, make_flow


@pytest.fixture
def flow(tmp_path: Path) -> ConfigSyncRig:
    return make_flow(tmp_path)


def timeout(_call: Call) -> None:
    raise TransientKafkaError("no answer in time", reason="KAFKA_TIMEOUT", code=7)


async def test_it_creates_what_is_selected_and_nothing_else(flow: ConfigSyncRig) -> None:
    for name in (
        "orders",
        "mm2-offsets.Z.internal",
        "__own",
        "B.orders",
        "A.orders",
        "C.orders",
        "heartbeats",
    ):
        flow.source.add_topic(name, 2)
    await flow.refresh()
    assert sorted(flow.target.topics) == ["A.C.orders", "A.heartbeats", "A.orders", REGISTRY]
    assert {entry.state for entry in flow.topics().values()} == {TopicState.READY}


async def test_heartbeats_come_although_the_filter_says_no(tmp_path: Path) -> None:
    flow = make_flow(tmp_path, {"topics": "orders"})
    flow.source.add_topic("heartbeats")
    await flow.refresh()
    assert list(flow.topics()) == ["heartbeats"]
    without = make_flow(tmp_path, {"topics": "orders", "heartbeats.replication.enabled": "false"})
    without.source.add_topic("heartbeats")
    await without.refresh()
    assert list(without.topics()) == []


async def test_a_second_pass_changes_nothing(flow: ConfigSyncRig) -> None:
    flow.source.add_topic("orders", 3, {"retention.ms": "1000"})
    await flow.refresh()
    told, records = flow.told_rows, list(flow.target.records(TopicPartition(REGISTRY, 0)))
    calls: list[object] = []
    for operation in ("create_topics", "create_partitions", "alter_topic_configs"):
        flow.target.intercept(operation, lambda call: calls.append(next(iter(call.arguments.values()), None)))
    await flow.refresh()
    assert [call for call in calls if call] == []
    assert flow.told_rows is told
    assert list(flow.target.records(TopicPartition(REGISTRY, 0))) == records


@pytest.mark.parametrize("is_known", [False, True])
async def test_what_was_stored_and_not_read_back_is_read_and_told_by_the_next_pass(
    flow: ConfigSyncRig, is_known: bool
) -> None:
    if is_known:
        await flow.refresh()
    flow.source.add_topic("orders")
    undo = flow.target.intercept("log_ends", timeout)
    with pytest.raises(KafkaError):
        await flow.refresh()
    undo()
    asked: list[Call] = []
    flow.target.intercept("log_ends", asked.append)
    await flow.refresh()
    assert "orders" in flow.topics()
    assert asked, "what is told is what the log has"


async def test_the_brokers_of_the_target_are_asked_for_a_new_topic_and_when_all_configs_are_read(
    flow: ConfigSyncRig,
) -> None:
    flow.source.add_topic("orders", 3)
    await flow.refresh()
    asked: list[str] = []
    for operation in ("presence", "describe_broker_configs"):
        flow.target.intercept(operation, lambda call: asked.append(call.operation))
    await flow.refresh([Scope.TOPICS])
    assert asked == []
    flow.source.add_topic("payments", 3)
    await flow.refresh([Scope.TOPICS])
    assert set(asked) == {"presence", "describe_broker_configs"}
    asked.clear()
    await flow.refresh([Scope.CONFIGS])
    assert set(asked) == {"presence", "describe_broker_configs"}


async def test_partitions_grow_on_the_target_before_watchers_hear_of_them(flow: ConfigSyncRig) -> None:
    flow.source.add_topic("orders", 2)
    await flow.refresh()
    await flow.source.create_partitions({"orders": 4})

    def still_two(_call: Call) -> None:
        assert flow.topics()["orders"].partition_count == 2

    flow.target.intercept("create_partitions", still_two)
    await flow.refresh()
    entry = flow.topics()["orders"]
    assert (entry.partition_count, entry.target_partition_count) == (4, 4)


async def test_nothing_is_told_that_is_not_stored(flow: ConfigSyncRig) -> None:
    flow.source.add_topic("orders")
    undo = flow.target.intercept("append", timeout)
    with pytest.raises(TransientKafkaError):
        await flow.refresh()
    assert flow.topics() == {}
    assert not flow.told_settled
    undo()
    await flow.refresh()
    assert list(flow.topics()) == ["orders"]
    assert flow.told_settled


async def test_a_restart_tells_what_was_known_before_the_source_answers(flow: ConfigSyncRig) -> None:
    flow.source.add_topic("orders")
    await flow.refresh()
    known = flow.topics()
    flow.restart()
    flow.source.take_away()
    with pytest.raises(TransientKafkaError):
        await flow.refresh()
    assert flow.topics() == known
    assert flow.told_settled


async def test_a_broker_gone_in_the_middle_of_apply_leaves_nothing_half_known(flow: ConfigSyncRig) -> None:
    flow.source.add_topic("orders", 3, {"retention.ms": "1000"})
    flow.source.add_topic("users", 1)

    def die(_call: Call) -> None:
        flow.target.take_away()

    undo = flow.target.intercept("create_topics", die, after=True)
    with pytest.raises(TransientKafkaError):
        await flow.refresh()
    undo()
    flow.target.bring_back()
    await flow.refresh()
    assert {name: entry.state for name, entry in flow.topics().items()} == {
        "orders": TopicState.READY,
        "users": TopicState.READY,
    }
    assert not any(entry.created_after_start for entry in flow.topics().values())
    assert await flow.target_overrides("A.orders") == {"retention.ms": "1000"}


async def test_a_config_the_target_refuses_keeps_the_others_and_is_told(flow: ConfigSyncRig) -> None:
    flow.source.add_topic("orders")
    await flow.refresh()
    await flow.source.alter_topic_configs(
        {
            "orders": [
                ConfigChange(name="retention.ms", value="1000"),
                ConfigChange(name="max.message.bytes", value="5000"),
            ]
        }
    )
    refusal = FatalKafkaError("above the limit of the cluster", reason="POLICY_VIOLATION", code=44)

    def answer(call: Call) -> None:
        changes = [change for wanted in call.arguments["changes"].values() for change in wanted]
        if any(change.name == "max.message.bytes" for change in changes):
            call.result["A.orders"] = refusal

    flow.target.intercept("alter_topic_configs", answer, after=True)
    await flow.refresh()
    entry = flow.topics()["orders"]
    assert (entry.state, entry.reason) == (TopicState.READY, "POLICY_VIOLATION")
    assert (await flow.target_overrides("A.orders"))["retention.ms"] == "1000"
    # The reason stays until configs are synced again, whatever else is refreshed meanwhile.
    await flow.refresh([Scope.TOPICS])
    assert flow.topics()["orders"].reason == "POLICY_VIOLATION"


async def test_a_remote_topic_that_was_deleted_comes_back_under_a_new_id(flow: ConfigSyncRig) -> None:
    flow.source.add_topic("orders", 2)
    await flow.refresh()
    before = flow.topics()["orders"]
    await flow.target.delete_topics(["A.orders"])
    await flow.refresh()
    after = flow.topics()["orders"]
    assert (after.state, after.generation) == (TopicState.READY, before.generation)
    assert after.target_topic_id not in ("", before.target_topic_id)


async def test_limits_of_a_recreated_remote_topic_are_reported_in_the_next_topic_pass(
    flow: ConfigSyncRig,
) -> None:
    flow.source.add_topic("orders", 2)
    await flow.refresh()
    await flow.refresh([Scope.TOPICS])
    assert flow.topics()["orders"].limits.max_message_bytes == 1_048_588
    await flow.target.delete_topics(["A.orders"])
    smaller = {"max.message.bytes": "2000", "message.timestamp.type": "LogAppendTime"}
    recreated = NewTopic(name="A.orders", partition_count=2, replication_factor=1, configs=smaller)
    assert await flow.target.create_topics([recreated]) == {"A.orders": None}
    await flow.refresh([Scope.TOPICS])
    limits = flow.topics()["orders"].limits
    assert (limits.max_message_bytes, limits.timestamp_type) == (2000, "LogAppendTime")


async def test_one_cluster_on_both_ends_is_refused_before_anything_is_touched(tmp_path: Path) -> None:
    one = FakeCluster("A")
    one.add_topic("orders")
    flow = make_flow(tmp_path, source=one, target=one)
    with pytest.raises(StateError) as refused:
        await flow.refresh()
    assert refused.value.reason == SyncReason.SAME_CLUSTER
    assert sorted(one.topics) == ["orders"]


@pytest.mark.parametrize("value", [b'{"version":99}', b"not json"])
async def test_a_registry_that_cannot_be_read_is_never_overwritten(flow: ConfigSyncRig, value: bytes) -> None:
    flow.source.add_topic("orders")
    await flow.refresh()
    async with flow.target.writer() as writer:
        await writer.append(TopicPartition(REGISTRY, 0), key=b'["topic","orders"]', value=value)
    written = len(flow.target.records(TopicPartition(REGISTRY, 0)))
    flow.restart()
    with pytest.raises(WireFormatError) as unreadable:
        await flow.refresh()
    assert unreadable.value.reason == SyncReason.REGISTRY_UNREADABLE
    assert unreadable.value.metadata["topic"] == REGISTRY
    assert len(flow.target.records(TopicPartition(REGISTRY, 0))) == written


async def test_records_of_a_later_version_survive(flow: ConfigSyncRig) -> None:
    await flow.refresh()
    async with flow.target.writer() as writer:
        await writer.append(TopicPartition(REGISTRY, 0), key=b'["later","x"]', value=b"anything")
    flow.restart()
    await flow.refresh()
    keys = [record.key for record in flow.target.records(TopicPartition(REGISTRY, 0))]
    assert b'["later","x"]' in keys


async def test_a_flow_without_topics_is_settled_with_a_reason(flow: ConfigSyncRig) -> None:
    await flow.refresh()
    assert (flow.sync.status.state, flow.sync.status.reason) == (
        SyncState.SETTLED,
        SyncReason.NO_TOPICS_SELECTED,
    )
    assert flow.told_settled


async def test_a_name_that_is_spelled_out_is_reported_although_it_is_hidden(tmp_path: Path) -> None:
    flow = make_flow(tmp_path, {"topics": "orders, hidden", "heartbeats.replication.enabled": "false"})
    flow.source.add_topic("orders")
    refusal = FatalKafkaError("an ACL for the topic is missing", reason="TOPIC_UNAUTHORIZED", code=29)

    def hide(call: Call) -> None:
        call.result["hidden"] = refusal

    flow.source.intercept("describe_topics", hide, after=True)
    await flow.refresh()
    assert flow.topics()["hidden"].reason == "TOPIC_UNAUTHORIZED"
    assert flow.topics()["orders"].state is TopicState.READY


async def test_the_loop_goes_on_after_failures_and_ends_with_stop(flow: ConfigSyncRig) -> None:
    flow.source.add_topic("orders")
    flow.target.take_away()
    attempts = 0

    def pause() -> float:
        nonlocal attempts
        attempts += 1
        assert flow.sync.status.state is SyncState.STARTING
        assert flow.sync.status.reason == "KAFKA_UNAVAILABLE"
        if attempts == 3:
            flow.target.bring_back()
        return 0.0

    flow.restart(random=pause)
    flow.target.intercept("append", lambda _call: flow.stop.set(), after=True)
    await flow.sync.run(flow.stop)
    assert attempts == 3
    assert flow.sync.status.state is SyncState.SETTLED


async def test_configs_are_read_when_they_are_needed_and_now_and_then(flow: ConfigSyncRig) -> None:
    flow.source.add_topic("orders")
    await flow.refresh([Scope.TOPICS])
    asked: list[str] = []
    for cluster in (flow.source, flow.target):
        cluster.intercept(
            "describe_topic_configs", lambda call: asked.extend(sorted(call.arguments["names"]))
        )

    async def read_by(scopes: list[Scope]) -> list[str]:
        asked.clear()
        await flow.refresh(scopes)
        return [name for name in asked if name != REGISTRY]

    assert await read_by([Scope.TOPICS]) == []
    flow.source.add_topic("users")
    assert await read_by([Scope.TOPICS]) == ["users", "A.users"]
    assert await read_by([Scope.TOPICS, Scope.CONFIGS]) == ["orders", "users", "A.orders", "A.users"]
    await flow.target.delete_topics(["A.users"])
    assert await read_by([Scope.TOPICS]) == ["users", "A.users"]
    flow.clock.advance(120)
    assert await read_by([Scope.TOPICS]) == ["orders", "users", "A.orders", "A.users"]


async def test_a_flow_whose_cluster_is_away_takes_nobodys_turn(flow: ConfigSyncRig) -> None:
    """Flows of a process look a few at a time; who waits for a cluster is not in line."""
    flow.source.take_away()
    async with flow.gate:
        with pytest.raises(TransientKafkaError):
            await flow.refresh()


async def test_a_pass_waits_for_its_turn(tmp_path: Path) -> None:
    flow = make_flow(tmp_path)
    flow.source.add_topic("orders")
    async with flow.gate, asyncio.TaskGroup() as group:
        waiting = group.create_task(flow.refresh(), name="waits")
        await eventually(lambda: flow.sync.passes.loaded)
        assert "A.orders" not in flow.target.topics
        flow.gate.release()
        await waiting
        await flow.gate.acquire()
    assert "A.orders" in flow.target.topics


async def test_a_topic_with_tiered_storage_is_made_without_it_where_the_target_has_none(
    flow: ConfigSyncRig,
) -> None:
    flow.source.add_topic("orders", configs={"remote.storage.enable": "true", "retention.ms": "1000"})

    def refuse(call: Call) -> None:
        for topic in call.arguments["topics"]:
            if "remote.storage.enable" in topic.configs:
                del flow.target.topics[topic.name]
                call.result[topic.name] = FatalKafkaError("tiered storage is off", reason="CONFIG_REFUSED")

    flow.target.intercept("create_topics", refuse, after=True)
    await flow.refresh([Scope.TOPICS])
    assert flow.topics()["orders"].state is TopicState.READY
    assert await flow.target_overrides("A.orders") == {"retention.ms": "1000"}
    await flow.refresh([Scope.CONFIGS])
    assert flow.sync.status.scopes[Scope.CONFIGS].drift_reverted == 0, "nobody but Twinlog left it out"


async def test_configs_of_a_topic_that_somebody_else_created_first_are_no_drift(flow: ConfigSyncRig) -> None:
    flow.source.add_topic("orders", configs={"retention.ms": "1000"})

    def somebody_was_faster(call: Call) -> None:
        if any(topic.name == "A.orders" for topic in call.arguments["topics"]):
            flow.target.add_topic("A.orders")

    flow.target.intercept("create_topics", somebody_was_faster)
    await flow.refresh([Scope.TOPICS])
    await flow.refresh([Scope.CONFIGS])
    assert await flow.target_overrides("A.orders") == {"retention.ms": "1000"}
    assert flow.sync.status.scopes[Scope.CONFIGS].drift_reverted == 0


async def test_a_topic_that_the_file_names_later_is_new_only_if_it_is_newer_than_the_flow(
    tmp_path: Path,
) -> None:
    """Such a topic would otherwise be copied from its first record, whatever the start says."""
    flow = make_flow(tmp_path, {"topics": "orders"})
    for name in ("orders", "older", "replaced"):
        flow.source.add_topic(name)
    await flow.refresh()
    flow.source.add_topic("newer")
    await flow.refresh()
    await flow.source.delete_topics(["replaced"])
    flow.restart()
    await flow.refresh()
    flow.source.add_topic("replaced")

    later = make_flow(tmp_path, {"topics": ".*"}, source=flow.source, target=flow.target)
    await later.refresh()

    new = {name for name, entry in later.topics().items() if entry.created_after_start}
    assert new == {"newer", "replaced"}
