"""Topics that a changed rule adds to a running flow, or removes from it: every part follows the rules of
now."""

import asyncio
import json
from collections.abc import AsyncIterator, Collection, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from types import MappingProxyType

import grpc
import pytest

from twinlog.acl_rights import ALLOW
from twinlog.api.common.v1 import types_pb2
from twinlog.api.configsync.v1 import configsync_service_pb2 as pb2
from twinlog.config import Configuration, load
from twinlog.errors import StateError
from twinlog.kafka.ports import AclBinding
from twinlog.model import TopicPartition
from twinlog.policy.internal_topics import configsync_topic
from twinlog.service.feeds.client import Received
from twinlog.service.feeds.rules import RulesWatch
from twinlog.service.feeds.rules_in_force import flow_in_effect
from twinlog.service.runtime import Backoff
from twinlog.testing.brokers import eventually
from twinlog.testing.fakes.clock import FakeClock
from twinlog.testing.fakes.cluster import Call, FakeCluster
from twinlog.write_blocks import fence_of
from twinlog_checkpoint.api.moves_servicer import ServedFlow
from twinlog_checkpoint.assembly import assemble_group_syncer, assemble_moves
from twinlog_checkpoint.config import checkpoint_flow
from twinlog_checkpoint.flow.live_rules import RulesFollower
from twinlog_checkpoint.flow.parts import FlowParts
from twinlog_checkpoint.journal.record import Step
from twinlog_checkpoint.moves.planning.plan import MoveAction, MoveOptions
from twinlog_checkpoint.translation.translation import Verdict
from unit.checkpoint.checkpoint_rig import A_TO_B, B_TO_A, CheckpointFlowRig, KnownTopics, NothingKnown, turns
from unit.checkpoint.moves.move_rig import offset_of, run
from unit.checkpoint.moves.test_sync_after_moves import run_until

ORDERS, INVOICES = TopicPartition("orders", 0), TopicPartition("invoices", 0)
ORDERS_COPY, INVOICES_COPY = TopicPartition("A.orders", 0), TopicPartition("A.invoices", 0)
RECORDS, COPIED = 100, 40
FENCE = MoveOptions(wait_seconds=0, fence=True)
WRITER = AclBinding(
    resource_type="TOPIC",
    resource_name="invoices",
    pattern_type="LITERAL",
    principal="User:app",
    host="*",
    operation="WRITE",
    permission=ALLOW,
)


@pytest.fixture
def configuration(tmp_path: Path) -> Configuration:
    """Its file selects the topic orders only."""
    file = tmp_path / "mm2.properties"
    file.write_text(
        "clusters = A, B\nA.bootstrap.servers = a:1\nB.bootstrap.servers = b:1\nA->B.enabled = true\n"
        "A->B.topics = orders\nreplication.factor = 1\ncheckpoints.topic.replication.factor = 1\n"
        "offset-syncs.topic.replication.factor = 1\nsync.group.offsets.enabled = true\n"
    )
    return load(file, environ={})


@pytest.fixture
def two_way(configuration: Configuration, tmp_path: Path) -> Configuration:
    """As `configuration`, with the reverse flow, for which the file selects a topic that does not exist."""
    file = tmp_path / "mm2.properties"
    file.write_text(f"{file.read_text()}B->A.enabled = true\nB->A.topics = nothing\n")
    return load(file, environ={})


@dataclass(slots=True, kw_only=True)
class LiveRig:
    """orders is copied to its end, invoices is not; group g has read some of both."""

    fakes: CheckpointFlowRig
    parts: FlowParts
    served: ServedFlow
    follower: RulesFollower

    async def take_over(self) -> None:
        """The checkpointer begins to own the flow, and makes its first pass."""
        stopped = asyncio.Event()
        stopped.set()
        await self.parts.checkpointer.run(stopped)
        await self.fakes.do_pass(self.parts.checkpointer)

    def change_rules(self, values: Mapping[str, str]) -> None:
        config = flow_in_effect(self.follower.configuration, A_TO_B, values)
        self.follower.follow(checkpoint_flow(config))


