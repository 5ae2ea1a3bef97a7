"""What is asked and told of a copy whose kind is decided."""

from dataclasses import replace

from twinlog.model import TopicPartition
from twinlog.testing.fakes.cluster import FakeCluster
from twinlog_source.driver.state import FlowState
from twinlog_source.log.facts import CopyFact
from twinlog_source.partitions.events import Assigned
from twinlog_source.partitions.orders import SkippedRange, TaskAssignment
from unit.source.flow_rig import P, reported
from unit.source.target_probe import FakeTargetProbe

AUTO = "twinlog.offsets = auto"


PRESERVED = "twinlog.offsets = preserved"


TRANSLATED = "twinlog.offsets = translated"


NOT_EXACT = "B.exactly.once.source.support = disabled"


COPY = TopicPartition("A.t", 0)


def probe_of(state: FlowState) -> FakeTargetProbe:
    assert isinstance(state.probe, FakeTargetProbe)
    return state.probe


def copy_of(state: FlowState) -> CopyFact:
    """What is in memory, and on the log as well."""
    copy = state.table.rows[P].copy
    assert copy is not None
    assert state.positions.control.copies[P] == copy
    return copy


def kind(state: FlowState) -> tuple[bool, int, str, int, int]:
    copy = copy_of(state)
    return copy.preserved, copy.since, copy.reason, copy.skip_from, copy.skip_to


async def ends(state: FlowState, *, position: int, until: int, reason: str, tell: bool = True) -> None:
    """As its task does it: the position and the end of the copy are on the log, then they are told."""
    fact = state.table.rows[P].copy
    assert fact is not None
    await state.journal.position(P, position)
    await state.journal.record(replace(fact, preserved=False, since=until, reason=reason))
    if tell:
        words = {"position": position, "reason": reason, "preserved_until": until, "source_end": 50}
        reported(state, needs_translation=True, **words)


def blocker(state: FlowState) -> str:
    found = state.table.rows[P].blocker
    return "" if found is None else found.reason


def assigned(state: FlowState) -> TaskAssignment:
    return state.assignment(P)


def waits(state: FlowState) -> tuple[float | None, float | None]:
    """As the next task is told: how long ago former tasks lost the partition, and those among them that were
    not told of the range that is left out."""
    state.table.apply(Assigned(partition=P, slot=0), state.clock.monotonic())
    told = assigned(state).preserved
    assert told is not None
    return told.former_task_seconds, told.skip_former_task_seconds


def says(
    state: FlowState, *, position: int = 9, skip: tuple[int, int] = (0, 0), at_rest: bool = False
) -> None:
    reported(state, position=position, skipped=SkippedRange(first=skip[0], end=skip[1]), at_rest=at_rest)


async def leaves_out(state: FlowState, first: int, end: int) -> None:
    """As its task does it: on the log, then told."""
    await state.journal.record(replace(copy_of(state), skip_from=first, skip_to=end))
    says(state, skip=(first, end))


async def write(cluster: FakeCluster, partition: TopicPartition, values: list[int]) -> None:
    """Records that differ by these numbers, in value and time."""
    async with cluster.writer() as writer:
        for value in values:
            await writer.append(
                partition, key=b"k", value=b"%d" % value, timestamp_ms=1_000 + value, headers=(("h", b"v"),)
            )


def told(state: FlowState) -> tuple[int, list[tuple[int, int, int]]]:
    """How many records in the copy are others', and where, with their producer."""
    row = state.table.rows[P]
    writes = [(each.from_offset, each.to_offset, each.producer_id) for each in row.foreign_writes]
    return row.foreign_records, writes
