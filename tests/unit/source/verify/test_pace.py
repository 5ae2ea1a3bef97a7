"""How fast a side may be read, and how far a verification is."""

import asyncio

import pytest

from twinlog.comparison.model import Bounds, PartitionProof
from twinlog.testing.mirror_logs import SOURCE, TARGET
from twinlog.testing.virtual_time import run_in_virtual_time
from twinlog_source.verify.proving.reading import ReadPace
from twinlog_source.verify.request import ProgressBoard, VerifyProgress

SECONDS, READERS, FETCH_BYTES = 60, 8, 4 << 20


@pytest.mark.parametrize("limit", [50_000, 1_000_000, 100_000_000])
def test_partitions_together_read_no_faster_than_the_limit(limit: int) -> None:
    pace = ReadPace(limit)

    async def read_on() -> None:
        loop = asyncio.get_running_loop()
        while loop.time() < SECONDS:
            await pace.wait()
            pace.spend(pace.most_bytes(FETCH_BYTES))

    async def scenario() -> None:
        async with asyncio.TaskGroup() as group:
            for number in range(READERS):
                group.create_task(read_on(), name=f"reader {number}")

    run_in_virtual_time(scenario())
    # Those that begin at the same moment go a fetch beyond it each, and what is owed is waited for.
    beyond = (READERS + 1) * pace.most_bytes(FETCH_BYTES)
    assert 0.8 * limit * SECONDS - beyond <= pace.read_bytes <= limit * SECONDS + 2 * beyond


def test_without_a_limit_nobody_waits() -> None:
    pace = ReadPace(0)
    run_in_virtual_time(pace.wait())
    assert pace.most_bytes(FETCH_BYTES) == FETCH_BYTES


def bounds(start: int, goal: int) -> Bounds:
    return Bounds(
        source=SOURCE,
        target=TARGET,
        source_start=start,
        source_goal=goal,
        source_limit=goal,
        target_start=0,
        target_goal=goal,
        target_limit=goal,
        position=goal,
    )


def test_progress_counts_what_is_left_and_ends_at_all_of_it() -> None:
    told: list[VerifyProgress] = []
    board = ProgressBoard(on_progress=told.append)
    board.begin([bounds(40, 100), bounds(0, 30)])
    board.note(0, 10, 1_000)
    board.note(1, 50, 500)
    assert told[-1] == VerifyProgress(total_offsets=90, done_offsets=40, read_bytes=1_500)
    for number in range(2):
        proof = PartitionProof(
            source=SOURCE, target=TARGET, source_from=0, source_to=1, target_from=0, target_to=1, bytes=2_000
        )
        board.end(number, proof)
    assert told[-1] == VerifyProgress(total_offsets=90, done_offsets=90, read_bytes=4_000)
