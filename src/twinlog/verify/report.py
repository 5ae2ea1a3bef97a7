"""The report of a verification: its verdict, exit code and JSON document (docs/verify.md)."""

from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Any

from twinlog.batches import DecodedRecord
from twinlog.comparison.model import (
    Difference,
    DifferenceKind,
    NotCompared,
    NotComparedReason,
    PartitionProof,
    Side,
)
from twinlog.model import Flow, TopicPartition

# Finds the source offset up to which everything is proven to be on the target and may be deleted. Pure.
#
# Stricter than a verdict: records that retention deleted from the copy, gaps, and records never copied are
# not on the target, whether or not the gap is known.

_NOT_COPIED = (NotComparedReason.KNOWN_GAP, NotComparedReason.NOT_COPIED_YET)
_CHANGED = "transforms change or drop records of this topic: the copy does not have them as they are"
_ONLY_HERE = "a copy of the target's own record, which it may not have any more"
_NOT_SEEN = "copies of the target's own records: whether it still has them was not seen"
_DISPLACED = "the copy has a later record of the key: its cleaner removes the copy of this one"


@dataclass(frozen=True, slots=True, kw_only=True)
class SafeRange:
    """Records of the source below `until` are on the target unchanged."""

    source: TopicPartition
    begin: int
    """First offset of the source's log."""
    until: int
    end: int
    """The requested offset: `until` when all of it is safe."""
    reason: str = ""
    """The obstacle at `until`: a kind of difference, or the reason of a range not compared; empty when all is
    safe."""
    detail: str = ""

    @property
    def is_whole(self) -> bool:
        """Any range at its end that was not compared, such as lag, is an obstacle as well."""
        return not self.reason


def safe_range(
    proof: PartitionProof,
    whole: PartitionProof | None = None,
    *,
    back: PartitionProof | None = None,
    is_changed: bool = False,
) -> SafeRange:
    """The range of one partition that may be deleted on the source, from a proof that begins at its log's
    start. Of a compacted copy, where that ends before the log does: also from the `whole` one, because a
    record behind the range may be the last of a key in the range. `back`: what the flow back has copied to
    this log, where the topic is copied both ways: the target may have deleted its own records since.
    `is_changed`: the copy has what transforms made of the records, and that was compared."""
    # The comparison may begin after records that the target lacks; `source_from` lies after them then.
    begin = min([proof.source_from, *(each.from_offset for each in _left_out(proof))])
    end = max([proof.source_to, *(each.to_offset for each in _left_out(proof))])
    seen = [proof] if whole is None else [proof, whole]
    blockers = [
        *_blockers(proof),
        *(_only_here(proof, back, begin) if proof.one_origin else ()),
        *([(begin, str(NotComparedReason.TRANSFORMED), _CHANGED)] if is_changed else ()),
        *(blocker for each in seen for blocker in _of_the_copy(each, begin, proof.source_to)),
    ]
    until, reason, detail = min([*blockers, (end, "", "")])
    return SafeRange(
        source=proof.source,
        begin=begin,
        until=max(until, begin),
        end=end,
        reason=reason,
        detail=detail,
    )


def safe_ranges(
    proofs: Iterable[PartitionProof],
    whole: Mapping[TopicPartition, PartitionProof] | None,
    *,
    back: Iterable[PartitionProof] = (),
    is_changed: Callable[[str], bool] = lambda _topic: False,
) -> list[SafeRange]:
    """The ranges of several partitions of the source: of one whose records go to several topics, what is
    proven of all of these. `whole`: the proofs of compacted copies up to their end; None where `proofs` are
    such. A partition with a compacted copy that is not in it has no range: what lies behind it was not seen.
    `back`: the proofs of the flow back, for topics that are copied both ways. `is_changed`: whether
    transforms change or drop records of a topic."""
    found: dict[TopicPartition, SafeRange | None] = {}
    by_copy = {each.target: each for each in back}
    for proof in proofs:
        known = found.get(proof.log, _ALL_SAFE)
        if known is None or (whole is not None and proof.target_compacted and proof.source not in whole):
            found[proof.log] = None
            continue
        each = safe_range(
            proof,
            None if whole is None else whole.get(proof.source),
            back=by_copy.get(proof.log),
            is_changed=is_changed(proof.log.topic),
        )
        found[proof.log] = min(known, replace(each, source=proof.log), key=lambda one: one.until)
    return [each for each in found.values() if each is not None]


