"""What every `LogWriter` does."""

import asyncio
import time

import pytest

from contract.cluster.cluster_rig import ClusterRig, append_values, new_topic, read_all
from twinlog.errors import FatalKafkaError, StateError
from twinlog.model import Headers, TimestampType, TopicPartition

HEADERS: Headers = (
    ("twice", b"1"),
    ("twice", b"2"),
    ("null", None),
    ("empty", b""),
    ("", b"no name"),
    ("grüße", bytes(range(256))),
)

_NEWEST_TIMESTAMP = "message.timestamp.after.max.ms"
_OTHER_TIMESTAMPS = "message.timestamp.difference.max.ms"
"""Before Kafka 3.6."""


class LogWriterContract:
    async def test_null_and_empty_are_kept_apart(self, rig: ClusterRig) -> None:
        partition = TopicPartition(await new_topic(rig.cluster, "null"), 0)
        pairs = [(b"k", b"v"), (b"", b""), (None, b"v"), (b"k", None), (None, None)]
        async with rig.cluster.writer() as writer:
            for number, (key, value) in enumerate(pairs):
                assert await writer.append(partition, key=key, value=value) == number
        read = await read_all(rig.cluster, partition)
        assert [(record.key, record.value) for record in read] == pairs

    async def test_headers_and_timestamps_are_kept(self, rig: ClusterRig) -> None:
        partition = TopicPartition(await new_topic(rig.cluster, "headers"), 0)
        async with rig.cluster.writer() as writer:
            await writer.append(partition, key=b"k", value=b"v", timestamp_ms=1234, headers=HEADERS)
            await writer.append(partition, key=b"k", value=b"v", timestamp_ms=0)
        first, second = await read_all(rig.cluster, partition)
        assert first.headers == HEADERS
        assert (first.timestamp_ms, first.timestamp_type) == (1234, TimestampType.CREATE_TIME)
        assert (second.timestamp_ms, second.headers) == (0, ())

    async def test_without_a_timestamp_it_is_now(self, rig: ClusterRig) -> None:
        partition = TopicPartition(await new_topic(rig.cluster, "now"), 0)
        before_ms = time.time_ns() // 1_000_000
        await append_values(rig.cluster, partition, [b"v"])
        (record,) = await read_all(rig.cluster, partition)
        assert before_ms <= record.timestamp_ms <= time.time_ns() // 1_000_000

    async def test_log_append_time_is_the_brokers(self, rig: ClusterRig) -> None:
        topic = await new_topic(
            rig.cluster, "append-time", configs={"message.timestamp.type": "LogAppendTime"}
        )
        partition = TopicPartition(topic, 0)
        async with rig.cluster.writer() as writer:
            await writer.append(partition, key=b"k", value=b"v", timestamp_ms=1)
        (record,) = await read_all(rig.cluster, partition)
        assert record.timestamp_type is TimestampType.LOG_APPEND_TIME
        assert record.timestamp_ms > 1

    async def test_records_are_sent_in_call_order(self, rig: ClusterRig) -> None:
        topic = await new_topic(rig.cluster, "order", partition_count=2)
        partitions = [TopicPartition(topic, 0), TopicPartition(topic, 1)]
        async with rig.cluster.writer() as writer, asyncio.TaskGroup() as group:
            sent = [
                group.create_task(
                    writer.append(partitions[number % 2], key=None, value=b"%d" % number),
                    name=f"append-{number}",
                )
                for number in range(400)
            ]
        assert [task.result() for task in sent] == [number // 2 for number in range(400)]
        for remainder, partition in enumerate(partitions):
            read = await read_all(rig.cluster, partition)
            assert [record.value for record in read] == [b"%d" % one for one in range(remainder, 400, 2)]

    async def test_each_producer_introduces_itself_before_it_writes(self, rig: ClusterRig) -> None:
        partition = TopicPartition(await new_topic(rig.cluster, "introduced"), 0)
        for _ in range(2):
            async with (
                rig.cluster.writer(introduce=lambda it: (partition, b"I am", b"%d" % it)) as writer,
                asyncio.TaskGroup() as group,
            ):
                for number in range(3):
                    group.create_task(writer.append(partition, key=None, value=b"x"), name=f"append-{number}")
        read = await read_all(rig.cluster, partition)
        for first, *others in (read[:4], read[4:]):
            assert (first.key, first.value) == (b"I am", b"%d" % first.producer_id)
            assert [(each.value, each.producer_id) for each in others] == [(b"x", first.producer_id)] * 3
        assert read[0].producer_id != read[4].producer_id

    async def test_a_refused_record_stops_no_other(self, rig: ClusterRig) -> None:
        topic = await new_topic(
            rig.cluster,
            "refuses",
            configs={
                "cleanup.policy": "compact",
                "max.message.bytes": "2000",
                _NEWEST_TIMESTAMP if rig.release.name >= "3.6" else _OTHER_TIMESTAMPS: "3600000",
            },
        )
        partition = TopicPartition(topic, 0)
        tomorrow_ms = time.time_ns() // 1_000_000 + 86_400_000
        async with rig.cluster.writer() as writer:
            assert await writer.append(partition, key=b"k", value=b"0") == 0
            for reason, key, value, timestamp_ms in (
                ("RECORD_TOO_LARGE", b"k", b"x" * 3000, None),
                ("RECORD_INVALID", None, b"no key", None),
                ("TIMESTAMP_REFUSED", b"k", b"v", tomorrow_ms),
            ):
                with pytest.raises(FatalKafkaError) as raised:
                    await writer.append(partition, key=key, value=value, timestamp_ms=timestamp_ms)
                assert raised.value.reason == reason
                await writer.append(partition, key=b"k", value=b"after")
        assert [record.offset for record in await read_all(rig.cluster, partition)] == [0, 1, 2, 3]

    async def test_a_header_name_that_is_not_utf8_is_refused(self, rig: ClusterRig) -> None:
        partition = TopicPartition(await new_topic(rig.cluster, "bad-name"), 0)
        async with rig.cluster.writer() as writer:
            with pytest.raises(FatalKafkaError) as raised:
                await writer.append(partition, key=b"k", value=b"v", headers=(("\udcff", b""),))
        assert raised.value.reason == "RECORD_INVALID"

    async def test_an_unknown_topic_or_partition_is_refused_and_not_created(self, rig: ClusterRig) -> None:
        topic = await new_topic(rig.cluster, "only-one")
        async with rig.cluster.writer() as writer:
            for partition in (TopicPartition("no-such-topic", 0), TopicPartition(topic, 1)):
                with pytest.raises(FatalKafkaError) as raised:
                    await writer.append(partition, key=b"k", value=b"v")
                assert raised.value.reason == "TOPIC_UNKNOWN"
        assert "no-such-topic" not in await rig.cluster.list_topics()

    async def test_a_partition_added_later_is_found(self, rig: ClusterRig) -> None:
        topic = await new_topic(rig.cluster, "added")
        async with rig.cluster.writer() as writer, rig.cluster.reader() as reader:
            await writer.append(TopicPartition(topic, 0), key=b"k", value=b"v")
            await reader.fetch(TopicPartition(topic, 0), 0, max_wait_seconds=0)
            await rig.cluster.create_partitions({topic: 2})
            assert await writer.append(TopicPartition(topic, 1), key=b"k", value=b"v") == 0
            fetched = await reader.fetch(TopicPartition(topic, 1), 0, max_wait_seconds=1)
            assert len(fetched.records) == 1

    async def test_a_closed_writer_says_so(self, rig: ClusterRig) -> None:
        writer = rig.cluster.writer()
        async with writer:
            pass
        with pytest.raises(StateError) as raised:
            await writer.append(TopicPartition("any", 0), key=None, value=None)
        assert raised.value.reason == "CLIENT_CLOSED"