@asynccontextmanager
async def live_rig(
    configuration: Configuration,
    *,
    configsync_knows: Collection[str] = ("orders", "invoices"),
    reads_stored_rules: bool = False,
) -> AsyncIterator[LiveRig]:
    """`configsync_knows`: the topics of its registry; none if it is down. `reads_stored_rules`: the
    checkpointer and the moves wait for the stored rules, as in the service."""
    source, target = FakeCluster("A", authorizer=True), FakeCluster("B", authorizer=True)
    for name in ("orders", "invoices"):
        source.add_topic(name)
        target.add_topic(f"A.{name}")
    fakes = CheckpointFlowRig(
        source=source,
        target=target,
        known_topics=KnownTopics(names=set(configsync_knows)) if configsync_knows else NothingKnown(),
        configuration=configuration,
    )
    async with source.writer() as here, target.writer() as there:
        for number in range(RECORDS):
            value = b"%d" % number
            for origin, copy, end in ((ORDERS, ORDERS_COPY, RECORDS), (INVOICES, INVOICES_COPY, COPIED)):
                await here.append(origin, key=b"k", value=value, timestamp_ms=number)
                if number < end:
                    await there.append(copy, key=b"k", value=value, timestamp_ms=number)
    for topic, end in (("orders", RECORDS), ("invoices", COPIED)):
        await fakes.write_sync(topic, 0, 0)
        await fakes.write_sync(topic, end - 1, end - 1)
    source.set_group("g", {ORDERS: 90, INVOICES: 20})
    channel = grpc.aio.insecure_channel("127.0.0.1:1")
    rules = RulesWatch(
        channel,
        clock=FakeClock(),
        backoff=Backoff(initial_seconds=1.0, max_seconds=1.0, random=lambda: 0.0),
    )
    async with fakes.running() as parts:
        follower = RulesFollower(
            configuration=configuration,
            rules=rules,
            checkpointer=parts.checkpointer,
            syncer=assemble_group_syncer(parts, fakes.around()),
        )
        if reads_stored_rules:
            parts.checkpointer.learn_rules = follower.learn
            parts = replace(parts, rules=follower)
        served = fakes.served(parts)
        for runner in (served.failover, served.failback):
            runner.drain_look_seconds = runner.planner.rate_seconds = 0
        yield LiveRig(fakes=fakes, parts=parts, served=served, follower=follower)
    await channel.close()


async def applied(follower: RulesFollower) -> None:
    """Its loop runs until the stored rules apply."""
    stop = asyncio.Event()
    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(follower.run(stop), name="follower")
        await eventually(lambda: not follower.problem)
        stop.set()


async def store_rules(
    target: FakeCluster,
    values: Mapping[str, str],
    *,
    of: str = "A",
    version: int = 1,
    replaced: Mapping[str, str] = MappingProxyType({}),
) -> None:
    """As configsync stores them for the flow from cluster `of`; `replaced`: values of its file."""
    topic = configsync_topic(of)
    target.add_topic(topic, 1, {"cleanup.policy": "compact"})
    rules = {"version": version, "revision": 1, "updated_at_ms": 1, "values": dict(values)}
    rules["origins"] = {key: {"replaced": was} for key, was in replaced.items()}
    value = json.dumps(rules).encode()
    async with target.writer() as writer:
        await writer.append(TopicPartition(topic, 0), key=b'["rules"]', value=value)


async def test_a_failover_fences_and_waits_for_a_topic_that_a_live_rule_added(
    configuration: Configuration,
) -> None:
    async with live_rig(configuration) as rig:
        rig.fakes.source.acls = {WRITER}
        rig.change_rules({"topics": "orders, invoices"})
        await rig.fakes.do_pass(rig.parts.checkpointer)
        plan = await rig.served.failover.plan(MoveOptions(fence=True, grant_write=True))
        assert plan.fenced_topics == ["invoices", "orders"]
        assert [each.resource_name for each in plan.write_grants] == ["A.invoices"]
        assert {each.partition: each.records_not_copied for each in plan.backlog} == {
            INVOICES: RECORDS - COPIED,
            ORDERS: 0,
        }
        _, report = await run(rig.served.failover, FENCE)
        assert {fence_of("invoices"), fence_of("orders")} <= rig.fakes.source.acls
        assert [each for each in report.left_behind if "invoices-0" in each]


