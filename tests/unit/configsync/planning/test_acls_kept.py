"""Rights on a copy stay while the source does not say that its topic is gone, then while the copy exists."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from twinlog.errors import FatalKafkaError, KafkaError, TransientKafkaError
from twinlog.testing.fakes.cluster import Call, FakeCluster
from twinlog_configsync.model.schedule import Scope
from unit.configsync.configsync_rig import READ_ORDERS, ConfigSyncRig, make_flow

ACLS = [Scope.TOPICS, Scope.ACLS]
LITERAL = replace(READ_ORDERS, principal="User:carol")
PREFIX = replace(READ_ORDERS, resource_name="o", pattern_type="PREFIXED", operation="WRITE")
EVERY = replace(READ_ORDERS, resource_name="*", principal="User:bob")
IDENTITY = "org.apache.kafka.connect.mirror.IdentityReplicationPolicy"
DEFAULT = "org.apache.kafka.connect.mirror.DefaultReplicationPolicy"

UNAUTHORIZED = FatalKafkaError("an ACL for the topic is missing", reason="TOPIC_UNAUTHORIZED", code=29)
SILENCE = TransientKafkaError("no answer", reason="KAFKA_TIMEOUT")


def hide(cluster: FakeCluster, error: KafkaError, *names: str) -> Callable[[], None]:
    """Let the cluster answer this about the topics; returns what ends it."""

    def answer(call: Call) -> None:
        call.result.update({name: error for name in names if name in call.result})

    return cluster.intercept("describe_topics", answer, after=True)


def flow_with(directory: Path, **settings: str) -> ConfigSyncRig:
    flow = make_flow(directory, {"twinlog.sync.topic.acls.mode": "full", **settings})
    flow.source.acls |= {LITERAL, PREFIX, EVERY}
    for name in ("orders", "offers"):
        flow.source.add_topic(name)
    return flow


def on(flow: ConfigSyncRig, topic: str) -> list[tuple[str, str]]:
    return sorted((acl.principal, acl.operation) for acl in flow.target.acls if acl.resource_name == topic)


FROM_PATTERNS = [("User:alice", "WRITE"), ("User:bob", "READ")]
OF_ORDERS = [*FROM_PATTERNS, ("User:carol", "READ")]


@pytest.mark.parametrize("policy", [DEFAULT, IDENTITY])
async def test_a_deleted_topic_keeps_its_rights_as_long_as_its_copy_exists(
    tmp_path: Path, policy: str
) -> None:
    """After a failover applications write to the copy, and somebody tidies up the former source."""
    flow = flow_with(tmp_path, **{"replication.policy.class": policy})
    copy = "orders" if policy == IDENTITY else "A.orders"
    await flow.refresh(ACLS)
    await flow.source.delete_topics(["orders"])
    for _ in range(2):
        await flow.refresh(ACLS)
        assert on(flow, copy) == OF_ORDERS
    flow.restart()
    end = hide(flow.target, UNAUTHORIZED, copy)
    await flow.refresh([Scope.ACLS])
    assert on(flow, copy) == OF_ORDERS
    end()
    flow.source.acls.discard(PREFIX)
    await flow.refresh([Scope.ACLS])
    assert on(flow, copy) == [("User:bob", "READ"), ("User:carol", "READ")], "a removal is followed"
    flow.source.acls.discard(LITERAL)
    await flow.target.delete_topics([copy])
    await flow.refresh([Scope.ACLS])
    assert on(flow, copy) == []


async def test_another_topic_in_the_place_of_a_copy_gets_no_rights(tmp_path: Path) -> None:
    flow = flow_with(tmp_path, **{"replication.policy.class": IDENTITY})
    await flow.refresh(ACLS)
    await flow.source.delete_topics(["orders"])
    await flow.refresh(ACLS)
    flow.target.add_topic("orders")
    await flow.refresh(ACLS)
    assert on(flow, "orders") == []
    hide(flow.target, SILENCE, "orders")
    await flow.refresh(ACLS)
    assert on(flow, "orders") == []


@pytest.mark.parametrize("error", [UNAUTHORIZED, SILENCE])
async def test_a_name_that_only_a_rule_has_grants_nothing_on_the_targets_own_topic(
    tmp_path: Path, error: KafkaError
) -> None:
    """Where names are kept, the target's topic of that name is no copy."""
    settings = {"replication.policy.class": IDENTITY, "topics": "orders,offers,ledger"}
    flow = flow_with(tmp_path, **settings)
    flow.target.add_topic("ledger")
    end = hide(flow.source, error, "ledger")
    for _ in range(2):
        await flow.refresh(ACLS)
        assert on(flow, "ledger") == []
    end()
    for _ in range(2):
        await flow.refresh(ACLS)
        assert on(flow, "ledger") == []


async def test_rights_that_were_found_on_the_copy_of_a_hidden_topic_are_still_wanted(tmp_path: Path) -> None:
    """Another flow into this target may have created them, and deletes only what no flow wants."""
    flow = flow_with(tmp_path)
    found = replace(EVERY, resource_name="A.offers")
    flow.target.acls.add(found)
    await flow.refresh(ACLS)
    hide(flow.source, SILENCE, "offers")
    assert [entry.source for entry in await flow.commands.acls() if entry.target == found] == [EVERY]
