"""Translation where a topic is copied both ways under the same name: both logs have the records of both
clusters, in different orders, so no offset of one log has its place in the other.

An answer is never ahead for either origin: what the group has not read of the cluster's own records lies
behind the one bound, and of those that came from the other cluster behind the other; the lower one counts.
Records between the two are read again, as are those behind their offset syncs.

A group that has read the whole log has read everything that was copied to it. It continues where the flow
back stands: what lies before that came from there, or is copied.
"""

from collections.abc import Awaitable, Callable, Collection, Mapping
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from twinlog.clock import Clock
from twinlog.errors import KafkaError
from twinlog.kafka.ports import OffsetSpec, TopicAdmin, TopicDescription
from twinlog.model import TopicPartition
from twinlog.wire import TopicIds
from twinlog_checkpoint.translation.exact import AT_END, Bounds, LogSide
from twinlog_checkpoint.translation.log_sides import bounds_or_errors
from twinlog_checkpoint.translation.translation import (
    FloorRule,
    LogBounds,
    SourcePosition,
    Translation,
    Translator,
    Verdict,
    past_end,
    without_floor,
)

SETTLED_SECONDS = 10.0
"""The offset syncs of what was copied this long ago are known."""
_BOTH = "the topic is copied both ways"
_NOT_TOLD = (
    f"{_BOTH}: there is no offset sync of one way, and its flow has not told for {SETTLED_SECONDS:g} s how"
    " far it has copied (twinlog status)"
)
_NOT_READ = (
    f"{_BOTH}, and the offset syncs of the flow back cannot be read here: grant READ on"
    " mm2-offset-syncs.*.internal, or put both flows into one file"
)


class Copied(NamedTuple):
    """A partition, as its flow says."""

    position: int
    end: int | None
    """Of what the flow has written to the copy; 0 = nothing: it skips what came from there. None = not
    known: what a killed task wrote last may have lost its syncs."""
    topic_ids: TopicIds | None
    """Of the topics that it knows."""
    is_preserved: bool = False
    """The copy has the offsets of its source, so nobody else has written to it."""

    @property
    def kept(self) -> int:
        """Up to here the copy has only what came from its source. One that ends behind the position has more,
        and its flow is about to notice that somebody else has written to it."""
        end = self.end or 0
        return end if self.is_preserved and end <= self.position else 0


class BothFlows(NamedTuple):
    """What each says of a partition; None = nothing about these topics."""

    out: Copied | None
    """From here to there."""
    back: Copied | None

    def reversed(self) -> "BothFlows":
        return BothFlows(self.back, self.out)


async def topic_ids_now(
    source: TopicAdmin, target: TopicAdmin, copies: Mapping[str, str]
) -> Mapping[str, TopicIds]:
    """The ids that topics of the source, and their `copies`, have now; "" where nobody tells. Raises
    KafkaError.

    What is known of a topic and its copy says nothing of another one that was created under its name since.
    """
    here = await source.describe_topics(copies) if copies else {}
    there = await target.describe_topics(copies.values()) if copies else {}
    return {topic: TopicIds(_id_of(here[topic]), _id_of(there[copy])) for topic, copy in copies.items()}


def _id_of(described: TopicDescription | KafkaError) -> str:
    return "" if isinstance(described, KafkaError) else described.topic_id


class _Stand(NamedTuple):
    at: float
    end: int
    """Of the log there."""
    copied: int
    """Up to here the log there was copied back."""


@dataclass(slots=True)
class _Stands:
    """Where the log there stood, and how far it was copied, now and a while ago."""

    settled: _Stand | None = None
    newest: _Stand | None = None

    def note(self, stand: _Stand) -> None:
        if self.newest is None or stand.at - self.newest.at >= SETTLED_SECONDS:
            self.settled, self.newest = self.newest, stand