@pytest.mark.parametrize("is_cut", [False, True])
async def test_a_topic_that_left_the_rules_since_keeps_no_fence_and_no_grant(
    configuration: Configuration, is_cut: bool
) -> None:
    async with live_rig(configuration) as rig:
        rig.fakes.source.acls = {WRITER}
        rig.change_rules({"topics": "orders, invoices"})
        if is_cut:
            await run_until(rig.served.failover.run(FENCE), Step.FENCE)
        else:
            await run(rig.served.failover, replace(FENCE, grant_write=True))
            assert rig.fakes.target.acls
        assert fence_of("invoices") in rig.fakes.source.acls
        rig.change_rules({"topics": "orders"})
        if is_cut:
            await rig.served.failover.abort("ann")
        else:
            await run(rig.served.failback)
        assert (rig.fakes.source.acls, rig.fakes.target.acls) == ({WRITER}, set())


async def test_a_topic_that_configsync_has_not_noticed_yet_is_fenced_and_waited_for(
    configuration: Configuration,
) -> None:
    """A rule has just added it, or it has just been created: its records are not copied."""
    async with live_rig(configuration, configsync_knows=("orders",)) as rig:
        rig.change_rules({"topics": "orders, invoices"})
        _, report = await run(rig.served.failover, FENCE)
        assert rig.fakes.source.acls == {fence_of("invoices"), fence_of("orders")}
        assert [each for each in report.left_behind if "invoices-0" in each]


async def test_a_failback_translates_a_topic_that_a_live_rule_added(configuration: Configuration) -> None:
    async with live_rig(configuration) as rig:
        rig.change_rules({"topics": "orders, invoices"})
        await rig.fakes.do_pass(rig.parts.checkpointer)
        await run(rig.served.failover)
        rig.fakes.target.set_group("g", {ORDERS_COPY: 95, INVOICES_COPY: 30})
        _, report = await run(rig.served.failback)
        assert {each.from_partition: each.action for each in report.plan.partitions} == {
            ORDERS_COPY: MoveAction.WRITE,
            INVOICES_COPY: MoveAction.WRITE,
        }
        assert report.left_behind == []
        assert await offset_of(rig.fakes.source, "g", INVOICES) == 30


async def test_the_stored_rules_select_topics_after_a_restart_while_configsync_is_down(
    configuration: Configuration,
) -> None:
    async with live_rig(configuration, configsync_knows=()) as rig:
        await store_rules(rig.fakes.target, {"topics": "orders, invoices"})
        await rig.follower.learn()
        await rig.fakes.do_pass(rig.parts.checkpointer)
        verdicts = {row.source: row.translation.verdict for row in rig.parts.checkpointer.table.rows()}
        assert verdicts == {ORDERS: Verdict.EXACT, INVOICES: Verdict.EXACT}
        _, report = await run(rig.served.failover, FENCE)
        assert rig.fakes.source.acls == {fence_of("invoices"), fence_of("orders")}
        assert await offset_of(rig.fakes.target, "g", INVOICES_COPY) == 20
        assert [each for each in report.left_behind if "invoices-0" in each]


async def test_a_topic_that_a_live_rule_removed_is_neither_fenced_nor_waited_for(
    configuration: Configuration,
) -> None:
    async with live_rig(configuration, configsync_knows=()) as rig:
        rig.change_rules({"topics": "orders, invoices"})
        rig.change_rules({})
        _, report = await run(rig.served.failover, FENCE)
        assert rig.fakes.source.acls == {fence_of("orders")}
        assert [each.partition for each in report.plan.backlog] == [ORDERS]


async def test_no_move_runs_before_the_stored_rules_are_read(configuration: Configuration) -> None:
    """With the rules of the file alone it could leave out a topic."""
    async with live_rig(configuration, configsync_knows=(), reads_stored_rules=True) as rig:
        await store_rules(rig.fakes.target, {"topics": "orders, invoices"})
        for work in (rig.served.failover, rig.served.failback):
            with pytest.raises(StateError, match="changed rules have not been read") as refused:
                await run(work, FENCE)
            assert refused.value.reason == "MOVE_BLOCKED"
        assert rig.fakes.source.acls == set()
        await rig.take_over()
        await run(rig.served.failover, FENCE)
        assert fence_of("invoices") in rig.fakes.source.acls