_ALL_SAFE = SafeRange(source=TopicPartition("", 0), begin=0, until=1 << 62, end=0)


def _of_the_copy(proof: PartitionProof, begin: int, end: int) -> Iterator[tuple[int, str, str]]:
    """What the copy loses, or nobody has seen of it."""
    if proof.displaced_from is not None and proof.displaced_from < end:
        yield proof.displaced_from, str(DifferenceKind.FOREIGN), _DISPLACED
    for left_out in proof.not_compared:
        # Behind what could not be compared, a later record of any key may stand in a compacted copy.
        ends_here = proof.target_compacted and left_out.reason not in _NOT_COPIED
        if (left_out.side is Side.TARGET or ends_here) and not left_out.is_harmless:
            yield begin, str(left_out.reason), left_out.detail


def _blockers(proof: PartitionProof) -> Iterator[tuple[int, str, str]]:
    """Source offset, reason and text of everything that is not proven to be on the target."""
    for each in proof.differences:
        if each.source_offset is not None:  # otherwise it stands after the last record of the source
            yield each.source_offset, str(each.kind), ", ".join(each.changed)
    for left_out in _left_out(proof):
        yield left_out.from_offset, str(left_out.reason), left_out.detail


def _only_here(
    proof: PartitionProof, back: PartitionProof | None, begin: int
) -> Iterator[tuple[int, str, str]]:
    """Copies of the target's own records that it does not have any more, or nobody has looked for there."""
    if back is None or back.target_to < proof.source_to:
        seen_until = begin if back is None else back.target_to
        yield seen_until, str(NotComparedReason.BOTH_WAYS), _NOT_SEEN
    for each in () if back is None else back.differences:
        if each.target_offset is not None and each.kind is not DifferenceKind.MISSING:
            yield each.target_offset, str(DifferenceKind.MISSING), _ONLY_HERE
    for left_out in () if back is None else back.not_compared:
        if left_out.side is Side.TARGET and left_out.to_offset > begin:
            yield left_out.from_offset, str(NotComparedReason.TARGET_RETENTION), _ONLY_HERE


def _left_out(proof: PartitionProof) -> list[NotCompared]:
    """What the source has and was not compared."""
    return [
        each
        for each in proof.not_compared
        if each.side is Side.SOURCE and each.reason != NotComparedReason.LOST
    ]


# A record for people: text if it is readable, else hexadecimal; long fields are cut.

MOST_CHARACTERS = 300


def shown_record(record: DecodedRecord) -> dict[str, Any]:
    """None stays null, which distinguishes it from an empty field."""
    return {
        "offset": record.offset,
        "timestamp_ms": record.timestamp_ms,
        "key": shown_bytes(record.key),
        "value": shown_bytes(record.value),
        "headers": [[shown_bytes(key), shown_bytes(value)] for key, value in record.headers],
    }


def shown_bytes(field: bytes | None) -> str | None:
    """`hex:` and digits unless it is readable UTF-8."""
    if field is None:
        return None
    try:
        text = field.decode()
    except UnicodeDecodeError:
        text = ""
    if not text.isprintable() or (field and not text):
        text = f"hex:{field.hex()}"
    return text if len(text) <= MOST_CHARACTERS else f"{text[:MOST_CHARACTERS]}… ({len(field)} bytes)"


