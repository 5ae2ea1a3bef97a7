"""Topics to which records are routed one by one: configsync makes them as if they were on the source."""

import asyncio
from itertools import pairwise
from pathlib import Path

from twinlog.config import AclSyncMode
from twinlog.errors import FatalKafkaError, TransientKafkaError
from twinlog.service.feeds.replicated_topics import StoredRoute, is_gone
from twinlog.service.feeds.routes import routes_of
from twinlog.testing.fakes.cluster import Call
from twinlog_configsync.access.acl_rules import translate_acls
from twinlog_configsync.model.schedule import Scope
from unit.configsync.access.acl_rig import acl, rules
from unit.configsync.configsync_rig import ConfigSyncRig, make_flow

ROUTER = {
    "A->B.topics": "orders, users",
    "A->B.transforms": "day",
    "A->B.transforms.day.type": "org.apache.kafka.connect.transforms.TimestampRouter",
}


async def _wants(flow: ConfigSyncRig, **routes: str) -> None:
    rows = {name: StoredRoute(topic) for name, topic in routes.items()}
    await routes_of(flow.config.flow, flow.target).put(rows)


async def test_a_route_gets_partitions_and_configs_of_the_topic_whose_records_take_it(tmp_path: Path) -> None:
    flow = make_flow(tmp_path, ROUTER)
    flow.source.add_topic("orders", 2, configs={"retention.ms": "60000"})
    await flow.refresh()
    await _wants(flow, eu="orders")
    await flow.refresh()
    told = flow.topics()["eu"]
    assert (told.routed_from, told.target_topic, told.target_partition_count) == ("orders", "A.eu", 2)
    assert (await flow.target_overrides("A.eu"))["retention.ms"] == "60000"
    assert flow.topics()["orders"].routed_from == ""
    rules = {
        name: [each.rule for each in await flow.commands.explain(name)] for name in ("orders", "eu", "A.eu")
    }
    assert rules == {
        "orders": ["replicated as A.orders: topics: pattern 'orders'; records are routed to A.eu"],
        "eu": ["records of orders are routed to A.eu"],
        "A.eu": ["records of orders of A go there"],
    }
    await flow.source.create_partitions({"orders": 3})
    flow.restart()
    await flow.refresh()
    assert flow.topics()["eu"].target_partition_count == 3


async def test_a_topic_of_a_route_that_was_deleted_comes_back_only_when_a_record_takes_it(
    tmp_path: Path,
) -> None:
    flow = make_flow(tmp_path, ROUTER)
    flow.source.add_topic("orders")
    await flow.refresh()
    await _wants(flow, eu="orders", us="orders")
    await flow.refresh()
    gone = flow.topics()["eu"].target_topic_id
    await flow.target.delete_topics(["A.eu"])
    for _ in range(3):
        await flow.refresh()
    assert "A.eu" not in await flow.target.list_topics()
    assert is_gone(flow.passes.memory.entries["eu"])
    await routes_of(flow.config.flow, flow.target).put({"eu": StoredRoute("orders", gone)})
    # A plan, and a pass that creates no topics, leave it to the next one.
    await flow.commands.preview()
    await flow.refresh([Scope.CONFIGS])
    assert await flow.sync.has_new_routes()
    await flow.refresh()
    assert not await flow.sync.has_new_routes()
    assert (flow.topics()["eu"].target_partition_count, flow.topics()["eu"].target_topic_id != gone) == (
        1,
        True,
    )


async def test_a_route_that_a_broker_denies_once_is_seen_again_by_the_next_pass(tmp_path: Path) -> None:
    flow = make_flow(tmp_path, ROUTER)
    flow.source.add_topic("orders")
    await _wants(flow, eu="orders")
    await flow.refresh()
    before = flow.topics()["eu"]

    def deny(call: Call) -> None:
        if "A.eu" in call.result:
            call.result["A.eu"] = FatalKafkaError("no such topic", reason="TOPIC_UNKNOWN", code=3)

    undo = flow.target.intercept("describe_topics", deny, after=True)
    await flow.refresh()
    assert is_gone(flow.passes.memory.entries["eu"])
    undo()
    await flow.refresh()
    assert flow.topics()["eu"] == before


