"""Keeps proven ranges in a directory, so that a verification can continue after it was killed.

One file for each flow with one JSON document per line; the last one of a partition counts. A range only holds
for topics with the same ids; a difference ends it.
"""

import contextlib
import json
import os
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import IO, Any, Self

import structlog

from twinlog.comparison.compare import Comparison
from twinlog.comparison.model import Bounds, NotCompared, NotComparedReason, PartitionProof, Side
from twinlog.comparison.runs import merged_ranges
from twinlog.errors import ConfigError, KafkaError
from twinlog.kafka.ports import EpochEnd, LogAdmin, LogEnd
from twinlog.model import TopicPartition
from twinlog_source.verify.gathering.topics import TopicPair
from twinlog_source.verify.request import VerifyRequest, range_key

log = structlog.get_logger(__name__)

_NOTED_AFTER_OFFSETS = 50_000
_NOTED_AFTER_BYTES = 32 << 20
"""After this many bytes of both sides the progress is noted, because records may be large."""
_MOST_LEFT_OUT = 100
"""The most ranges that are kept for a partition."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ProvenRange:
    """Everything from the beginning of both sides up to here is equal."""

    source_from: int
    target_from: int
    source_to: int
    target_to: int
    records: int
    unopened_records: int
    superseded_records: int = 0
    read_committed: bool = True
    """The isolation level with which the source was read."""
    offsets_promised: bool = False
    cuts: tuple[int, ...] = ()
    """Where the source's log had been truncated by then. After another truncation its offsets mean other
    records."""
    same_offsets: bool = True
    timestamps_compared: bool = True
    equal_until: int = 0
    """The source offset behind the last equal record."""
    left_out: tuple[tuple[str, int, int, str, str], ...] = ()
    """What was not compared, and may be left out: side, offsets, reason, detail."""
    leader_epoch: int = -1
    """Of the source's leader before its records were compared; -1 = unknown."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BegunProof:
    """What is left to compare of a partition, and what was proven before."""

    bounds: Bounds
    before: ProvenRange | None
    cuts: tuple[int, ...] = ()
    """Where the source's log was truncated."""

    def completed(self, proof: PartitionProof) -> PartitionProof:
        """The proof of the whole range, up to the end of this one."""
        if self.before is None:
            return proof
        proof.source_from, proof.target_from = self.before.source_from, self.before.target_from
        proof.records += self.before.records
        proof.unopened_records += self.before.unopened_records
        proof.superseded_records += self.before.superseded_records
        proof.same_offsets &= self.before.same_offsets
        proof.timestamps_compared &= self.before.timestamps_compared
        before = [
            NotCompared(
                side=Side(side),
                from_offset=begin,
                to_offset=end,
                reason=reason,
                detail=detail,
                is_harmless=True,
            )
            for side, begin, end, reason, detail in self.before.left_out
        ]
        proof.not_compared = merged_ranges([*before, *proof.not_compared])
        proof.source_hash = proof.target_hash = ""  # These belong to the range that was left.
        return proof