class FlowVerdict(StrEnum):
    EQUAL = "EQUAL"
    """Everything that both clusters hold, up to the ends taken at the start, is equal."""
    DIFFERENT = "DIFFERENT"
    """At least one record differs."""
    INCOMPLETE = "INCOMPLETE"
    """Nothing compared differs, but something was not compared."""


EXIT_CODES = {FlowVerdict.EQUAL: 0, FlowVerdict.DIFFERENT: 1, FlowVerdict.INCOMPLETE: 3}


@dataclass(frozen=True, slots=True, kw_only=True)
class FlowReport:
    flow: Flow
    began_at_ms: int
    ended_at_ms: int
    proofs: Sequence[PartitionProof]
    failures: Sequence["FlowFailure"] = ()
    """Failures of the whole flow, or of whole topics."""
    records: dict[tuple[TopicPartition, str, int], Any] = field(default_factory=dict)
    """With --show: contents of the differing records, by source partition, side and offset."""
    writers: "Mapping[tuple[TopicPartition, int], Writer]" = field(default_factory=dict)
    """Writers of the first differing records, by source partition and target offset."""
    rules: "RulesUsed | None" = None
    """None: they could not be read."""

    @property
    def verdict(self) -> FlowVerdict:
        if any(proof.differences for proof in self.proofs):
            return FlowVerdict.DIFFERENT
        if self.failures or not all(proof.is_complete for proof in self.proofs):
            return FlowVerdict.INCOMPLETE
        return FlowVerdict.EQUAL


