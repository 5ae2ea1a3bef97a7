"""Translates each committed offset, or tells why it has no translation."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from twinlog.kafka.reasons import KafkaReason
from twinlog.model import Flow
from twinlog_checkpoint.groups.candidates import Candidate
from twinlog_checkpoint.groups.progress import unreadable_verdict
from twinlog_checkpoint.groups.topic_choice import TopicChoice
from twinlog_checkpoint.translation.sync_tail import SyncTail
from twinlog_checkpoint.translation.translation import (
    SourcePosition,
    Translation,
    Translator,
    Verdict,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdicts:
    flow: Flow
    topics: TopicChoice
    tail: SyncTail
    translator: Translator

    async def of(self, candidates: Iterable[Candidate]) -> Mapping[SourcePosition, Translation]:
        """Return a verdict for each position. Topics that are not copied are never translated."""
        positions = {candidate.position for candidate in candidates}
        verdicts: dict[SourcePosition, Translation] = {}
        for position in positions:
            known = self._without_translation(position)
            if known is not None:
                verdicts[position] = known
        answers = await self.translator.translate(positions - verdicts.keys())
        for position, answer in answers.items():
            verdicts[position] = self._explained(position, answer)
        return verdicts

    def _without_translation(self, position: SourcePosition) -> Translation | None:
        rule = self.topics.refusal(position.partition.topic)
        if rule is not None:
            return Translation(verdict=Verdict.NOT_REPLICATED, downstream_offset=None, message=rule)
        if self.tail.store.read_to_end or self.tail.blocker is None:
            return None
        missing = self.tail.blocker.reason == KafkaReason.TOPIC_UNKNOWN
        return Translation(
            verdict=Verdict.NO_SYNC if missing else unreadable_verdict(self.flow, self.tail.blocker),
            downstream_offset=None,
            message=self.tail.problem,
        )

    def _explained(self, position: SourcePosition, answer: Translation) -> Translation:
        """Replace NO_SYNC by the rule that excludes the topic, if there is one."""
        if answer.verdict is not Verdict.NO_SYNC:
            return answer
        rule = self.topics.why_never_copied(position.partition.topic)
        if rule is None:
            return answer
        return Translation(verdict=Verdict.NOT_REPLICATED, downstream_offset=None, message=rule)
