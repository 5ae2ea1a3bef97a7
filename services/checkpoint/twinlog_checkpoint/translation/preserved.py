"""Translation where the copy has the source's offsets: the same number, bounded by what has been copied.

Invariant: an answer is never ahead of the copy. Whether a copy has the source's offsets is asked again after
its end was read: what lay below that end was written while it had them.
"""

from collections.abc import Awaitable, Callable, Collection, Mapping
from dataclasses import dataclass

from twinlog.model import TopicPartition
from twinlog_checkpoint.translation.exact import AT_END, LogSide
from twinlog_checkpoint.translation.log_bounds import LogBounds, log_bounds
from twinlog_checkpoint.translation.translation import SourcePosition, Translation, Translator, Verdict

EqualOffsets = Callable[[], Awaitable[Mapping[TopicPartition, int | None]]]
"""By source partition: below which offset the copy has the source's offsets; None = all of it has."""

_SAME = "the copy has the source's offsets"


@dataclass(frozen=True, slots=True, kw_only=True)
class PreservedTranslator:
    """Answers for copies with the source's offsets, and asks `otherwise` about the rest."""

    equal_offsets: EqualOffsets
    """Never raises: nothing is known while the source service does not answer."""
    there: LogSide
    """Where offsets are translated to."""
    original: Callable[[TopicPartition], TopicPartition | None]
    """The source partition of a position's partition; None when the flow does not copy it."""
    counterpart: Callable[[TopicPartition], TopicPartition]
    """The partition there; asked for those that have an original."""
    otherwise: Translator

    async def translate(self, positions: Collection[SourcePosition]) -> Mapping[SourcePosition, Translation]:
        preserved = self._preserved(positions, await self.equal_offsets() if positions else {})
        answers: dict[SourcePosition, Translation] = {}
        if preserved:
            targets = {self.counterpart(position.partition) for position in preserved}
            bounds = await log_bounds(self.there.admin, targets, self.there.end)
            for position in self._preserved(preserved, await self.equal_offsets()):
                there = bounds.get(self.counterpart(position.partition))
                if there is not None:
                    answers[position] = same_offset(position.next_offset, there)
        rest = [position for position in positions if position not in answers]
        return {**answers, **(await self.otherwise.translate(rest) if rest else {})}

    def _preserved(
        self, positions: Collection[SourcePosition], known: Mapping[TopicPartition, int | None]
    ) -> list[SourcePosition]:
        found = []
        for position in positions:
            source = self.original(position.partition)
            below = 0 if source is None else known.get(source, 0)
            if below is None or position.next_offset < below:
                found.append(position)
        return found


def same_offset(offset: int, there: LogBounds) -> Translation:
    """The answer for an offset that is the same there.

    >>> same_offset(5, LogBounds(start=0, end=9)).downstream_offset
    5
    >>> same_offset(5, LogBounds(start=0, end=3)).verdict.value
    'UP_TO_DATE'
    """
    if offset > there.end:
        return Translation(verdict=Verdict.UP_TO_DATE, downstream_offset=there.end, message=AT_END)
    if offset < there.start:
        message = f"the log there begins at {there.start}"
        return Translation(verdict=Verdict.BEFORE_START, downstream_offset=there.start, message=message)
    return Translation(verdict=Verdict.PRESERVED, downstream_offset=offset, message=_SAME)
