"""For any batches a log may hold: raw and recode lanes, coalesced or split, copy the very same records."""

from dataclasses import dataclass
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from twinlog.batches import (
    AbortedTransaction,
    Codec,
    CopyPolicy,
    DecodedRecord,
    Lane,
    Prepared,
    TargetTopicLimits,
    decode_batch,
    pack,
    prepare,
    read_batches,
    take_raw,
)
from twinlog.batches.header import DELETE_HORIZON_BIT
from twinlog.batches.outgoing import LaneReason, Seal, sealed
from twinlog.batches.records import open_records
from twinlog.testing.source_batches import source_batch, transaction_marker

_INT64 = st.integers(-(1 << 63), (1 << 63) - 1)
_TIMESTAMPS = st.one_of(st.integers(1_600_000_000_000, 1_800_000_000_000), st.just(-1), _INT64)
_FIELDS = st.one_of(st.none(), st.binary(max_size=40), st.binary(min_size=200, max_size=300))
_HEADERS = st.lists(
    st.tuples(st.binary(max_size=12), st.one_of(st.none(), st.binary(max_size=12))), max_size=4
)
_SEAL = Seal(producer_id=99, producer_epoch=4, base_sequence=12, transactional=False)


@st.composite
def _records(draw: st.DrawFn, first_offset: int, *, holes: bool) -> list[DecodedRecord]:
    records = []
    offset = first_offset
    for _ in range(draw(st.integers(1, 12))):
        offset += draw(st.integers(0, 3)) if holes else 0
        records.append(
            DecodedRecord(offset, draw(_TIMESTAMPS), draw(_FIELDS), draw(_FIELDS), tuple(draw(_HEADERS)))
        )
        offset += 1
    return records


@dataclass(frozen=True)
class _Log:
    data: bytes
    records: tuple[DecodedRecord, ...]
    """As a reader sees them: committed, LogAppendTime applied."""
    aborted: tuple[AbortedTransaction, ...]
    next_offset: int

    @property
    def first_offset(self) -> int:
        return read_batches(self.data)[0].header.base_offset


@st.composite
def _logs(draw: st.DrawFn) -> _Log:
    data = b""
    visible: list[DecodedRecord] = []
    aborted: list[AbortedTransaction] = []
    offset = draw(st.integers(0, 1 << 40))
    for producer_id in range(draw(st.integers(1, 6))):
        ending = draw(st.sampled_from((None, None, "commit", "abort")))
        holes = draw(st.booleans())
        records = draw(_records(offset, holes=holes))
        trailing = draw(st.integers(0, 2)) if holes else 0
        appended_at_ms = draw(st.one_of(st.none(), st.none(), _INT64))
        options: dict[str, Any] = {}
        if draw(st.booleans()):
            options["base_timestamp_ms"] = draw(_TIMESTAMPS)
        data += source_batch(
            records,
            codec=draw(st.sampled_from(Codec)),
            base_offset=offset,
            last_offset=records[-1].offset + trailing,
            appended_at_ms=appended_at_ms,
            producer_id=producer_id,
            transactional=ending is not None,
            more_attributes=draw(st.sampled_from((0, DELETE_HORIZON_BIT))),
            **options,
        )
        if ending == "abort":
            aborted.append(AbortedTransaction(producer_id, offset))
        else:
            visible += [
                record if appended_at_ms is None else record._replace(timestamp_ms=appended_at_ms)
                for record in records
            ]
        offset = records[-1].offset + trailing + 1
        if ending is not None:
            data += transaction_marker(offset, producer_id, commit=ending == "commit")
            offset += 1
    return _Log(data, tuple(visible), tuple(aborted), offset)


def _prepare(
    log: _Log,
    *,
    data: bytes | None = None,
    wanted: int | None = None,
    policy: CopyPolicy | None = None,
    backlog: bool = False,
) -> Prepared:
    return prepare(
        log.data if data is None else data,
        wanted_offset=log.first_offset if wanted is None else wanted,
        policy=policy or CopyPolicy(),
        aborted=log.aborted,
        backlog=backlog,
    )


def _copied(prepared: Prepared) -> list[DecodedRecord]:
    """What a consumer of the target reads, with the source offsets that the mapping gives."""
    copies = []
    for outgoing in prepared.batches:
        batch = read_batches(sealed(outgoing, _SEAL))[0]
        assert batch.header.is_dense
        assert not batch.header.is_log_append_time
        assert batch.header.max_timestamp_ms == max(record.timestamp_ms for record in decode_batch(batch))
        sources = [offset for first, count in outgoing.runs for offset in range(first, first + count)]
        for target_offset, (source_offset, record) in enumerate(
            zip(sources, decode_batch(batch), strict=True)
        ):
            assert outgoing.target_offset(source_offset, 500) == 500 + target_offset
            copies.append(record._replace(offset=source_offset))
    return copies


