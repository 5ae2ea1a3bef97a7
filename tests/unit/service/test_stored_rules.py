"""The rules that configsync has stored, read while it is away."""

import json
from contextlib import suppress

import pytest

from twinlog.errors import FatalKafkaError, TransientKafkaError, WireFormatError
from twinlog.model import Flow, TopicPartition
from twinlog.service.feeds.registry import stored_rules
from twinlog.service.feeds.rules_record import NO_RULES
from twinlog.testing.fakes.cluster import Call, FakeCluster

FLOW = Flow("A", "B")
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


def show_nothing(call: Call) -> None:
    """The answer of a leader that does not know its high watermark yet."""
    for name, value in {"records": [], "next_offset": 0, "high_watermark": 0}.items():
        object.__setattr__(call.result, name, value)


async def test_the_newest_rules_count() -> None:
    cluster = await cluster_with(
        rules({"groups.exclude": "a"}),
        (b'["topic","orders"]', b"{}"),
        rules({"sync.group.offsets.enabled": "false"}),
    )
    assert (await stored_rules(cluster, FLOW)).values == {"sync.group.offsets.enabled": "false"}


@pytest.mark.parametrize("key", [b'["topic", 5]', b'["rules", null]', b'[["rules"]]', b'[{"a": 1}]'])
async def test_keys_that_configsync_does_not_write_are_refused_or_left_out(key: bytes) -> None:
    """Anybody with the right to write may put them there: no service ends because of them."""
    cluster = await cluster_with(rules({"groups.exclude": "a"}), (key, b"{}"))
    with suppress(WireFormatError):
        assert (await stored_rules(cluster, FLOW)).values == {"groups.exclude": "a"}


async def test_no_rules_are_none() -> None:
    assert await stored_rules(FakeCluster("B"), FLOW) == NO_RULES
    assert await stored_rules(await cluster_with(), FLOW) == NO_RULES
    gone = await cluster_with(rules({"groups.exclude": "a"}), (b'["rules"]', None))
    assert await stored_rules(gone, FLOW) == NO_RULES


@pytest.mark.parametrize(
    "value", [b"", b"no json", b"[]", b"{}", b"null", b'{"version":1,"values":[]}', rules({}, version=2)[1]]
)
async def test_rules_that_cannot_be_read_are_an_error(value: bytes) -> None:
    with pytest.raises(WireFormatError):
        await stored_rules(await cluster_with((b'["rules"]', value)), FLOW)


async def test_a_new_leader_that_shows_less_for_a_moment_is_asked_again() -> None:
    """Nothing is known then: that there are no changed rules would be wrong."""
    cluster = await cluster_with(rules({"groups.exclude": "a"}), (b'["topic","orders"]', b"{}"))
    undo = cluster.intercept("fetch", show_nothing, after=True)
    with pytest.raises(TransientKafkaError, match="ends at 2") as shown:
        await stored_rules(cluster, FLOW)
    assert shown.value.reason == "KAFKA_UNAVAILABLE"
    undo()
    assert (await stored_rules(cluster, FLOW)).values == {"groups.exclude": "a"}


async def test_a_new_leader_that_ends_before_the_position_is_asked_again() -> None:
    cluster = await cluster_with(rules({"groups.exclude": "a"}))

    def refuse(call: Call) -> None:
        raise FatalKafkaError("the log ends before", reason="OFFSET_OUT_OF_RANGE", code=1)

    undo = cluster.intercept("fetch", refuse)
    with pytest.raises(TransientKafkaError):
        await stored_rules(cluster, FLOW)
    undo()
    assert (await stored_rules(cluster, FLOW)).values == {"groups.exclude": "a"}


async def test_a_target_that_is_away_is_asked_again() -> None:
    cluster = await cluster_with()
    cluster.take_away()
    with pytest.raises(TransientKafkaError):
        await stored_rules(cluster, FLOW)
