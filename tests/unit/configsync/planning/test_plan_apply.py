"""Plan, then apply exactly that: refused when the world changed, a no-op the second time."""

import random
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from twinlog.errors import ConflictError, FatalKafkaError, KafkaError, NotFoundError, TransientKafkaError
from twinlog.kafka.ports import ConfigChange, ConfigEntry, ConfigSource, TopicDescription
from twinlog.service.feeds.replicated_topics import TopicState
from twinlog.testing.fakes.cluster import Call
from twinlog_configsync.model.actions import is_drift
from twinlog_configsync.model.memory import Memory
from twinlog_configsync.model.observation import Observation, TargetCluster, TopicPair, World
from twinlog_configsync.model.reasons import SyncReason
from twinlog_configsync.model.schedule import Scope
from twinlog_configsync.planning.desired import DesiredBindings
from twinlog_configsync.planning.plan import make_plan
from twinlog_configsync.planning.rules import FlowRules
from unit.configsync.configsync_rig import READ_ORDERS, ConfigSyncRig, make_flow


@pytest.fixture
def flow(tmp_path: Path) -> ConfigSyncRig:
    """In manual mode: nothing changes that was not applied."""
    flow = make_flow(tmp_path, {"twinlog.sync.mode": "manual"})
    flow.source.add_topic("orders", 3, {"retention.ms": "1000"})
    return flow


async def plan_id(flow: ConfigSyncRig) -> str:
    plan, _ = await flow.commands.preview()
    return plan.plan_id


async def test_manual_mode_plans_and_says_that_it_waits(flow: ConfigSyncRig) -> None:
    await flow.refresh()
    assert "A.orders" not in flow.target.topics
    entry = flow.topics()["orders"]
    assert (entry.state, entry.reason) == (TopicState.WAITING, SyncReason.PLAN_PENDING)
    status = flow.sync.status.scopes[Scope.TOPICS]
    assert (status.reason, status.pending_changes) == (SyncReason.PLAN_PENDING, 1)


async def test_a_plan_says_which_offsets_new_copies_will_have(flow: ConfigSyncRig) -> None:
    flow.source.add_topic("users", 1, {"cleanup.policy": "compact"})
    flow.source.add_topic("late", 1, {})
    plan, _ = await flow.commands.preview()
    offsets = await flow.commands.expected_offsets(plan)
    assert {name: (each.preserved, each.reason) for name, each in offsets.items()} == {
        "orders": (True, ""),
        "users": (False, "COMPACTED"),
        "late": (True, ""),
    }
    flow.source.take_away()
    assert await flow.commands.expected_offsets(plan) == {}, "it is not known"


async def test_a_plan_is_applied_exactly_and_the_next_one_is_empty(flow: ConfigSyncRig) -> None:
    plan, _ = await flow.commands.preview()
    assert [str(action) for action in plan.changes] == [
        "CREATE A.orders partitions=3 replication.factor=1: selected on the source, absent on the target"
    ]
    outcome = await flow.commands.apply(plan.plan_id, flow.stop)
    assert list(outcome.applied) == list(plan.changes)
    assert flow.topics()["orders"].state is TopicState.READY
    again, _ = await flow.commands.preview()
    assert again.changes == ()
    nothing = await flow.commands.apply(again.plan_id, flow.stop)
    assert (nothing.applied, nothing.refused) == ([], [])


async def test_planning_changes_nothing_on_the_target(flow: ConfigSyncRig) -> None:
    await flow.refresh()
    before = sorted(flow.target.topics)
    await flow.commands.preview()
    assert sorted(flow.target.topics) == before
    assert flow.target.acls == set()


async def test_a_plan_of_a_world_that_changed_is_refused(flow: ConfigSyncRig) -> None:
    stale = await plan_id(flow)
    await flow.source.alter_topic_configs({"orders": [ConfigChange(name="retention.ms", value="7")]})
    with pytest.raises(ConflictError) as refused:
        await flow.commands.apply(stale, flow.stop)
    assert refused.value.reason == SyncReason.PLAN_STALE
    assert "A.orders" not in flow.target.topics


