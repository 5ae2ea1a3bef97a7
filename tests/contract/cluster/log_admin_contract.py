"""What every `LogAdmin` does."""

import os

from contract.cluster.cluster_rig import ClusterRig, Ending, append_values, failure, new_topic
from twinlog.kafka.ports import EpochEnd, LogEnd, OffsetSpec
from twinlog.model import TopicPartition
from twinlog.testing.brokers import eventually


class LogAdminContract:
    async def test_a_log_has_a_start_and_an_end(self, rig: ClusterRig) -> None:
        topic = await new_topic(rig.cluster, "ends", partition_count=2)
        full, empty = TopicPartition(topic, 0), TopicPartition(topic, 1)
        await append_values(rig.cluster, full, [b"0", b"1", b"2"])
        for spec, expected in (
            (OffsetSpec.EARLIEST, {full: 0, empty: 0}),
            (OffsetSpec.LATEST, {full: 3, empty: 0}),
            (OffsetSpec.LAST_STABLE, {full: 3, empty: 0}),
        ):
            assert await rig.cluster.list_offsets(spec, [full, empty]) == expected

    async def test_a_log_ends_under_a_leader(self, rig: ClusterRig) -> None:
        topic = await new_topic(rig.cluster, "led")
        partition, unknown = TopicPartition(topic, 0), TopicPartition("no-such-topic", 0)
        await append_values(rig.cluster, partition, [b"0", b"1", b"2"])
        ends = await rig.cluster.log_ends([partition, unknown])
        end = ends[partition]
        assert isinstance(end, LogEnd)
        assert end.offset == 3
        assert failure(ends[unknown]).reason == "TOPIC_UNKNOWN"
        ended = await rig.cluster.epoch_ends({partition: end.leader_epoch, unknown: 0})
        assert ended[partition] == EpochEnd(end.leader_epoch, 3)
        assert failure(ended[unknown]).reason == "TOPIC_UNKNOWN"

    async def test_an_open_transaction_holds_the_last_stable_offset(self, rig: ClusterRig) -> None:
        topic = await new_topic(rig.cluster, "unstable")
        partition = TopicPartition(topic, 0)
        await append_values(rig.cluster, partition, [b"0"])
        async with rig.open_transaction(partition, [b"1", b"2"]):
            assert await _offset(rig, OffsetSpec.LAST_STABLE, partition) == 1
            assert await _offset(rig, OffsetSpec.LATEST, partition) == 3
        await rig.transaction(partition, [b"4"], Ending.COMMIT)
        assert await _offset(rig, OffsetSpec.LAST_STABLE, partition) == 6

    async def test_records_below_an_offset_are_deleted(self, rig: ClusterRig) -> None:
        topic = await new_topic(rig.cluster, "shortened")
        partition, unknown = TopicPartition(topic, 0), TopicPartition("no-such-topic", 0)
        await append_values(rig.cluster, partition, [b"0", b"1", b"2"])
        deleted = await rig.cluster.delete_records({partition: 2, unknown: 2})
        assert deleted[partition] is None
        assert failure(deleted[unknown]).reason == "TOPIC_UNKNOWN"
        assert await _offset(rig, OffsetSpec.EARLIEST, partition) == 2
        beyond = await rig.cluster.delete_records({partition: 9})
        assert failure(beyond[partition]).reason == "OFFSET_OUT_OF_RANGE"

    async def test_offsets_are_found_by_time(self, rig: ClusterRig) -> None:
        topic = await new_topic(rig.cluster, "times", partition_count=2)
        partition, empty = TopicPartition(topic, 0), TopicPartition(topic, 1)
        async with rig.cluster.writer() as writer:
            for timestamp_ms in (1_000, 2_000, 3_000):
                await writer.append(partition, key=b"k", value=b"v", timestamp_ms=timestamp_ms)
        cluster = rig.cluster
        assert await cluster.offsets_for_times({partition: 2_000, empty: 0}) == {partition: 1, empty: None}
        assert await cluster.offsets_for_times({partition: 2_001}) == {partition: 2}
        assert await cluster.offsets_for_times({partition: 3_001}) == {partition: None}
        assert await cluster.offsets_for_times({partition: 0}) == {partition: 0}

    async def test_unknown_partitions_are_errors_that_hide_no_other(self, rig: ClusterRig) -> None:
        topic = await new_topic(rig.cluster, "known-log")
        known = TopicPartition(topic, 0)
        unknown = (TopicPartition("no-such-topic", 0), TopicPartition(topic, 5))
        listed = await rig.cluster.list_offsets(OffsetSpec.LATEST, [known, *unknown])
        found = await rig.cluster.offsets_for_times(dict.fromkeys((known, *unknown), 0))
        assert (listed[known], found[known]) == (0, None)
        for partition in unknown:
            assert failure(listed[partition]).reason == "TOPIC_UNKNOWN"
            assert failure(found[partition]).reason == "TOPIC_UNKNOWN"

    async def test_an_unknown_partition_asked_for_alone_is_as_unknown(self, rig: ClusterRig) -> None:
        topic = await new_topic(rig.cluster, "alone")
        for partition in (TopicPartition("no-such-topic", 0), TopicPartition(topic, 5)):
            listed = await rig.cluster.list_offsets(OffsetSpec.EARLIEST, [partition])
            assert failure(listed[partition]).reason == "TOPIC_UNKNOWN"
            found = await rig.cluster.offsets_for_times({partition: 1})
            assert failure(found[partition]).reason == "TOPIC_UNKNOWN"
            deleted = await rig.cluster.delete_records({partition: 1})
            assert failure(deleted[partition]).reason == "TOPIC_UNKNOWN"

    async def test_nothing_asked_is_nothing_answered(self, rig: ClusterRig) -> None:
        assert await rig.cluster.list_offsets(OffsetSpec.LATEST, []) == {}
        assert await rig.cluster.offsets_for_times({}) == {}
        assert await rig.cluster.delete_records({}) == {}
        assert await rig.cluster.log_ends([]) == {}
        assert await rig.cluster.epoch_ends({}) == {}


class RetentionContract:
    """On brokers that look for old segments every second."""

    async def test_the_start_of_a_log_moves_with_whole_segments(self, rig: ClusterRig) -> None:
        much = TopicPartition(
            await new_topic(
                rig.cluster, "much", configs={"segment.bytes": str(1 << 20), "retention.bytes": "700000"}
            ),
            0,
        )
        old = TopicPartition(await new_topic(rig.cluster, "old", configs={"retention.ms": "1"}), 0)
        await append_values(rig.cluster, much, [os.urandom(600_000) for _ in range(3)])
        await append_values(rig.cluster, old, [b"a", b"b"])

        async def starts() -> bool:
            starts = await rig.cluster.list_offsets(OffsetSpec.EARLIEST, [much, old])
            return starts == {much: 1, old: 2}

        assert await eventually(starts)
        assert await rig.cluster.list_offsets(OffsetSpec.LATEST, [much, old]) == {much: 3, old: 2}
        assert await append_values(rig.cluster, old, [b"c"]) == [2]


async def _offset(rig: ClusterRig, spec: OffsetSpec, partition: TopicPartition) -> object:
    return (await rig.cluster.list_offsets(spec, [partition]))[partition]
