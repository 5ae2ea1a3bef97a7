"""A plan says what it does not know."""

from pathlib import Path

import pytest

from twinlog.errors import FatalKafkaError, KafkaError, TransientKafkaError
from twinlog.testing.fakes.cluster import Call, FakeCluster
from twinlog_configsync.api.messages import plan_head_message
from twinlog_configsync.model.schedule import Scope
from unit.configsync.configsync_rig import ConfigSyncRig, make_flow

UNAUTHORIZED = FatalKafkaError("an ACL for the topic is missing", reason="TOPIC_UNAUTHORIZED", code=29)
SILENCE = TransientKafkaError("no answer", reason="KAFKA_TIMEOUT")
BOTH = [Scope.TOPICS, Scope.CONFIGS]


@pytest.fixture
def flow(tmp_path: Path) -> ConfigSyncRig:
    flow = make_flow(tmp_path)
    for name in ("orders", "users"):
        flow.source.add_topic(name)
    return flow


def hide(cluster: FakeCluster, operation: str, error: KafkaError, *names: str) -> None:
    def answer(call: Call) -> None:
        call.result.update({name: error for name in names if name in call.result})

    cluster.intercept(operation, answer, after=True)


async def problems(flow: ConfigSyncRig) -> list[tuple[str, str, str]]:
    plan, world = await flow.commands.preview(BOTH)
    assert plan.changes == ()
    told = plan_head_message(plan, world).problems
    return [(each.scope, each.reason, each.message) for each in told]


async def test_a_flow_that_was_read_has_no_problems_also_with_topics_that_are_gone(
    flow: ConfigSyncRig,
) -> None:
    await flow.refresh(BOTH)
    await flow.source.delete_topics(["users"])
    assert await problems(flow) == []
    await flow.refresh(BOTH)
    assert await problems(flow) == []


@pytest.mark.parametrize("error", [UNAUTHORIZED, SILENCE])
async def test_topics_that_a_cluster_does_not_show_are_named(flow: ConfigSyncRig, error: KafkaError) -> None:
    await flow.refresh(BOTH)
    hide(flow.source, "describe_topics", error, "orders")
    hide(flow.target, "describe_topics", error, "A.orders", "A.users")
    assert await problems(flow) == [
        ("topics", error.reason, f"topics A.users, orders cannot be read: {error}")
    ]


async def test_configs_that_a_cluster_does_not_show_are_named(flow: ConfigSyncRig) -> None:
    await flow.refresh(BOTH)
    flow.source.add_topic("waits")
    hide(flow.source, "describe_topic_configs", UNAUTHORIZED, "orders", "waits")
    hide(flow.target, "describe_topic_configs", SILENCE, "A.users")
    ((scope, reason, message),) = await problems(flow)
    assert (scope, reason) == ("configs", "KAFKA_TIMEOUT")
    assert message == "configs of A.users, orders, waits cannot be read: no answer"


async def test_of_many_topics_some_are_named(flow: ConfigSyncRig) -> None:
    names = [f"t{number}" for number in range(7)]
    for name in names:
        flow.source.add_topic(name)
    await flow.refresh(BOTH)
    hide(flow.source, "describe_topics", SILENCE, *names)
    ((_, _, message),) = await problems(flow)
    assert message == "topics t0, t1, t2, t3, t4 and 2 more cannot be read: no answer"