async def test_a_new_leader_that_shows_less_of_the_rules_for_a_moment_is_asked_again(
    configuration: Configuration,
) -> None:
    async with live_rig(configuration, configsync_knows=(), reads_stored_rules=True) as rig:
        await store_rules(rig.fakes.target, {"topics": "orders, invoices"})
        rules_partition = TopicPartition(configsync_topic("A"), 0)

        def show_nothing(call: Call) -> None:
            if call.arguments["partition"] == rules_partition:
                for name, value in {"records": [], "next_offset": 0, "high_watermark": 0}.items():
                    object.__setattr__(call.result, name, value)

        undo = rig.fakes.target.intercept("fetch", show_nothing, after=True)
        stop = asyncio.Event()
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(rig.follower.run(stop), name="follower")
            await eventually(lambda: "returned no records" in rig.follower.problem)
            undo()
            await eventually(lambda: not rig.follower.problem)
            stop.set()
        assert rig.parts.entry.topics.selects("invoices")


def with_secret(tmp_path: Path, secret: Path) -> Configuration:
    """The file of `configuration`, with a secret that is in a file of its own."""
    file = tmp_path / "mm2.properties"
    file.write_text(
        f"{file.read_text()}config.providers = file\n"
        "config.providers.file.class = org.apache.kafka.common.config.provider.FileConfigProvider\n"
        f"B.ssl.key.password = ${{file:{secret}:password}}\n"
    )
    return load(file, environ={})


@pytest.mark.usefixtures("configuration")
async def test_no_move_runs_while_the_stored_rules_cannot_be_used(tmp_path: Path) -> None:
    """The rules of the file apply for the moment, and they leave out a topic."""
    secret, away = tmp_path / "secrets.properties", tmp_path / "away"
    secret.write_text("password = planted\n")
    configuration = with_secret(tmp_path, secret)
    async with live_rig(configuration, configsync_knows=(), reads_stored_rules=True) as rig:
        await store_rules(rig.fakes.target, {"topics": "orders, invoices"})
        secret.rename(away)
        await rig.take_over()
        for work in (rig.served.failover, rig.served.failback):
            with pytest.raises(StateError, match=f"changed rules do not apply yet: .*{secret}") as refused:
                await run(work, FENCE)
            assert refused.value.reason == "MOVE_BLOCKED"
        assert rig.fakes.source.acls == set()
        away.rename(secret)
        await applied(rig.follower)
        await run(rig.served.failover, FENCE)
        assert fence_of("invoices") in rig.fakes.source.acls


async def test_no_failback_runs_before_the_stored_rules_of_the_reverse_flow_are_read(
    two_way: Configuration,
) -> None:
    """Another process owns the reverse flow, so its checkpointer does not run here."""
    async with live_rig(two_way, configsync_knows=(), reads_stored_rules=True) as rig:
        source, target = rig.fakes.source, rig.fakes.target
        target.add_topic("payments")
        await store_rules(source, {"topics": "payments"}, of="B")
        reverse = rig.fakes.reverse_parts()
        follower = RulesFollower(
            configuration=two_way,
            rules=rig.follower.rules,
            checkpointer=reverse.checkpointer,
            syncer=assemble_group_syncer(reverse, rig.fakes.around()),
        )
        reverse.checkpointer.learn_rules = follower.learn
        flows = {A_TO_B: rig.parts, B_TO_A: replace(reverse, rules=follower)}
        served = assemble_moves(flows, rig.fakes.around())[A_TO_B]
        served.failback.drain_look_seconds = served.failback.planner.rate_seconds = 0
        await rig.take_over()
        await run(served.failover)
        with pytest.raises(StateError, match="B->A: the changed rules have not been read") as refused:
            await run(served.failback, FENCE)
        assert refused.value.reason == "MOVE_BLOCKED"
        assert target.acls == set()
        await applied(follower)
        await run(served.failback, FENCE)
        assert target.acls == {fence_of("payments")}


