"""What to verify, and the limits for it.

The progress of a verification, measured in offsets of the source.
"""

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from twinlog.batches.bodies import OpenRecord
from twinlog.comparison.model import Bounds, PartitionProof
from twinlog.model import Flow, TopicPartition
from twinlog.verify.report import FlowVerdict
from twinlog.verify.standing import ProofStanding
from twinlog_source.log.facts import ProofFact


@dataclass(frozen=True, slots=True, kw_only=True)
class Instant:
    """Where a range begins or ends: a time, or an offset of the source."""

    offset: int | None = None
    timestamp_ms: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class VerifyRequest:
    flow: Flow
    topics: frozenset[str] = frozenset()
    """Source topics; empty = all of the flow."""
    partitions: frozenset[int] = frozenset()
    """Empty = all."""
    begin: Instant | None = None
    end: Instant | None = None
    ends: Mapping[TopicPartition, int] | None = None
    """The source offset at which each partition ends; partitions that are not named are not compared. Takes
    precedence over `end`."""
    read_committed: bool | None = None
    """How the copier reads the source; None = as configured."""
    max_bytes_per_second: int = 0
    """The limit for each side; 0 = no limit."""
    wait_seconds: float = 30.0
    """How long to wait until the copy has reached the ends from the start."""
    complete: bool = False
    """The copier has stopped for good: records that the copy lacks at its end are missing, not lag."""
    patience_seconds: float = 60.0
    """How long a cluster may be down during the verification."""
    parallel: int = 8
    """Partitions that are compared at the same time."""
    show: bool = False
    """Fetch the records of differences."""
    state_directory: str | None = None
    """Where proven ranges are kept, so that a verification can continue after it was killed."""

    @property
    def is_whole(self) -> bool:
        """Whether everything from the beginning of the logs to their ends is compared."""
        return self.begin is None and self.end is None and self.ends is None


@dataclass(frozen=True, slots=True)
class Way:
    """One of the topics to which the records of a log go."""

    route: str = ""
    """Empty = the copy."""
    compared: Collection[str] = ()
    """The routes that are compared besides."""
    elsewhere: dict[str, tuple[int, int]] = field(default_factory=dict)
    """By other route: the first offset of what the copy does not have because it goes there, and the last."""

    def of(self, records: Iterable[tuple[str, OpenRecord]]) -> list[OpenRecord]:
        """Those that take it."""
        found = []
        for route, record in records:
            if route == self.route:
                found.append(record)
            elif not self.route and route not in self.compared:
                first, last = self.elsewhere.get(route, (record[0], record[0]))
                self.elsewhere[route] = min(first, record[0]), max(last, record[0])
        return found


@dataclass(slots=True)
class VerifyProgress:
    total_offsets: int = 0
    done_offsets: int = 0
    read_bytes: int = 0
    differences: int = 0


OnProgress = Callable[[VerifyProgress], None]


@dataclass(slots=True, kw_only=True)
class ProgressBoard:
    """By part: a partition or a range of one."""

    on_progress: OnProgress
    _sizes: list[int] = field(default_factory=list)
    _done: dict[int, int] = field(default_factory=dict)
    _bytes: dict[int, int] = field(default_factory=dict)
    _differences: int = 0

    def begin(self, parts: Sequence[Bounds]) -> None:
        self._sizes = [each.source_goal - each.source_start for each in parts]
        self._done, self._bytes = {}, {}

    def note(self, number: int, offsets: int, read_bytes: int) -> None:
        """A part has come this far, and has read this much."""
        self._done[number] = min(offsets, self._sizes[number])
        self._bytes[number] = read_bytes
        self._tell()

    def end(self, number: int, proof: PartitionProof) -> None:
        self._done[number], self._bytes[number] = self._sizes[number], proof.bytes
        self._differences += sum(each.count for each in proof.differences)
        self._tell()

    def _tell(self) -> None:
        self.on_progress(
            VerifyProgress(
                total_offsets=sum(self._sizes),
                done_offsets=sum(self._done.values()),
                read_bytes=sum(self._bytes.values()),
                differences=self._differences,
            )
        )


# Converts the results of continuous verification from and to facts on the positions topic. Pure.

RESTATED_MS = 3_600_000
"""A result of which only the time has changed is stored again after this time: a copy at rest costs a record
an hour, and after a restart its age is at most that much too high."""


def to_fact(partition: TopicPartition, standing: ProofStanding, ranges: str) -> ProofFact:
    return ProofFact(
        partition=partition,
        verdict=str(standing.verdict),
        proven_until=standing.proven_until,
        proven_at_ms=standing.proven_at_ms,
        checked_at_ms=standing.checked_at_ms,
        differences=dict(standing.differences),
        reason=standing.reason,
        ranges=ranges,
    )


def to_standing(fact: ProofFact) -> ProofStanding | None:
    """None for a verdict that this version does not know."""
    if fact.verdict not in tuple(FlowVerdict):
        return None
    return ProofStanding(
        verdict=FlowVerdict(fact.verdict),
        proven_until=fact.proven_until,
        proven_at_ms=fact.proven_at_ms,
        checked_at_ms=fact.checked_at_ms,
        differences=dict(fact.differences),
        reason=fact.reason,
    )


def range_key(partition: TopicPartition) -> str:
    """The key under which `ProvenRanges` keeps the range of a partition in memory."""
    return f"{partition.topic}-{partition.partition}"


def to_store(facts: Iterable[ProofFact], on_log: Mapping[TopicPartition, ProofFact]) -> list[ProofFact]:
    """The results that differ from what the log has."""
    return [fact for fact in facts if _is_news(fact, on_log.get(fact.partition))]


def _is_news(fact: ProofFact, stored: ProofFact | None) -> bool:
    if stored is None or fact.checked_at_ms - stored.checked_at_ms >= RESTATED_MS:
        return True
    at_the_same_time = replace(fact, proven_at_ms=stored.proven_at_ms, checked_at_ms=stored.checked_at_ms)
    return at_the_same_time != stored
