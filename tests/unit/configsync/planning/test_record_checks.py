"""Records that somebody else wrote into the registry are not believed."""

from dataclasses import replace
from pathlib import Path

import pytest

from twinlog.kafka.ports import AclBinding, QuotaEntity
from twinlog.model import TopicPartition
from twinlog.policy import DefaultReplicationPolicy
from twinlog.service.feeds.replicated_topics import ReplicatedTopic, TopicState
from twinlog.write_blocks import fence_of, holder_of
from twinlog_configsync.flow.known_flow import check_records
from twinlog_configsync.model.records import (
    AclRecord,
    QuotaRecord,
    RecordKey,
    RecordValue,
    StoredKind,
    acl_key,
    encode_key,
    encode_value,
    quota_key,
)
from twinlog_configsync.model.schedule import Scope
from unit.configsync.configsync_rig import READ_ORDERS, REGISTRY, ConfigSyncRig, make_flow

COPY = replace(READ_ORDERS, resource_name="A.orders")
GUARD = replace(COPY, resource_name="ledger", permission="DENY", principal="User:mallory")
"""An ACL of the target's own, which nobody but its operator made."""


async def forge(flow: ConfigSyncRig, key: RecordKey, value: RecordValue) -> None:
    async with flow.target.writer() as writer:
        await writer.append(TopicPartition(REGISTRY, 0), key=encode_key(key), value=encode_value(value))


@pytest.fixture
def flow(tmp_path: Path) -> ConfigSyncRig:
    flow = make_flow(
        tmp_path,
        {
            "twinlog.sync.topic.acls.mode": "full",
            "twinlog.sync.topic.deletes.enabled": "true",
            "twinlog.sync.topic.deletes.grace.seconds": "0",
        },
    )
    flow.source.add_topic("orders")
    return flow


async def test_an_acl_that_the_flow_cannot_have_made_is_not_deleted(flow: ConfigSyncRig) -> None:
    await flow.refresh()
    flow.target.acls.add(GUARD)
    await forge(flow, acl_key(GUARD), AclRecord(binding=GUARD))
    flow.restart()
    await flow.refresh([Scope.TOPICS, Scope.ACLS])
    assert flow.target.acls == {GUARD}


async def test_a_topic_that_is_no_copy_is_not_deleted_in_the_place_of_one(flow: ConfigSyncRig) -> None:
    await flow.refresh()
    flow.target.add_topic("ledger")
    forged = ReplicatedTopic(
        source_topic="gone",
        target_topic="ledger",
        partition_count=1,
        target_partition_count=1,
        target_topic_id=flow.target.topic_id("ledger"),
        state=TopicState.DELETED_AT_SOURCE,
        deleted_at_ms=flow.clock.now_ms() - 2 * 24 * 3_600_000,
    )
    await forge(flow, RecordKey(StoredKind.TOPIC, "gone"), forged)
    flow.restart()
    for _ in range(3):
        await flow.refresh()
    assert "ledger" in flow.target.topics
    (told,) = [entry for name, entry in flow.sync.passes.memory.entries.items() if name == "gone"]
    assert told.target_topic == "A.gone"


def refused(flow: ConfigSyncRig, key: RecordKey, value: RecordValue) -> str:
    checked = check_records({key: value}, flow.sync.passes.rules)
    assert (key in checked.records) is not (key in checked.refused)
    return checked.refused.get(key, "")


@pytest.mark.parametrize(
    ("binding", "why"),
    [
        (COPY, ""),
        (replace(COPY, resource_name="A.", pattern_type="PREFIXED"), ""),
        (replace(COPY, resource_name="A.*"), ""),
        (replace(COPY, resource_type="GROUP", resource_name="billing"), ""),
        (replace(COPY, resource_type="TRANSACTIONAL_ID", resource_name="tx"), ""),
        (READ_ORDERS, "its topic is not a copy of this flow"),
        (replace(COPY, resource_name="*"), "its topic is not a copy of this flow"),
        (replace(COPY, resource_name="A.checkpoints.internal"), "its topic is not a copy of this flow"),
        (
            replace(COPY, resource_type="GROUP", resource_name="twinlog-source-A-B"),
            "it belongs to Twinlog's own services",
        ),
        (
            replace(COPY, resource_type="CLUSTER", resource_name="kafka-cluster"),
            "no flow copies ACLs of CLUSTER",
        ),
        (
            replace(COPY, principal="User:*", operation="WRITE", permission="DENY"),
            "it is a fence of a failover, which no flow copies",
        ),
        (
            holder_of(fence_of("A.orders"), "A->C id"),
            "it is a fence of a failover, which no flow copies",
        ),
    ],
)
def test_an_acl_record_counts_if_the_flow_could_have_written_it(
    flow: ConfigSyncRig, binding: AclBinding, why: str
) -> None:
    assert refused(flow, acl_key(binding), AclRecord(binding=binding)) == why


def test_a_record_must_be_about_what_its_key_says(flow: ConfigSyncRig) -> None:
    entry = ReplicatedTopic(source_topic="orders", target_topic="A.orders", partition_count=1)
    address, user = QuotaEntity((("ip", "10.0.0.1"),)), QuotaEntity((("user", "alice"),))
    assert not refused(flow, RecordKey(StoredKind.TOPIC, "orders"), entry)
    assert refused(flow, RecordKey(StoredKind.TOPIC, "users"), entry)
    assert refused(flow, acl_key(GUARD), AclRecord(binding=COPY))
    assert not refused(flow, quota_key(user), QuotaRecord(entity=user, values={}))
    assert refused(flow, quota_key(user), QuotaRecord(entity=address, values={}))
    assert refused(flow, quota_key(address), QuotaRecord(entity=address, values={}))


class Suffix(DefaultReplicationPolicy):
    """orders of A is orders.from-A."""

    def format_remote_topic(self, source: str, topic: str) -> str:
        return f"{topic}.from-{source}"

    def topic_source(self, topic: str) -> str | None:
        name, mark, source = topic.rpartition(".from-")
        return source if mark and name else None

    def upstream_topic(self, topic: str) -> str | None:
        return topic.rpartition(".from-")[0] or None


@pytest.mark.parametrize(
    ("topic", "is_copy"), [("orders.from-A", True), ("orders.from-B", False), ("A.orders", False)]
)
def test_the_policy_says_which_topic_is_a_copy(flow: ConfigSyncRig, topic: str, is_copy: bool) -> None:
    """Otherwise an ACL that the source revokes would stay on the target after a restart."""
    rules = flow.passes.rules
    rules = replace(rules, selector=replace(rules.selector, policy=Suffix()))
    binding = replace(COPY, resource_name=topic)
    checked = check_records({acl_key(binding): AclRecord(binding=binding)}, rules)
    assert (not checked.refused) is is_copy
