"""Where a copy has the source's offsets, an offset is translated to itself, and not beyond the copy."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field

import pytest

from twinlog.api.source.v1 import source_service_pb2 as source_pb
from twinlog.comparison.sides import Chunk
from twinlog.model import TopicPartition
from twinlog.testing.fakes.cluster import FakeCluster
from twinlog_checkpoint.app import copy_state
from twinlog_checkpoint.translation.exact import LogSide
from twinlog_checkpoint.translation.log_sides import ComparedLog
from twinlog_checkpoint.translation.shared_copies import Equal, PreservedTranslator
from twinlog_checkpoint.translation.translation import SourcePosition, Translation, Verdict

P = TopicPartition("t", 0)
COPY = TopicPartition("A.t", 0)
ELSEWHERE = Translation(verdict=Verdict.FLOOR, downstream_offset=1)


class NoLog(ComparedLog):
    """Nothing of a log is read for equal offsets."""

    async def expect(self, partitions: Collection[TopicPartition]) -> None:
        raise AssertionError(f"{len(partitions)} partitions are about to be read")

    async def read(self, partition: TopicPartition, offset: int, *, max_bytes: int) -> Chunk:
        raise AssertionError("a log is read")


@dataclass(slots=True)
class Otherwise:
    asked: list[SourcePosition] = field(default_factory=list)

    async def translate(self, positions: Collection[SourcePosition]) -> Mapping[SourcePosition, Translation]:
        self.asked += positions
        return dict.fromkeys(positions, ELSEWHERE)


@dataclass(slots=True)
class Rig:
    """A copy of ten records, the first two of which are gone."""

    target: FakeCluster
    known: list[Mapping[TopicPartition, Equal]]
    """What the source service says, one answer after the other; the last one stays."""
    otherwise: Otherwise = field(default_factory=Otherwise)

    async def translate(self, *offsets: int) -> list[tuple[Verdict, int | None]]:
        async def equal_offsets() -> Mapping[TopicPartition, Equal]:
            return self.known.pop(0) if len(self.known) > 1 else self.known[0]

        translator = PreservedTranslator(
            equal_offsets=equal_offsets,
            there=LogSide(admin=self.target, log=NoLog(), unreadable=Verdict.TARGET_UNREADABLE),
            original=lambda partition: partition if partition.topic == "t" else None,
            counterpart=lambda partition: TopicPartition(f"A.{partition.topic}", partition.partition),
            otherwise=self.otherwise,
        )
        positions = [SourcePosition(partition=P, next_offset=offset) for offset in offsets]
        answers = await translator.translate(positions)
        return [(answers[each].verdict, answers[each].downstream_offset) for each in positions]


async def rig(*known: int | None, end: int = 0) -> Rig:
    target = FakeCluster("B")
    target.add_topic("A.t")
    async with target.writer() as writer:
        for _ in range(10):
            await writer.append(COPY, key=None, value=b"x")
    await target.delete_records({COPY: 2})
    return Rig(target, [{P: Equal(below, end)} for below in known])


async def test_the_offset_of_a_preserved_copy_is_the_sources() -> None:
    assert await (await rig(None)).translate(2, 7, 10) == [
        (Verdict.PRESERVED, 2),
        (Verdict.PRESERVED, 7),
        (Verdict.PRESERVED, 10),
    ]


async def test_an_answer_is_never_ahead_of_the_copy_nor_before_its_start() -> None:
    assert await (await rig(None)).translate(0, 11, 500) == [
        (Verdict.BEFORE_START, 2),
        (Verdict.UP_TO_DATE, 10),
        (Verdict.UP_TO_DATE, 10),
    ]


async def test_a_copy_that_is_shorter_than_it_was_gives_no_place() -> None:
    """It lost its tail, or was created again: its offsets are not those that the source service knows."""
    assert await (await rig(None, end=11)).translate(2, 500) == [(Verdict.NOT_READY, None)] * 2
    assert await (await rig(None, end=10)).translate(2) == [(Verdict.PRESERVED, 2)]


async def test_a_copy_that_became_translated_keeps_the_offsets_below() -> None:
    found = await rig(6)
    assert await found.translate(5, 6) == [(Verdict.PRESERVED, 5), (ELSEWHERE.verdict, 1)]
    assert [each.next_offset for each in found.otherwise.asked] == [6]


async def test_a_copy_that_becomes_translated_while_it_is_asked_about_is_aligned() -> None:
    """Its end may have been read after the first record with an offset of its own."""
    found = await rig(None, 4)
    assert await found.translate(3, 4) == [(Verdict.PRESERVED, 3), (ELSEWHERE.verdict, 1)]


async def test_without_a_word_of_the_source_service_copies_are_aligned() -> None:
    found = await rig(0)
    found.known = [{}]
    assert await found.translate(5) == [(ELSEWHERE.verdict, 1)]


@pytest.mark.parametrize(
    ("offsets", "since", "reason", "below"),
    [
        ("preserved", 7, "", None),
        ("translated", 0, "", 0),
        ("translated", 40, "FAULTED_ONE", 40),
        ("", None, "", 0),
        ("preserved", 7, "OWNED_ELSEWHERE", 0),
    ],
)
def test_what_the_source_service_says_of_the_offsets(
    offsets: str, since: int | None, reason: str, below: int | None
) -> None:
    status = source_pb.PartitionStatus(offsets=offsets, offsets_since=since, reason=reason)
    assert copy_state(status).equal_below == below