@dataclass(slots=True, kw_only=True)
class ProvenRanges:
    file: Path | None
    topic_ids: Mapping[str, tuple[str, str]]
    read_committed: bool = True
    ranges: dict[TopicPartition, ProvenRange] = field(default_factory=dict)
    _noted: dict[TopicPartition, tuple[int, int]] = field(default_factory=dict)
    """The source offset and the number of bytes of the newest note."""
    memory: dict[str, str] | None = None
    """Where lines are kept instead of a file: the newest of each partition."""
    stream: IO[str] | None = None
    _epochs: dict[TopicPartition, int] = field(default_factory=dict)
    """Of the leaders of the source at the begin of this run."""

    @classmethod
    def open(
        cls,
        request: VerifyRequest,
        pairs: Mapping[str, TopicPair],
        memory: dict[str, str] | None = None,
        *,
        read_committed: bool = True,
    ) -> Self:
        """Without a directory and a memory nothing is kept. Raises ConfigError when the directory cannot be
        used."""
        ids = {topic: (pair.source.topic_id, pair.target.topic_id) for topic, pair in pairs.items()}
        if memory is not None:
            kept = cls(file=None, topic_ids=ids, read_committed=read_committed, memory=memory)
            for line in memory.values():
                kept.take_line(line)
            return kept
        if request.state_directory is None or not request.is_whole:
            return cls(file=None, topic_ids=ids)
        file = Path(request.state_directory) / f"verified-{request.flow.source}-{request.flow.target}.jsonl"
        try:
            file.parent.mkdir(parents=True, exist_ok=True)
            lines = file.read_text(encoding="utf-8").splitlines() if file.exists() else []
            stream = file.open("a", encoding="utf-8")
        except OSError as error:
            raise ConfigError(
                f"--state {request.state_directory}: cannot be used: {error.strerror or error}", key="--state"
            ) from error
        if lines and not lines[-1].endswith("}"):
            stream.write("\n")  # A kill truncated the last line.
        state = cls(file=file, topic_ids=ids, read_committed=read_committed, stream=stream)
        for line in lines:
            state.take_line(line)
        return state

    async def look_at_epochs(self, source: LogAdmin, logs: Mapping[TopicPartition, TopicPartition]) -> None:
        """Forget the ranges of logs that have lost their tails since, also where they have grown again.
        `logs` has the log of each partition. Call it before the logs are read. Raises KafkaError."""
        if not self._keeps:
            return
        # Before the question, so that a loss between the two is found by the next run.
        found = await source.log_ends(set(logs.values()))
        for partition, log in logs.items():
            if isinstance(log_end := found[log], LogEnd):
                self._epochs[partition] = log_end.leader_epoch
        known = {
            partition: (log, self.ranges[partition].leader_epoch)
            for partition, log in logs.items()
            if partition in self.ranges and self.ranges[partition].leader_epoch >= 0
        }
        left, ends = set(known.values()), dict[tuple[TopicPartition, int], EpochEnd | KafkaError]()
        while left:
            # One of each log: the routes of a topic have one log, and were not all compared in one run.
            asked = dict(left)
            answers = await source.epoch_ends(asked)
            ends |= {(log, epoch): answers[log] for log, epoch in asked.items()}
            left -= asked.items()
        for partition, at in known.items():
            if (
                isinstance(end := ends[at], EpochEnd)
                and 0 <= end.end_offset < self.ranges[partition].source_to
            ):
                del self.ranges[partition]

    def narrowed(self, bounds: Bounds) -> BegunProof:
        """What is left of a partition; all of it when the log was truncated or recreated."""
        proven = self.ranges.get(bounds.source)
        if (
            proven is None
            or not bounds.source_start <= proven.source_to <= bounds.source_goal
            or not bounds.target_start <= proven.target_to <= bounds.target_limit
            or proven.read_committed is not self.read_committed
            or (bounds.has_all_offsets and not proven.offsets_promised)
            or tuple(proven.cuts) != _cuts(bounds, before=proven.source_to)
            # It is no longer known how much of the gap's loss lies before.
            or any(
                gap.is_joined and gap.from_offset < proven.source_to < gap.to_offset for gap in bounds.gaps
            )
        ):
            return BegunProof(bounds=bounds, before=None, cuts=_cuts(bounds))
        left = replace(
            bounds,
            source_start=proven.source_to,
            target_start=proven.target_to,
            source_lost=tuple(each for each in bounds.source_lost if each.from_offset >= proven.source_to),
            target_lost=(),
            begins_anywhere=False,
            equal_until=proven.equal_until,
        )
        return BegunProof(bounds=left, before=proven, cuts=_cuts(bounds))

    def note(self, comparison: Comparison, begun: BegunProof, read_bytes: int) -> None:
        """During the comparison of a partition: everything before its first difference, and before what could
        not be compared, is proven."""
        bounds = begun.bounds
        has_lost = (*comparison.source.lost, *comparison.target.lost) != (
            *bounds.source_lost,
            *bounds.target_lost,
        )
        is_doubtful = (
            comparison.outcome.hunks
            or comparison.outcome.offsets.runs
            or not comparison.outcome.proof.is_complete
        )
        if not self._keeps or is_doubtful or has_lost:
            return
        source_at, target_at = comparison.source.at, comparison.target.at
        noted_at, noted_bytes = self._noted.get(bounds.source, (bounds.source_start, 0))
        if (
            source_at - noted_at >= _NOTED_AFTER_OFFSETS or read_bytes - noted_bytes >= _NOTED_AFTER_BYTES
        ) and source_at > noted_at:
            self._noted[bounds.source] = source_at, read_bytes
            proof = replace(comparison.outcome.proof, continues_at=(source_at, target_at))
            self._write(begun.completed(proof), begun.cuts)

    def end(self, proof: PartitionProof, bounds: Bounds) -> None:
        """A partition is compared."""
        is_proven = not proof.differences and all(
            each.is_harmless
            or (each.reason == NotComparedReason.NOT_COPIED_YET and each.from_offset >= proof.source_to)
            for each in proof.not_compared
        )
        if self._keeps and is_proven and proof.continues_at and proof.source_to > bounds.source_start:
            self._write(proof, _cuts(bounds))

    def close(self) -> None:
        stream, self.stream = self.stream, None
        if stream is not None:
            with contextlib.suppress(OSError):  # What it still has was noted when it was written.
                stream.close()

    @property
    def _keeps(self) -> bool:
        return self.stream is not None or self.memory is not None

    def _write(self, proof: PartitionProof, cuts: tuple[int, ...]) -> None:
        """Both ends must belong to the same record: the copy's end alone may lie behind records that arrived
        after the source's end was read, and the next run would miss them."""
        assert proof.continues_at is not None
        source_to, target_to = proof.continues_at
        told = {
            "topic": proof.source.topic,
            "partition": proof.source.partition,
            "topic_ids": self.topic_ids[proof.source.topic],
            "source_from": proof.source_from,
            "target_from": proof.target_from,
            "source_to": source_to,
            "target_to": target_to,
            "records": proof.records + proof.records_after_goal,
            "unopened_records": proof.unopened_records,
            "superseded_records": proof.superseded_records,
            "read_committed": self.read_committed,
            "offsets_promised": proof.offsets_promised,
            "same_offsets": proof.same_offsets,
            "timestamps_compared": proof.timestamps_compared,
            "equal_until": proof.equal_until,
            "left_out": [
                (str(each.side), each.from_offset, each.to_offset, str(each.reason), each.detail)
                for each in proof.not_compared
                if each.is_harmless
            ][:_MOST_LEFT_OUT],
            "cuts": [cut for cut in cuts if cut < source_to],
            "leader_epoch": self._epochs.get(proof.source, -1),
        }
        self._put(told)

    def _put(self, told: dict[str, Any]) -> None:
        if self.memory is not None:
            self.memory[range_key(TopicPartition(told["topic"], told["partition"]))] = json.dumps(told)
            return
        if self.stream is None:
            return
        try:
            self.stream.write(json.dumps(told) + "\n")
            self.stream.flush()
            os.fsync(self.stream.fileno())
        except OSError as error:
            # The comparison stays valid; only the next run cannot continue behind it.
            log.warning(
                "verification_state_not_saved", file=str(self.file), message=error.strerror or str(error)
            )
            self.close()

    def take_line(self, line: str) -> None:
        """A line that a kill truncated counts for nothing."""
        try:
            told: dict[str, Any] = json.loads(line)
            partition = TopicPartition(told.pop("topic"), told.pop("partition"))
            topic_ids = tuple(told.pop("topic_ids"))
            proven = ProvenRange(**told)
        except (ValueError, TypeError, KeyError):
            return
        if topic_ids == self.topic_ids.get(partition.topic):
            self.ranges[partition] = proven


def _cuts(bounds: Bounds, before: int | None = None) -> tuple[int, ...]:
    found = sorted(each.from_offset for each in bounds.source_lost if each.from_offset == each.to_offset)
    return tuple(cut for cut in found if before is None or cut < before)