@dataclass(frozen=True, slots=True, kw_only=True)
class RulesUsed:
    """The rules by which the topics were chosen: those of the file, and those that were changed live."""

    version: int
    """As `twinlog rules get` shows it; 0 = only the file's."""
    told: Sequence[str] = ()
    """Each rule that is not the file's, as a sentence."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Writer:
    """The producer of a batch on the target."""

    producer_id: int
    """-1: neither idempotent nor transactional."""
    producer_epoch: int
    transactional: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class FlowFailure:
    reason: str
    detail: str
    topic: str | None = None
    """A source topic; None: the whole flow."""


def document(report: FlowReport) -> dict[str, Any]:
    """The report as JSON: its fields are a contract, to which new ones may be added."""
    kinds = Counter[str]()
    for proof in report.proofs:
        for difference in proof.differences:
            kinds[difference.kind] += difference.count
    return {
        "flow": str(report.flow),
        "verdict": str(report.verdict),
        "began_at_ms": report.began_at_ms,
        "ended_at_ms": report.ended_at_ms,
        "rules": rules_used(report),
        "records": sum(proof.records for proof in report.proofs),
        "bytes": sum(proof.bytes for proof in report.proofs),
        "differences_by_kind": dict(sorted(kinds.items())),
        "partitions": [_partition(proof) for proof in report.proofs],
        "differences": [
            _difference(report, proof, difference)
            for proof in report.proofs
            for difference in proof.differences
        ],
        "not_compared": [
            *(_failure(failure) for failure in report.failures),
            *(_not_compared(proof, each) for proof in report.proofs for each in proof.not_compared),
        ],
    }


def rules_used(report: FlowReport) -> dict[str, Any] | None:
    used = report.rules
    return None if used is None else {"version": used.version, "not_of_the_file": list(used.told)}


def state_of(proof: PartitionProof) -> FlowVerdict:
    """The verdict of one partition."""
    if proof.differences:
        return FlowVerdict.DIFFERENT
    return FlowVerdict.EQUAL if proof.is_complete else FlowVerdict.INCOMPLETE


def _partition(proof: PartitionProof) -> dict[str, Any]:
    return {
        "topic": proof.source.topic,
        "partition": proof.source.partition,
        "target_topic": proof.target.topic,
        "routed_from": proof.routed_from or None,
        "verdict": str(state_of(proof)),
        "source_from": proof.source_from,
        "source_to": proof.source_to,
        "target_from": proof.target_from,
        "target_to": proof.target_to,
        "records": proof.records,
        "unopened_records": proof.unopened_records,
        "superseded_records": proof.superseded_records,
        "target_compacted": proof.target_compacted,
        "same_offsets": proof.same_offsets,
        "offsets_promised": proof.offsets_promised,
        "timestamps_compared": proof.timestamps_compared,
        "source_hash": proof.source_hash or None,
        "target_hash": proof.target_hash or None,
        "bytes": proof.bytes,
    }


def _difference(report: FlowReport, proof: PartitionProof, difference: Difference) -> dict[str, Any]:
    told: dict[str, Any] = {
        "topic": proof.source.topic,
        "partition": proof.source.partition,
        "kind": str(difference.kind),
        "source_offset": difference.source_offset,
        "target_offset": difference.target_offset,
        "count": difference.count,
    }
    if difference.changed:
        told["changed"] = list(difference.changed)
    if difference.found_in:
        told["found_in"] = difference.found_in
    place = difference.target_offset
    writer = None if place is None else report.writers.get((proof.source, place))
    if writer is not None and difference.kind is not DifferenceKind.MISSING:
        told["written_by"] = {
            "producer_id": writer.producer_id,
            "producer_epoch": writer.producer_epoch,
            "transactional": writer.transactional,
        }
    for side, offset in (("source", difference.source_offset), ("target", difference.target_offset)):
        if offset is not None and (shown := report.records.get((proof.source, side, offset))) is not None:
            told[f"{side}_record"] = shown
    return told


def _not_compared(proof: PartitionProof, each: NotCompared) -> dict[str, Any]:
    return {
        "topic": proof.source.topic,
        "partition": proof.source.partition,
        "side": str(each.side),
        "from_offset": each.from_offset,
        "to_offset": each.to_offset,
        "reason": str(each.reason),
        "detail": each.detail,
        "harmless": each.is_harmless,
    }


def _failure(failure: FlowFailure) -> dict[str, Any]:
    return {
        "topic": failure.topic,
        "partition": None,
        "side": None,
        "from_offset": None,
        "to_offset": None,
        "reason": failure.reason,
        "detail": failure.detail,
        "harmless": False,
    }


def name_moved_records(proofs: Sequence[PartitionProof]) -> None:
    """Note on a MISSING record the other partition of its topic where it is FOREIGN, and the reverse."""
    places: dict[tuple[str, Side, Hashable], tuple[PartitionProof, int]] = {}
    for proof in proofs:
        for (side, offset), content in proof.unmatched.items():
            places.setdefault((proof.source.topic, side, content), (proof, offset))
    for proof in proofs:
        proof.differences = [_with_place(proof, difference, places) for difference in proof.differences]


def _with_place(
    proof: PartitionProof,
    difference: Difference,
    places: Mapping[tuple[str, Side, Hashable], tuple[PartitionProof, int]],
) -> Difference:
    match difference.kind:
        case DifferenceKind.MISSING:
            own, other, offset = Side.SOURCE, Side.TARGET, difference.source_offset
        case DifferenceKind.FOREIGN:
            own, other, offset = Side.TARGET, Side.SOURCE, difference.target_offset
        case _:
            return difference
    if offset is None:
        return difference

    def place_of(own_offset: int) -> tuple[PartitionProof, int] | None:
        content = proof.unmatched.get((own, own_offset))
        return None if content is None else places.get((proof.source.topic, other, content))

    found = place_of(offset)
    if found is None or found[0] is proof:
        return difference
    there, place = found
    others = map(place_of, range(offset + 1, offset + difference.count))
    if not all(each is not None and each[0] is there for each in others):
        return difference  # Some records of the run are elsewhere, or nowhere.
    partition = there.target if other is Side.TARGET else there.source
    return replace(difference, found_in=f"{partition}@{place}")