async def test_a_change_that_makes_no_difference_to_the_plan_does_not_make_it_stale(
    flow: ConfigSyncRig,
) -> None:
    known = await plan_id(flow)
    flow.target.add_topic("unrelated")
    flow.source.add_topic("__internal")
    await flow.commands.apply(known, flow.stop)
    assert "A.orders" in flow.target.topics


async def test_a_plan_survives_a_restart(flow: ConfigSyncRig) -> None:
    known = await plan_id(flow)
    flow.restart()
    await flow.commands.apply(known, flow.stop)
    assert "A.orders" in flow.target.topics


async def test_an_unknown_plan_is_not_applied(flow: ConfigSyncRig) -> None:
    await plan_id(flow)
    with pytest.raises(NotFoundError) as unknown:
        await flow.commands.apply("0" * 32, flow.stop)
    assert unknown.value.reason == SyncReason.PLAN_UNKNOWN


async def test_an_apply_whose_record_is_not_stored_says_what_it_did(flow: ConfigSyncRig) -> None:
    """The plan was carried out: an error would say that it was not."""
    known = await plan_id(flow)
    refused: list[Call] = []

    def refuse(call: Call) -> None:
        if '"audit"' in str(call.arguments):
            refused.append(call)
            raise TransientKafkaError("not now", reason="KAFKA_TIMEOUT")

    flow.target.intercept("append", refuse)
    outcome = await flow.commands.apply(known, flow.stop)
    assert refused
    assert len(outcome.applied) == 1
    assert "A.orders" in flow.target.topics
    assert flow.passes.memory.changes == ()


async def test_an_apply_that_broke_off_is_finished_by_the_next_plan(flow: ConfigSyncRig) -> None:
    flow.source.add_topic("users")
    known = await plan_id(flow)

    def die(_call: Call) -> None:
        flow.target.take_away()

    undo = flow.target.intercept("create_topics", die, after=True)
    with pytest.raises(TransientKafkaError):
        await flow.commands.apply(known, flow.stop)
    undo()
    flow.target.bring_back()
    with pytest.raises(ConflictError):
        await flow.commands.apply(known, flow.stop)
    await flow.commands.apply(await plan_id(flow), flow.stop)
    assert {entry.state for entry in flow.topics().values()} == {TopicState.READY}
    # What was created before the break is known with what it was created with: no drift is claimed.
    await flow.target.alter_topic_configs({"A.orders": [ConfigChange(name="retention.ms", value="9")]})
    plan, _ = await flow.commands.preview()
    assert [str(action) for action in plan.changes] == [
        "SET A.orders retention.ms 9 → 1000: explicit on source"
    ]


async def test_a_refused_action_is_told_and_stays_planned(flow: ConfigSyncRig) -> None:
    refusal = FatalKafkaError("quota exceeded", reason="POLICY_VIOLATION", code=44)

    def refuse(call: Call) -> None:
        if "A.orders" in call.result:
            flow.target.topics.pop("A.orders")
            call.result["A.orders"] = refusal

    flow.target.intercept("create_topics", refuse, after=True)
    outcome = await flow.commands.apply(await plan_id(flow), flow.stop)
    assert [refused.error.reason for refused in outcome.refused] == ["POLICY_VIOLATION"]
    plan, _ = await flow.commands.preview()
    assert [flow.commands.refusal(action) for action in plan.changes] == [refusal]


async def test_a_pass_between_plan_and_apply_changes_neither_the_plan_nor_what_drift_is(
    flow: ConfigSyncRig,
) -> None:
    await flow.commands.apply(await plan_id(flow), flow.stop)
    await flow.source.alter_topic_configs({"orders": [ConfigChange(name="retention.ms", value="7")]})
    planned, _ = await flow.commands.preview([Scope.CONFIGS])
    await flow.refresh()
    again, _ = await flow.commands.preview([Scope.CONFIGS])
    assert [is_drift(action) for action in again.changes] == [False]
    outcome = await flow.commands.apply(planned.plan_id, flow.stop)
    assert len(outcome.applied) == 1