@pytest.mark.parametrize("is_owner", [True, False, None])
async def test_only_the_owner_of_a_flow_puts_rules_aside_because_of_its_file(
    configuration: Configuration, is_owner: bool | None
) -> None:
    """The file of the process that set the rule, and still runs the flow, has "sales"."""
    async with live_rig(configuration, configsync_knows=()) as rig:
        await store_rules(rig.fakes.target, {"topics": "invoices"}, replaced={"topics": "sales"})
        rig.follower.is_owner = lambda: is_owner
        await rig.follower.learn()
        assert rig.parts.entry.topics.selects("invoices") is not bool(is_owner)


async def test_a_stored_record_that_cannot_be_read_stops_moves_until_it_is_gone(
    configuration: Configuration,
) -> None:
    """The message has the remedy, and checkpoints are written meanwhile."""
    async with live_rig(configuration, configsync_knows=(), reads_stored_rules=True) as rig:
        await store_rules(rig.fakes.target, {"topics": "orders, invoices"}, version=2)
        await rig.take_over()
        assert rig.fakes.checkpoints()
        with pytest.raises(StateError, match=f"delete {configsync_topic('A')} on B") as refused:
            await run(rig.served.failover, FENCE)
        assert refused.value.reason == "MOVE_BLOCKED"
        await rig.fakes.target.delete_topics([configsync_topic("A")])
        await applied(rig.follower)
        await run(rig.served.failover, FENCE)
        assert rig.fakes.source.acls == {fence_of("orders")}


async def test_a_reset_that_comes_from_configsync_while_stored_rules_are_read_takes_precedence(
    configuration: Configuration,
) -> None:
    async with live_rig(configuration) as rig:
        await store_rules(rig.fakes.target, {"topics": "orders, invoices"})
        flow = types_pb2.Flow(source="A", target="B")
        reset = pb2.ChangedRules(flow=flow, version=2, values={})

        def send_reset(call: object) -> None:
            rig.follower.rules.handle(Received(pb2.WatchRulesResponse(changed=reset)))

        rig.fakes.target.intercept("list_offsets", send_reset)
        await rig.follower.learn()
        assert not rig.parts.entry.topics.selects("invoices")
        assert rig.follower.problem == ""


async def test_rules_that_come_from_configsync_while_stored_ones_are_read_stay_in_effect(
    configuration: Configuration,
) -> None:
    async with live_rig(configuration) as rig:
        await store_rules(rig.fakes.target, {"topics": "orders"})
        newer = {"topics": "orders, invoices"}
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(rig.follower.learn(), name="learn")
            await turns(lambda: rig.follower.rules.values(A_TO_B))
            flow = types_pb2.Flow(source="A", target="B")
            changed = pb2.ChangedRules(flow=flow, version=2, values=newer)
            rig.follower.rules.handle(Received(pb2.WatchRulesResponse(changed=changed)))
        assert rig.parts.entry.topics.selects("invoices")


async def test_a_standby_that_takes_over_follows_rules_that_were_stored_since_it_started(
    configuration: Configuration,
) -> None:
    """configsync is down for both: the owner before heard of the change, and stored rules are all it left."""
    async with live_rig(configuration, configsync_knows=()) as rig:
        await store_rules(rig.fakes.target, {"topics": "orders"})
        await rig.follower.learn()
        await store_rules(rig.fakes.target, {"topics": "orders, invoices"})
        await rig.follower.learn()
        assert rig.parts.entry.topics.selects("invoices")
        assert not rig.follower.problem


async def test_stored_rules_replace_none_that_configsync_has_sent(configuration: Configuration) -> None:
    async with live_rig(configuration, configsync_knows=()) as rig:
        await store_rules(rig.fakes.target, {"topics": "orders"})
        await rig.follower.learn()
        flow = types_pb2.Flow(source="A", target="B")
        sent = pb2.ChangedRules(flow=flow, version=2, values={"topics": "orders, invoices"})
        rig.follower.rules.handle(Received(pb2.WatchRulesResponse(changed=sent)))
        await rig.follower.learn()
        assert rig.parts.entry.topics.selects("invoices")