@given(log=_logs(), codec=st.sampled_from((None, *Codec)), backlog=st.booleans())
def test_any_log_is_copied_record_for_record(log: _Log, codec: Codec | None, backlog: bool) -> None:
    policy = CopyPolicy(target=TargetTopicLimits(codec=codec))
    prepared = _prepare(log, policy=policy, backlog=backlog)
    assert prepared.fault is None
    assert prepared.next_offset == log.next_offset
    assert _copied(prepared) == list(log.records)


@given(log=_logs(), data=st.data())
def test_a_copy_that_starts_inside_a_batch_has_the_rest(log: _Log, data: st.DataObject) -> None:
    wanted = data.draw(st.integers(log.first_offset, log.next_offset))
    prepared = _prepare(log, wanted=wanted, backlog=data.draw(st.booleans()))
    assert _copied(prepared) == [record for record in log.records if record.offset >= wanted]
    assert prepared.next_offset == max(wanted, log.next_offset)


@given(log=_logs(), limit=st.integers(120, 1500), codec=st.sampled_from((None, *Codec)))
def test_small_limits_split_or_name_the_record_that_cannot_pass(
    log: _Log, limit: int, codec: Codec | None
) -> None:
    policy = CopyPolicy(target=TargetTopicLimits(max_message_bytes=limit, codec=codec))
    prepared = _prepare(log, policy=policy, backlog=True)
    assert all(outgoing.size_bytes <= limit for outgoing in prepared.batches)
    copied = _copied(prepared)
    assert copied == list(log.records[: len(copied)])
    if prepared.fault is None:
        assert len(copied) == len(log.records)
    else:
        assert prepared.fault.reason == "RECORD_TOO_LARGE"
        assert prepared.fault.offset == prepared.next_offset == log.records[len(copied)].offset
        assert prepared.fault.size_bytes is not None
        assert prepared.fault.size_bytes > limit


@given(records=_records(1000, holes=False), source=st.sampled_from(Codec), target=st.sampled_from(Codec))
def test_raw_and_recode_lanes_give_identical_records(
    records: list[DecodedRecord], source: Codec, target: Codec
) -> None:
    (batch,) = read_batches(source_batch(records, codec=source))
    raw = take_raw(batch)
    recoded = pack(
        open_records(batch),
        codec=target,
        target=TargetTopicLimits(),
        reason=LaneReason.SMALL_BATCHES,
        next_source_offset=batch.header.next_offset,
    )
    assert raw.lane is Lane.RAW
    (raw_copy,) = read_batches(sealed(raw, _SEAL))
    copies = [read_batches(sealed(outgoing, _SEAL))[0] for outgoing in recoded.batches]
    expected = [record[1:] for record in records]
    assert [record[1:] for record in decode_batch(raw_copy)] == expected
    assert [record[1:] for copy in copies for record in decode_batch(copy)] == expected


@given(log=_logs(), cut=st.integers(0, 400), backlog=st.booleans())
def test_any_cut_of_the_bytes_loses_nothing(log: _Log, cut: int, backlog: bool) -> None:
    """What a cut fetch leaves out is fetched from `next_offset`: both parts together are the log."""
    first = _prepare(log, data=log.data[: max(len(log.data) - cut, 0)], backlog=backlog)
    rest = _prepare(log, wanted=first.next_offset, backlog=backlog)
    assert _copied(first) + _copied(rest) == list(log.records)


@given(log=_logs(), data=st.data(), backlog=st.booleans())
def test_damage_never_passes_as_data(log: _Log, data: st.DataObject, backlog: bool) -> None:
    """One byte changed anywhere after a base offset: the copy ends before it, what came before is intact."""
    batch = data.draw(st.sampled_from(read_batches(log.data)))
    damaged = bytearray(log.data)
    start = log.data.index(bytes(batch.data))
    damaged[start + data.draw(st.integers(8, len(batch.data) - 1))] ^= data.draw(st.integers(1, 255))
    prepared = _prepare(log, data=bytes(damaged), wanted=log.first_offset, backlog=backlog)
    copied = _copied(prepared)
    assert copied == list(log.records[: len(copied)])
    if len(copied) < len(log.records):
        assert prepared.next_offset <= log.records[len(copied)].offset