async def test_what_may_be_no_route_is_not_created(tmp_path: Path) -> None:
    flow = make_flow(tmp_path, ROUTER)
    for topic in ("orders", "users"):
        flow.source.add_topic(topic)
    await flow.refresh()
    refused = {"users": "orders", "checkpoints.internal": "orders", "__a": "orders", "heartbeats": "orders"}
    await _wants(flow, **refused, other="payroll", eu="orders")
    await flow.refresh()
    assert {name: each.routed_from for name, each in flow.topics().items()} == {
        "orders": "",
        "users": "",
        "eu": "orders",
    }
    assert set(await flow.target.list_topics()) == {
        "A.orders",
        "A.users",
        "A.eu",
        "mm2-configsync.A.internal",
    }


async def test_a_topic_of_the_source_with_the_name_of_a_route_is_not_copied_into_it(tmp_path: Path) -> None:
    flow = make_flow(tmp_path, ROUTER | {"A->B.topics": ".*"})
    flow.source.add_topic("orders", 2)
    await flow.refresh()
    await _wants(flow, eu="orders")
    await flow.refresh()
    flow.source.add_topic("eu", 5)
    await flow.refresh()
    assert (flow.topics()["eu"].routed_from, flow.topics()["eu"].partition_count) == ("orders", 2)


async def test_a_route_that_records_took_once_is_no_topic_that_the_source_has_deleted(tmp_path: Path) -> None:
    deletes = {"twinlog.sync.topic.deletes.enabled": "true", "twinlog.sync.topic.deletes.grace.seconds": "0"}
    flow = make_flow(tmp_path, ROUTER | deletes | {"A->B.topics": ".*"})
    flow.source.add_topic("orders")
    await flow.refresh()
    await _wants(flow, eu="orders")
    await flow.refresh()
    without = {"A->B.topics": ".*"} | deletes
    now = make_flow(tmp_path, without, source=flow.source, target=flow.target)
    for _ in range(3):
        await now.refresh()
        now.clock.advance(60)
    assert "A.eu" in await flow.target.list_topics()
    (told,) = await now.commands.explain("orders")
    assert told.rule.endswith("; records were routed to A.eu")
    # A topic of this name is one of the flow's.
    flow.source.add_topic("eu", 5)
    await now.refresh()
    assert (now.topics()["eu"].routed_from, now.topics()["eu"].target_partition_count) == ("", 5)


async def test_passes_that_fail_are_tried_again_after_their_back_off_and_not_with_each_look_at_routes(
    tmp_path: Path,
) -> None:
    flow = make_flow(tmp_path, ROUTER)
    await flow.refresh()
    await _wants(flow, eu="orders")
    failed: list[float] = []

    def fail(_call: Call) -> None:
        failed.append(asyncio.get_running_loop().time())
        if len(failed) == 3:
            flow.stop.set()
        raise TransientKafkaError("no answer in time", reason="KAFKA_TIMEOUT", code=7)

    flow.source.intercept("list_topics", fail)
    flow.restart(random=lambda: 1.0, backoff_seconds=60.0)
    await flow.sync.run(flow.stop)
    assert [round(later - sooner) for sooner, later in pairwise(failed)] == [60, 60]


async def test_a_flow_without_routers_reads_no_routes(tmp_path: Path) -> None:
    flow = make_flow(tmp_path, {"A->B.topics": "orders"})
    flow.source.add_topic("orders")
    await _wants(flow, eu="orders")
    await flow.refresh()
    assert flow.topics().keys() == {"orders"}


def test_who_may_read_a_topic_may_read_where_its_records_go() -> None:
    bindings = [acl("READ orders"), acl("READ or*"), acl("READ eu"), acl("READ users")]
    for mode in AclSyncMode:
        told = {
            each.source: [target.resource_name for target in each.targets]
            for each in translate_acls(
                bindings, rules(mode), topics=("orders", "users", "eu"), routes={"eu": "orders"}
            )
        }
        assert set(told[bindings[0]]) == {"A.orders", "A.eu"}
        assert set(told[bindings[1]]) == (set() if mode is AclSyncMode.MM2 else {"A.orders", "A.eu"})
        assert told[bindings[3]] == ["A.users"]
        assert "A.eu" not in told[bindings[2]]
