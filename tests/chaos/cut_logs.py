"""Logs that lose their tail, as after an unclean leader election: cut on disk while their broker is down."""

import random
from collections.abc import Iterator, Sequence
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
    data = cluster.log_file(1).parent / "data"
    cluster.stop_broker(1)
    try:
        return {
            partition: _lose_tail(data / f"{partition.topic}-{partition.partition}", dice)
            for partition in partitions
        }
    finally:
        cluster.restart_broker(1)


def _lose_tail(directory: Path, dice: random.Random) -> int:
    (segment,) = directory.glob("*.log")
    content = segment.read_bytes()
    ends = list(_quiet_ends(content))
    if len(ends) < 2:
        return 0
    size, next_offset = ends[dice.randrange(int(len(ends) * (1 - LONGEST_CUT)), len(ends) - 1)]
    lost = read_batches(content)[-1].header.next_offset - next_offset
    segment.write_bytes(content[:size])
    # The broker makes them again from the log; those that are there know what was cut.
    for stale in (*directory.glob("*index"), *directory.glob("*.snapshot")):
        stale.unlink()
    return lost


def _quiet_ends(content: bytes) -> Iterator[tuple[int, int]]:
    """Where the log could end: size in bytes and next offset, wherever no transaction is open.

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
            yield size, header.next_offset