async def test_an_acl_that_somebody_removed_stays_drift_until_it_is_applied(flow: ConfigSyncRig) -> None:
    scopes = [Scope.TOPICS, Scope.ACLS]
    flow.source.acls.add(READ_ORDERS)
    await flow.commands.apply(await plan_id(flow), flow.stop)
    flow.target.acls.clear()
    planned, _ = await flow.commands.preview(scopes)
    await flow.refresh(scopes)
    again, _ = await flow.commands.preview(scopes)
    assert [is_drift(action) for action in again.changes] == [True]
    assert again.plan_id == planned.plan_id


async def test_a_topic_that_is_gone_cannot_have_been_grown(flow: ConfigSyncRig) -> None:
    await flow.commands.apply(await plan_id(flow), flow.stop)
    await flow.source.create_partitions({"orders": 6})

    def vanish(_call: Call) -> None:
        flow.target.topics.pop("A.orders", None)

    flow.target.intercept("create_partitions", vanish)
    outcome = await flow.commands.apply(await plan_id(flow), flow.stop)
    assert [refusal.error.reason for refusal in outcome.refused] == ["TOPIC_UNKNOWN"]
    assert outcome.applied == []


@pytest.fixture(scope="module")
def rules(tmp_path_factory: pytest.TempPathFactory) -> FlowRules:
    return make_flow(tmp_path_factory.mktemp("flow")).config.rules


def seen_topic(
    name: str, side: tuple[int, dict[str, str]] | None, shuffle: random.Random | None
) -> tuple[TopicDescription | KafkaError, list[ConfigEntry]]:
    if side is None:
        return FatalKafkaError("no such topic", reason="TOPIC_UNKNOWN", code=3), []
    partitions, overrides = side
    entries = [
        ConfigEntry(name=key, value=value, source=ConfigSource.TOPIC) for key, value in overrides.items()
    ]
    if shuffle is not None:
        shuffle.shuffle(entries)
    topic = TopicDescription(
        name=name, topic_id="id", partition_count=partitions, replication_factor=1, internal=False
    )
    return topic, entries


names = st.sampled_from(["a", "b", "c", "d"])
configs = st.dictionaries(
    st.sampled_from(["retention.ms", "segment.bytes", "min.insync.replicas"]),
    st.sampled_from(["1", "2", "3"]),
    max_size=3,
)
sides = st.none() | st.tuples(st.integers(1, 4), configs)


@given(worlds=st.dictionaries(names, st.tuples(sides, sides), max_size=4), seed=st.integers(0, 10))
def test_the_order_in_which_a_world_is_seen_never_matters(
    rules: FlowRules,
    worlds: dict[str, tuple[tuple[int, dict[str, str]] | None, tuple[int, dict[str, str]] | None]],
    seed: int,
) -> None:
    shuffle = random.Random(seed)

    def world(*, shuffled: bool) -> World:
        pairs = []
        for name, (source, target) in worlds.items():
            found, source_configs = seen_topic(name, source, shuffle if shuffled else None)
            copy, target_configs = seen_topic(f"A.{name}", target, shuffle if shuffled else None)
            pairs.append(
                TopicPair(
                    source_topic=name,
                    target_topic=f"A.{name}",
                    source=found,
                    target=copy,
                    source_configs=source_configs,
                    target_configs=target_configs,
                )
            )
        if shuffled:
            shuffle.shuffle(pairs)
        return World(
            topics=Observation(
                pairs={pair.source_topic: pair for pair in pairs},
                target_cluster=TargetCluster(broker_count=1),
            )
        )

    scopes = [Scope.TOPICS, Scope.CONFIGS]
    first = make_plan(
        world(shuffled=False), rules, Memory(), scopes=scopes, now_ms=0, claims=DesiredBindings(set(), set())
    )
    second = make_plan(
        world(shuffled=True),
        rules,
        Memory(),
        scopes=scopes[::-1],
        now_ms=0,
        claims=DesiredBindings(set(), set()),
    )
    assert first == second
    assert first.plan_id == second.plan_id
