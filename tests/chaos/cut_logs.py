"""Logs that lose their tail, as after an unclean leader election: cut on disk while their broker is down."""

import random
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from twinlog.batches import end_marker, read_batches
from twinlog.local.blocking_cluster import BlockingCluster
from twinlog.model import TopicPartition

LONGEST_CUT = 0.6
"""Share of the batches of a log that it loses at most."""


def lose_tails(
    cluster: BlockingCluster, partitions: Sequence[TopicPartition], dice: random.Random
) -> dict[TopicPartition, int]:
    """Stop the only broker, cut a random tail off each of these logs, start the broker again. Blocks.

    Returns how many offsets each has lost. All of a log must be in one segment.
    """
    with _stopped(cluster) as data:
        return {
            partition: _lose_tail(data / f"{partition.topic}-{partition.partition}", dice)
            for partition in partitions
        }


@contextmanager
def _stopped(cluster: BlockingCluster) -> Iterator[Path]:
    """The only broker is down meanwhile; where its logs are."""
    cluster.stop_broker(1)
    try:
        yield cluster.log_file(1).parent / "data"
    finally:
        cluster.restart_broker(1)


def _lose_tail(directory: Path, dice: random.Random) -> int:
    (segment,) = directory.glob("*.log")
    ends = list(_quiet_ends(segment.read_bytes()))
    if len(ends) < 2:
        return 0
    return _cut(directory, ends[dice.randrange(int(len(ends) * (1 - LONGEST_CUT)), len(ends) - 1)])


def _cut(directory: Path, size_bytes: int) -> int:
    """Returns how many offsets are lost."""
    (segment,) = directory.glob("*.log")
    content = segment.read_bytes()
    segment.write_bytes(content[:size_bytes])
    # The broker makes them again from the log; those that are there know what was cut.
    for stale in (*directory.glob("*index"), *directory.glob("*.snapshot")):
        stale.unlink()
    lost = read_batches(content[size_bytes:])
    return lost[-1].header.next_offset - lost[0].header.base_offset if lost else 0


def _quiet_ends(content: bytes) -> Iterator[int]:
    """Where the log could end, as a size in bytes: wherever no transaction is open.

    One that were open for ever would only test that consumers of this log wait.
    """
    size = 0
    open_producers: set[int] = set()
    for batch in read_batches(content):
        size += len(batch.data)
        header = batch.header
        if header.is_control:
            if end_marker(batch) is not None:
                open_producers.discard(header.producer_id)
        elif header.is_transactional:
            open_producers.add(header.producer_id)
        if not open_producers:
            yield size
