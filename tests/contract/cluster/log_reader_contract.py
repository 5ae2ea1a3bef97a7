"""What every `LogReader` does."""

import asyncio

import pytest

from contract.cluster.cluster_rig import ClusterRig, Ending, append_values, new_topic, read_all
from twinlog.errors import FatalKafkaError, StateError
from twinlog.kafka.ports import FetchedRecords
from twinlog.model import TopicPartition


class LogReaderContract:
    async def test_records_are_read_from_any_offset(self, rig: ClusterRig) -> None:
        partition = TopicPartition(await new_topic(rig.cluster, "from-any"), 0)
        await append_values(rig.cluster, partition, [b"0", b"1", b"2"])
        async with rig.cluster.reader() as reader:
            for offset in range(3):
                fetched = await reader.fetch(partition, offset, max_wait_seconds=0)
                assert [record.value for record in fetched.records] == [b"0", b"1", b"2"][offset:]
                assert [record.offset for record in fetched.records] == [0, 1, 2][offset:]
                assert (fetched.next_offset, fetched.log_start_offset, fetched.high_watermark) == (3, 0, 3)

    async def test_at_the_end_there_is_nothing_yet(self, rig: ClusterRig) -> None:
        partition = TopicPartition(await new_topic(rig.cluster, "at-the-end"), 0)
        await append_values(rig.cluster, partition, [b"0"])
        loop = asyncio.get_running_loop()
        async with rig.cluster.reader() as reader:
            await reader.fetch(partition, 1, max_wait_seconds=0)
            started = loop.time()
            fetched = await reader.fetch(partition, 1, max_wait_seconds=0.15)
            assert 0.14 <= loop.time() - started < 30
        assert fetched == FetchedRecords(records=[], next_offset=1, log_start_offset=0, high_watermark=1)

    async def test_a_waiting_reader_gets_what_is_written(self, rig: ClusterRig) -> None:
        partition = TopicPartition(await new_topic(rig.cluster, "waiting"), 0)
        loop = asyncio.get_running_loop()
        started = loop.time()
        async with rig.cluster.reader() as reader, asyncio.TaskGroup() as group:
            waiting = group.create_task(reader.fetch(partition, 0, max_wait_seconds=60), name="waits")
            group.create_task(append_values(rig.cluster, partition, [b"now"]), name="writes")
        assert [record.value for record in waiting.result().records] == [b"now"]
        assert loop.time() - started < 50

    async def test_one_reader_waits_for_several_partitions_at_once(self, rig: ClusterRig) -> None:
        topic = await new_topic(rig.cluster, "several", partition_count=6)
        partitions = [TopicPartition(topic, number) for number in range(6)]
        loop = asyncio.get_running_loop()
        async with rig.cluster.reader() as reader:
            await reader.fetch(partitions[0], 0, max_wait_seconds=0)
            started = loop.time()
            async with asyncio.TaskGroup() as group:
                for partition in partitions:
                    group.create_task(
                        reader.fetch(partition, 0, max_wait_seconds=2.0), name=f"waits-{partition}"
                    )
            assert loop.time() - started < 11

    async def test_offsets_outside_the_log_are_refused(self, rig: ClusterRig) -> None:
        partition = TopicPartition(await new_topic(rig.cluster, "outside"), 0)
        await append_values(rig.cluster, partition, [b"0", b"1", b"2"])
        await rig.cluster.delete_records({partition: 1})
        async with rig.cluster.reader() as reader:
            for offset in (0, 4):
                with pytest.raises(FatalKafkaError) as raised:
                    await reader.fetch(partition, offset, max_wait_seconds=0.1)
                assert (raised.value.reason, raised.value.code) == ("OFFSET_OUT_OF_RANGE", 1)
            fetched = await reader.fetch(partition, 1, max_wait_seconds=0)
            assert (fetched.log_start_offset, fetched.next_offset) == (1, 3)

    async def test_an_unknown_topic_or_partition_is_refused_and_not_created(self, rig: ClusterRig) -> None:
        topic = await new_topic(rig.cluster, "one-partition")
        async with rig.cluster.reader() as reader:
            for partition in (TopicPartition("no-such-topic", 0), TopicPartition(topic, 1)):
                with pytest.raises(FatalKafkaError) as raised:
                    await reader.fetch(partition, 0, max_wait_seconds=0.1)
                assert raised.value.reason == "TOPIC_UNKNOWN"
        assert "no-such-topic" not in await rig.cluster.list_topics()

    async def test_aborted_records_are_passed_and_not_seen(self, rig: ClusterRig) -> None:
        partition = TopicPartition(await new_topic(rig.cluster, "aborted"), 0)
        await append_values(rig.cluster, partition, [b"0"])
        await rig.transaction(partition, [b"1", b"2"], Ending.ABORT)
        await rig.transaction(partition, [b"4"], Ending.COMMIT)
        seen = [(record.offset, record.value) for record in await read_all(rig.cluster, partition)]
        assert seen == [(0, b"0"), (4, b"4")]
        every = await read_all(rig.cluster, partition, read_committed=False)
        assert [record.offset for record in every] == [0, 1, 2, 4]

    async def test_a_reader_advances_over_a_tail_of_markers(self, rig: ClusterRig) -> None:
        partition = TopicPartition(await new_topic(rig.cluster, "marker"), 0)
        await rig.transaction(partition, [b"0"], Ending.ABORT)
        async with rig.cluster.reader() as reader:
            for start in (0, 1):
                offset = start
                while offset < 2:
                    fetched = await reader.fetch(partition, offset, max_wait_seconds=5)
                    assert not fetched.records
                    assert offset < fetched.next_offset <= fetched.high_watermark
                    offset = fetched.next_offset
            assert (offset, fetched.high_watermark) == (2, 2)

    async def test_an_open_transaction_hides_what_follows_it(self, rig: ClusterRig) -> None:
        partition = TopicPartition(await new_topic(rig.cluster, "open"), 0)
        await append_values(rig.cluster, partition, [b"0"])
        async with (
            rig.open_transaction(partition, [b"1"]),
            rig.cluster.reader() as committed,
            rig.cluster.reader(read_committed=False) as uncommitted,
        ):
            await append_values(rig.cluster, partition, [b"2"])
            fetched = await committed.fetch(partition, 0, max_wait_seconds=0)
            assert [record.value for record in fetched.records] == [b"0"]
            assert (fetched.next_offset, fetched.high_watermark) == (1, 1)
            fetched = await uncommitted.fetch(partition, 0, max_wait_seconds=0)
            assert [record.value for record in fetched.records] == [b"0", b"1", b"2"]
            assert (fetched.next_offset, fetched.high_watermark) == (3, 3)

    async def test_a_read_is_limited_in_bytes_and_goes_on_where_it_ended(self, rig: ClusterRig) -> None:
        partition = TopicPartition(await new_topic(rig.cluster, "limited"), 0)
        values = [bytes([number]) * 1000 for number in range(10)]
        await append_values(rig.cluster, partition, values)
        offset, read, rounds = 0, [], 0
        async with rig.cluster.reader() as reader:
            while offset < 10:
                fetched = await reader.fetch(partition, offset, max_wait_seconds=0, max_bytes=3000)
                assert fetched.next_offset > offset
                read += [record.value for record in fetched.records]
                offset = fetched.next_offset
                rounds += 1
        assert read == values
        assert rounds > 2

    async def test_a_record_above_the_limit_still_comes(self, rig: ClusterRig) -> None:
        partition = TopicPartition(await new_topic(rig.cluster, "above"), 0)
        await append_values(rig.cluster, partition, [b"x" * 100_000])
        async with rig.cluster.reader() as reader:
            fetched = await reader.fetch(partition, 0, max_wait_seconds=0, max_bytes=10)
        assert [len(record.value or b"") for record in fetched.records] == [100_000]

    async def test_a_closed_reader_says_so(self, rig: ClusterRig) -> None:
        reader = rig.cluster.reader()
        async with reader:
            pass
        with pytest.raises(StateError) as raised:
            await reader.fetch(TopicPartition("any", 0), 0, max_wait_seconds=0)
        assert raised.value.reason == "CLIENT_CLOSED"
