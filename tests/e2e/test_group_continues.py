"""README: a consumer group that stops on the source goes on with the target at its very next record."""

from e2e.conftest import Mirror
from twinlog.batches import Codec, NewRecord
from twinlog.clock import SystemClock
from twinlog.demo.failover import group_position, read_some
from twinlog.kafka.ports import NewTopic
from twinlog.model import TopicPartition
from twinlog.testing.brokers import eventually, unique_name
from twinlog.testing.records import write_batches

RECORDS = 400


async def test_a_group_continues_on_the_target(mirror: Mirror) -> None:
    topic, group = unique_name("e2e-group"), unique_name("app")
    remote = mirror.remote(topic)
    async with mirror.source() as source, mirror.target() as target:
        new = NewTopic(name=topic, partition_count=1, replication_factor=1)
        assert (await source.create_topics([new])) == {topic: None}
        now_ms = SystemClock().now_ms()
        for start in range(0, RECORDS, 20):
            records = [NewRecord(None, b"%d" % i, now_ms) for i in range(start, start + 20)]
            await write_batches(mirror.pair.a, topic, [(0, Codec.GZIP, records)], transactional_id=topic)
        on_a = await read_some(
            "A",
            mirror.pair.a.client_properties(),
            group=group,
            topic=topic,
            at_least=RECORDS // 2,
            max_polls=60,
        )
        assert on_a.records > 0

        async def translated() -> bool:
            return TopicPartition(remote, 0) in await group_position(target, group)

        await eventually(translated, 60)
        on_b = await read_some(
            "B", mirror.pair.b.client_properties(), group=group, topic=remote, at_least=RECORDS, max_polls=10
        )
    assert on_a.records + on_b.records == RECORDS, (on_a.records, on_b.records)
    if on_b.records:
        assert on_b.first[0][2] == b"%d" % on_a.records
