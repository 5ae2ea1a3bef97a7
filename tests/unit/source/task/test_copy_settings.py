"""Twinlog's own settings of the copy, from the file to what becomes of fetched bytes."""

import os

from twinlog.batches import Codec, DecodedRecord, Prepared, prepare
from twinlog.config import OnDataLoss
from twinlog.kafka.clients import fetch_options
from twinlog.model import TopicPartition
from twinlog.testing.source_batches import source_batch
from twinlog_source.config import source_flows
from twinlog_source.driver.stream.task_settings import TaskSettings
from twinlog_source.partitions.orders import TaskAssignment, TaskSetup
from twinlog_source.task.settings import copy_settings
from unit.config.config_files import load_more


def record(offset: int, value: bytes) -> DecodedRecord:
    return DecodedRecord(offset, 1_700_000_000_000, b"k", value, ())


def told(*lines: str) -> TaskSetup:
    """What a task gets over the wire."""
    (flow,) = source_flows(load_more(*lines))
    return TaskSettings(flow=flow).prepare(1, 0, positions_partition_count=25)


def copied(*lines: str, data: bytes, compression_type: str = "producer", backlog: bool = False) -> Prepared:
    setup = told(*lines)
    check_crcs = fetch_options(setup.clients["source_consumer"], alias="A").check_crcs
    settings = copy_settings(setup, "A", check_crcs=check_crcs)
    assigned = TaskAssignment(
        partition=TopicPartition("t", 0), target_topic="t", position=0, compression_type=compression_type
    )
    policy = settings.policy(assigned)
    return prepare(data, wanted_offset=0, policy=policy, backlog=backlog)


def small_batches(count: int) -> bytes:
    return b"".join(source_batch([record(offset, b"small")]) for offset in range(count))


def test_a_backlog_of_small_batches_is_packed_below_the_configured_size() -> None:
    data = small_batches(20)
    assert len(copied(data=data, backlog=True).batches) == 1
    assert len(copied("twinlog.coalesce.below.bytes = 0", data=data, backlog=True).batches) == 20


def test_a_batch_is_opened_up_to_the_configured_size() -> None:
    data = source_batch([record(0, bytes(3 << 20))], codec=Codec.ZSTD)
    assert copied(data=data, compression_type="gzip").fault is None
    limited = copied(
        "twinlog.batch.max.uncompressed.bytes = 1048576", data=data, compression_type="gzip"
    ).fault
    assert limited is not None
    assert limited.reason == "BATCH_TOO_LARGE"


def test_repacked_batches_are_compressed_as_hard_as_configured() -> None:
    words = [os.urandom(6).hex().encode() for _ in range(200)]
    data = source_batch([record(0, b" ".join(words[number * number % 200] for number in range(20_000)))])
    sizes = [
        sum(batch.size_bytes for batch in copied(line, data=data, compression_type="zstd").batches)
        for line in ("twinlog.recode.compression.level = -7", "twinlog.recode.compression.level = 19")
    ]
    assert sizes[1] < sizes[0]


def test_damage_is_looked_for_unless_check_crcs_is_off() -> None:
    data = bytearray(source_batch([record(0, b"x" * 100)]))
    data[-3] ^= 1
    assert copied(data=bytes(data)).fault is not None
    assert copied("A.consumer.check.crcs = false", data=bytes(data)).fault is None


def test_the_lease_of_a_task_is_as_long_as_configured() -> None:
    assert told("twinlog.lease.seconds = 4.5").lease_seconds == 4.5


def test_a_loss_stops_the_partition_only_where_that_is_configured() -> None:
    def of(*lines: str) -> bool:
        return copy_settings(told(*lines), "A", check_crcs=True).fail_on_data_loss

    assert not of()
    assert of(f"twinlog.on.data.loss = {OnDataLoss.FAIL.value}")
