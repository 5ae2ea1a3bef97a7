"""The rules that configsync has stored, read while it is away."""

import json

import pytest

from twinlog.errors import TransientKafkaError, WireFormatError
from twinlog.model import TopicPartition
from twinlog.service.feeds.stored_rules import stored_rules
from twinlog.testing.fakes.cluster import FakeCluster

TOPIC = "mm2-configsync.A.internal"


async def cluster_with(*records: tuple[bytes, bytes | None]) -> FakeCluster:
    cluster = FakeCluster("B")
    cluster.add_topic(TOPIC, configs={"cleanup.policy": "compact"})
    async with cluster.writer() as writer:
        for key, value in records:
            await writer.append(TopicPartition(TOPIC, 0), key=key, value=value)
    return cluster


def rules(values: dict[str, str], version: int = 1) -> tuple[bytes, bytes]:
    document = {"version": version, "revision": 3, "updated_at_ms": 1, "values": values}
    return b'["rules"]', json.dumps(document).encode()


async def test_the_newest_rules_count() -> None:
    cluster = await cluster_with(
        rules({"groups.exclude": "a"}),
        (b'["topic","orders"]', b"{}"),
        rules({"sync.group.offsets.enabled": "false"}),
    )
    assert await stored_rules(cluster, "A") == {"sync.group.offsets.enabled": "false"}


async def test_no_rules_are_none() -> None:
    assert await stored_rules(FakeCluster("B"), "A") == {}
    assert await stored_rules(await cluster_with(), "A") == {}
    gone = await cluster_with(rules({"groups.exclude": "a"}), (b'["rules"]', None))
    assert await stored_rules(gone, "A") == {}


@pytest.mark.parametrize(
    "value", [b"", b"no json", b"[]", b"{}", b"null", b'{"version":1,"values":[]}', rules({}, version=2)[1]]
)
async def test_rules_that_cannot_be_read_are_an_error(value: bytes) -> None:
    with pytest.raises(WireFormatError):
        await stored_rules(await cluster_with((b'["rules"]', value)), "A")


async def test_a_target_that_is_away_is_asked_again() -> None:
    cluster = await cluster_with()
    cluster.take_away()
    with pytest.raises(TransientKafkaError):
        await stored_rules(cluster, "A")