@dataclass(slots=True, kw_only=True)
class BothWaysTranslator:
    """Answers for topics that are copied both ways, and asks `otherwise` about the rest."""

    is_both_ways: Callable[[TopicPartition], bool]
    """Of a partition here."""
    look: Callable[[], Awaitable[None]]
    """Learn which topics are. Raises KafkaError."""
    present: Callable[[Collection[str]], Awaitable[Mapping[str, TopicIds]]]
    """The ids that topics here, and those there, have now. Raises KafkaError."""
    here: LogSide
    there: LogSide
    counterpart: Callable[[TopicPartition], TopicPartition]
    floors: Callable[[TopicIds], tuple[FloorRule, FloorRule] | None]
    """By the syncs of the flow from here to there, and of the flow back, as far as they are of the topics
    with these ids; None = the latter are not known."""
    told: Callable[[], Awaitable[Mapping[TopicPartition, Copied]]]
    """How far the flow from here to there has copied the partitions here, as far as known. Never raises."""
    told_back: Callable[[], Awaitable[Mapping[TopicPartition, Copied]]]
    """The same of the flow from there to here."""
    otherwise: Translator
    clock: Clock
    _stands: dict[tuple[TopicPartition, TopicIds], _Stands] = field(default_factory=dict)

    async def translate(self, positions: Collection[SourcePosition]) -> Mapping[SourcePosition, Translation]:
        if positions:
            await self.look()
        merged = [position for position in positions if self.is_both_ways(position.partition)]
        answers = await self._merged(merged) if merged else {}
        rest = [position for position in positions if position not in answers]
        return {**answers, **(await self.otherwise.translate(rest) if rest else {})}

    async def _merged(self, positions: Collection[SourcePosition]) -> dict[SourcePosition, Translation]:
        partitions = {position.partition for position in positions}
        # What is learned after this is of the topics with these ids, or says of which it is.
        present = await self.present({partition.topic for partition in partitions})
        # The ends there and the positions come first: what is written here later is not counted as read.
        counterparts = {self.counterpart(each) for each in partitions}
        there = await bounds_or_errors(self.there.admin, counterparts, OffsetSpec.LAST_STABLE)
        out, back = await self.told(), await self.told_back()
        # Also what lies behind an open transaction: records were copied to there that nobody has read.
        here = await bounds_or_errors(self.here.admin, partitions, OffsetSpec.LATEST)
        answers: dict[SourcePosition, Translation] = {}
        for position in positions:
            other = self.counterpart(position.partition)
            log, copy = here.get(position.partition), there.get(other)
            if not isinstance(log, LogBounds) or not isinstance(copy, LogBounds):
                unread = self.there.unread(copy) or self.here.unread(log)
                answers[position] = unread or without_floor("the topic is not visible on both clusters")
                continue
            ids = present[position.partition.topic]
            flows = BothFlows(_of(ids, out.get(position.partition)), _of(ids.reversed(), back.get(other)))
            stands = self._stands.setdefault((position.partition, ids), _Stands())
            if flows.back is not None:
                stands.note(_Stand(self.clock.monotonic(), copy.end, flows.back.position))
            answer = self._one(position, (log, copy), flows, self.floors(ids), stands.settled)
            answers[position] = replace(answer, topic_ids=ids)
        return answers

    def _one(
        self,
        position: SourcePosition,
        bounds: Bounds,
        flows: BothFlows,
        floors: tuple[FloorRule, FloorRule] | None,
        settled: _Stand | None,
    ) -> Translation:
        here, there = bounds
        if position.next_offset > here.end:
            return past_end(here.end)
        # A log that ends before what was written to it was created again, and gets all of that once more.
        if flows.back is not None and position.next_offset == here.end >= (flows.back.end or 0):
            offset = min(flows.back.position, there.end)
            # What was copied from here lies there behind it, too.
            again = min(position.next_offset, there.end - there.begin(offset))
            return _told(Verdict.UP_TO_DATE, offset, there, f"{AT_END}{_again(again)}")
        if floors is None:
            return without_floor(_NOT_READ)
        out = self._bound(floors[0], position, there, flows, settled and settled.end)
        back = self._bound(floors[1], position, there, flows.reversed(), settled and settled.copied)
        for each in (out, back):
            if each.downstream_offset is None:
                return each
        offset = min(out.downstream_offset or 0, back.downstream_offset or 0)
        if offset > there.end:
            return without_floor(f"{_BOTH}: it would be {offset}, but the log there ends at {there.end}")
        again = _read_again((out, back), position.next_offset, there, there.begin(offset))
        return _told(Verdict.FLOOR, offset, there, f"{_BOTH}: {out.message}; {back.message}{_again(again)}")

    def _bound(
        self,
        rule: FloorRule,
        position: SourcePosition,
        there: LogBounds,
        flows: BothFlows,
        settled: int | None,
    ) -> Translation:
        """By the syncs of the flow out; where it has copied no record, by how far the log there was looked
        at; where the syncs are younger, or were lost, from the first record on."""
        answer = rule.translate_one(position)
        if answer.verdict is Verdict.TOO_OLD:
            return Translation(
                verdict=Verdict.FLOOR,
                downstream_offset=there.start,
                message=f"{answer.message}: from the start",
                between=position.next_offset,
            )
        if answer.verdict is not Verdict.NO_SYNC:
            return answer
        # A copy that keeps the offsets has only what came from its source. An empty one says nothing: it is
        # preserved until somebody writes.
        kept = 0 if flows.back is None else flows.back.kept
        nothing_until = settled if flows.out is not None and flows.out.end == 0 else None
        if kept or nothing_until is not None:
            message, bound = "nothing was copied that way", max(kept, nothing_until or 0)
            return Translation(verdict=Verdict.FLOOR, downstream_offset=bound, message=message)
        if settled is None or flows.out is None:
            return without_floor(_NOT_TOLD)
        message = "offset syncs of what was copied that way may be lost: from the start"
        return Translation(
            verdict=Verdict.FLOOR,
            downstream_offset=there.start,
            message=message,
            between=position.next_offset,
        )


def _read_again(bounds: Collection[Translation], read: int, there: LogBounds, begin: int) -> int:
    """At most so many of the first `read` records here lie there from `begin` on, each once.

    What came one way lies there below its bound, or here behind its offset sync; where nothing came that way,
    there at or above the bound.
    """
    below_or_above = 0
    for bound in bounds:
        offset = max(bound.downstream_offset or 0, begin)
        below_or_above += there.end - offset if bound.between is None else offset - begin
    behind = max(bound.between or 0 for bound in bounds)
    return min(read, there.end - begin, below_or_above + behind)


def _again(count: int) -> str:
    return f": at most {count} records are read again" if count else ""


def _told(verdict: Verdict, offset: int, there: LogBounds, message: str) -> Translation:
    return Translation(verdict=verdict, downstream_offset=max(offset, there.start), message=message)


def _of(ids: TopicIds, copied: Copied | None) -> Copied | None:
    """What a flow says of these very topics."""
    return copied if copied is not None and copied.topic_ids == ids else None
