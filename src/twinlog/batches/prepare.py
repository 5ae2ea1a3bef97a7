"""Converts the bytes of one partition's fetch into the batches to send: the whole copy decision in one pure
call."""

import math
from collections.abc import Iterable, Sequence

from twinlog.batches.bodies import OpenRecord
from twinlog.batches.codec import Codec, compress, decompress
from twinlog.batches.header import (
    HEADER_BYTES,
    HIGHEST_OFFSET,
    TRANSACTIONAL_BIT,
    Batch,
    BatchHeader,
    check_place,
    corrupt_checksum,
    crc_is_valid,
    iter_batches,
    read_batch,
)
from twinlog.batches.outgoing import Lane, LaneReason, OffsetRun, OutgoingBatch, choose_lane
from twinlog.batches.prepared import CopyFault, CopyPolicy, LeaderEpoch, Prepared
from twinlog.batches.recode_lane import Packed, dense_pieces, pack
from twinlog.batches.records import open_records, payload
from twinlog.batches.small_batches import PACKED_HEAD_BYTES, gather, worth_packing
from twinlog.batches.visibility import AbortedTransaction, VisibilityTracker
from twinlog.errors import WireFormatError

# The raw lane: a batch is copied unopened, with one copy of its bytes and two passes of CRC-32C (20
# GB/s).


def take_raw(batch: Batch, *, check_crc: bool = True) -> OutgoingBatch:
    """Prepare a batch with lane RAW for sending.

    With `check_crc` (Kafka's check.crcs) damage is found here, before a new checksum would hide it. Raises
    WireFormatError (CORRUPT_BATCH).
    """
    header = batch.header
    return OutgoingBatch(
        codec=header.codec,
        record_count=header.record_count,
        base_timestamp_ms=header.base_timestamp_ms,
        max_timestamp_ms=header.max_timestamp_ms,
        records=payload(batch, check_crc=check_crc),
        runs=(OffsetRun(header.base_offset, header.record_count),),
        next_source_offset=header.next_offset,
        lane=Lane.RAW,
        reason=LaneReason.UNOPENED,
    )


_NOWHERE = (0, 0)
_NO_EPOCH_YET = -2
"""Different from every leader epoch; -1 means no epoch."""


def prepare(
    data: memoryview | bytes | bytearray,
    *,
    wanted_offset: int,
    policy: CopyPolicy,
    aborted: Iterable[AbortedTransaction] = (),
    backlog: bool = False,
    log_end_offset: int | None = None,
    room_bytes: int | None = None,
) -> Prepared:
    """Choose a lane for every batch of a fetch, and make the batches to send.

    `wanted_offset` is the position of the fetch. `backlog` means that more records wait behind these bytes;
    only then are small batches packed together. `log_end_offset` is the high watermark of the same answer;
    None = unknown. `room_bytes`: once the batches have more bytes than this and than `data`, the rest is left
    out; None = never. Does not raise for damaged bytes, nor when memory is short: everything before is
    prepared, and `fault` describes the problem.
    """
    tracker = VisibilityTracker(aborted, read_committed=policy.read_committed)
    most_bytes = None if room_bytes is None else max(room_bytes, len(data))
    work = _Preparation(policy, wanted_offset, tracker, log_end_offset, most_bytes)
    try:
        try:
            if backlog and worth_packing(data, policy.coalesce_below_bytes):
                work.pack_together(data)
            else:
                work.take_each(data)
            work.close_group()
        except WireFormatError as error:
            work.fail(error)
    except MemoryError:
        work.out_of_memory()
    return work.outcome()


class _Preparation:
    """The state of one `prepare` call: the batches so far, and the records that are being packed together."""

    def __init__(
        self,
        policy: CopyPolicy,
        wanted_offset: int,
        tracker: VisibilityTracker,
        log_end_offset: int | None,
        most_bytes: int | None,
    ) -> None:
        self._policy = policy
        self._tracker = tracker
        self._wanted_offset = wanted_offset
        self._position = wanted_offset
        self._lowest_offset = 0
        self._log_end_offset = HIGHEST_OFFSET if log_end_offset is None else log_end_offset
        self._batches: list[OutgoingBatch] = []
        self._batch_bytes = 0
        self._routed: list[tuple[str, OutgoingBatch]] = []
        self._routed_to = 0
        """All before this offset is packed, if there are routes."""
        self._routes: dict[int, str] = {}
        """By source offset, of records that are not packed yet."""
        self._most_bytes = math.inf if most_bytes is None else most_bytes
        self._fault: CopyFault | None = None
        self._echo_records = 0
        self._dropped: list[tuple[int, int]] = []
        """How many records of a batch were dropped, with the offset after it."""
        self._leader_epoch = _NO_EPOCH_YET
        self._leader_epochs: list[LeaderEpoch] = []
        self._group: list[OpenRecord] = []
        self._group_bytes = 0
        self._group_codec = Codec.NONE
        self._group_reason = LaneReason.SMALL_BATCHES
        self._group_limit_bytes = min(policy.coalesced_bytes, policy.target.max_message_bytes - HEADER_BYTES)

    def take_each(self, data: memoryview | bytes | bytearray) -> None:
        """Take every batch separately."""
        for batch in iter_batches(data):
            self._take(batch, group_below_bytes=0)
            if self._fault or self._is_enough:
                return

    def pack_together(self, data: memoryview | bytes | bytearray) -> None:
        """Pack small batches into groups, and take the others separately."""
        below_bytes = self._policy.coalesce_below_bytes
        solid = bytes(data)
        view = memoryview(solid)
        position = 0
        while not (self._fault or self._is_enough):
            taken = self._join_plain_ones(solid, position)
            if taken > position:
                position = taken
                continue
            batch = read_batch(view, position)
            if batch is None:
                return
            self._take(batch, group_below_bytes=below_bytes)
            position += len(batch.data)

    def _take(self, batch: Batch, *, group_below_bytes: int) -> None:
        header = batch.header
        check_place(
            batch,
            lowest_offset=self._lowest_offset,
            follows=self._wanted_offset,
            log_end_offset=self._log_end_offset,
        )
        self._lowest_offset = header.next_offset
        if header.partition_leader_epoch != self._leader_epoch:
            self._note_leader(header)
        visibility = self._tracker.see(batch)
        lane, reason = choose_lane(header, self._wanted_offset, self._policy.target, visibility)
        if lane is not Lane.DROP and self._is_echo(header):
            self._echo_records += max(1, header.record_count)
            lane, reason = Lane.DROP, LaneReason.ECHO
        if self._changes and lane is not Lane.DROP and reason is not LaneReason.OLD_MAGIC:
            lane, reason = Lane.RECODE, LaneReason.TRANSFORMED
        if lane is Lane.DROP:
            self._drop(batch, reason)
        elif reason is LaneReason.OLD_MAGIC:
            # Uncompressed old messages are "batches" of one record each.
            self._join_group(batch, LaneReason.OLD_MAGIC)
        elif header.size_bytes < group_below_bytes:
            self._join_group(batch, LaneReason.SMALL_BATCHES)
        else:
            self.close_group()
            self._send_alone(batch, lane, reason)

    def fail(self, error: WireFormatError) -> None:
        """Stop before the damaged bytes; what was taken before stays."""
        self.close_group()
        if not self._fault:
            self._fault = CopyFault(reason=error.reason, offset=self._position, message=str(error))

    def out_of_memory(self) -> None:
        """Stop after the last complete batch; records that were being packed are fetched again."""
        self._group.clear()
        packed_to = self._batches[-1].next_source_offset if self._batches else self._wanted_offset
        self._position = max(packed_to, self._routed_to)
        self._fault = CopyFault(
            reason="BATCH_TOO_LARGE",
            offset=self._position,
            message=f"there was not enough memory to open the batch at offset {self._position}",
        )

    def outcome(self) -> Prepared:
        return Prepared(
            batches=tuple(self._batches),
            next_offset=self._position,
            fault=self._fault,
            is_cut=self._is_enough,
            echo_records=self._echo_records,
            dropped_records=sum([count for end, count in self._dropped if end <= self._position]),
            routed=tuple(self._routed),
            leader_epochs=tuple([each for each in self._leader_epochs if each.offset < self._position]),
        )

    @property
    def _changes(self) -> bool:
        return self._policy.transform is not None or self._policy.routes is not None

    @property
    def _is_enough(self) -> bool:
        return self._batch_bytes > self._most_bytes

    def _is_echo(self, header: BatchHeader) -> bool:
        begin, end = self._policy.echoes.get(header.producer_id, _NOWHERE)
        return begin <= header.base_offset < end

    def _note_leader(self, header: BatchHeader) -> None:
        self._leader_epoch = header.partition_leader_epoch
        if self._leader_epoch >= 0:
            offset = max(header.base_offset, self._wanted_offset)
            self._leader_epochs.append(LeaderEpoch(self._leader_epoch, offset))

    def _drop(self, batch: Batch, reason: LaneReason) -> None:
        if self._policy.check_crc and reason is not LaneReason.BEHIND_POSITION and not crc_is_valid(batch):
            raise corrupt_checksum(batch)  # Otherwise a wrong bit would make data vanish as a marker.
        self._position = max(self._position, batch.header.next_offset)

    def _send_alone(self, batch: Batch, lane: Lane, reason: LaneReason) -> None:
        if self._fault:
            return
        if lane is not Lane.RAW:
            self._recode(batch, reason)
            return
        self._send(take_raw(batch, check_crc=self._policy.check_crc))
        self._position = batch.header.next_offset

    def _send(self, *batches: OutgoingBatch) -> None:
        self._batches += batches
        self._batch_bytes += sum([each.size_bytes for each in batches])

    def _recode(self, batch: Batch, reason: LaneReason) -> None:
        policy = self._policy
        codec = self._codec_for(batch)
        if reason is LaneReason.OTHER_CODEC:
            # Without reading its records, which the raw lane would have taken.
            raw = take_raw(batch, check_crc=policy.check_crc)
            opened = decompress(raw.codec, raw.records, policy.max_open_bytes)
            packed = compress(codec, opened, policy.target.level)
            whole = raw._replace(codec=codec, records=packed, lane=Lane.RECODE, reason=reason)
            if whole.size_bytes <= policy.target.max_message_bytes:
                self._send(whole)
                self._position = whole.next_source_offset
                return
        records = self._open(batch)
        self._pack(records, codec, reason, batch.header.next_offset)

    def _join_plain_ones(self, data: bytes, position: int) -> int:
        """Add as many plain small batches as fit; return the byte position after them."""
        policy = self._policy
        if self._changes or policy.echoes:
            return position
        before = len(self._group)
        gathered = gather(
            data,
            position,
            self._group,
            next_offset=max(self._wanted_offset, self._lowest_offset),
            below_bytes=policy.coalesce_below_bytes,
            room_bytes=self._group_limit_bytes - self._group_bytes,
            check_crc=policy.check_crc,
            skipped_bits=TRANSACTIONAL_BIT if self._tracker.hides_some else 0,
            leader_epoch=self._leader_epoch,
            log_end_offset=self._log_end_offset,
        )
        if not gathered.batch_count:
            return position
        if not before:
            named = policy.target.codec
            self._group_codec = gathered.codec if named is None else named
        self._group_reason = LaneReason.SMALL_BATCHES
        self._group_bytes += gathered.record_bytes
        self._position = self._lowest_offset = gathered.next_offset
        return gathered.position

    def _join_group(self, batch: Batch, reason: LaneReason) -> None:
        records = self._open(batch)
        size_bytes = sum([len(record[2]) for record in records]) + len(records) * PACKED_HEAD_BYTES
        if self._group and self._group_bytes + size_bytes > self._group_limit_bytes:
            self.close_group()
            if self._fault:
                return
        if not self._group:
            self._group_codec = self._codec_for(batch)
            self._group_reason = reason
        elif reason is not self._group_reason:
            self._group_reason = LaneReason.SMALL_BATCHES
        self._group += records
        self._group_bytes += size_bytes
        self._position = batch.header.next_offset

    def close_group(self) -> None:
        if not self._group:
            return
        records, self._group, self._group_bytes = self._group, [], 0
        self._pack(records, self._group_codec, self._group_reason, self._position)

    def _pack(
        self, records: Sequence[OpenRecord], codec: Codec, reason: LaneReason, next_offset: int
    ) -> None:
        """Pack records into batches; the source continues at `next_offset` after the last of them."""
        if not records:
            self._position = next_offset
            return
        if self._policy.routes is not None:
            self._pack_by_route(records, codec, reason, next_offset)
            return
        pieces = dense_pieces(records) if self._policy.keeps_offsets else (records,)
        ends = [*(piece[0][0] for piece in pieces[1:]), next_offset]
        for piece, end in zip(pieces, ends, strict=True):
            packed = pack(
                piece, codec=codec, target=self._policy.target, reason=reason, next_source_offset=end
            )
            self._add(packed, end)
            if self._fault:
                return

    def _pack_by_route(
        self, records: Sequence[OpenRecord], codec: Codec, reason: LaneReason, next_offset: int
    ) -> None:
        """All routes end at the same offset, so that one position says what was packed."""
        parts: dict[str, list[OpenRecord]] = {"": []}
        for record in records:
            # Only its own: a batch that is to join the next group is open already.
            parts.setdefault(self._routes.pop(record[0], ""), []).append(record)
        target = self._policy.target

        def packed(end: int) -> dict[str, Packed]:
            return {
                route: pack(
                    [record for record in part if record[0] < end],
                    codec=codec,
                    target=target,
                    reason=reason,
                    next_source_offset=end,
                )
                for route, part in parts.items()
            }

        found = packed(next_offset)
        too_large = min((each.too_large for each in found.values() if each.too_large), default=None)
        if too_large is not None:
            found = packed(too_large.offset)
        own = found.pop("")
        for route, each in found.items():
            self._routed += ((route, batch) for batch in each.batches)
            self._batch_bytes += sum([batch.size_bytes for batch in each.batches])
        self._add(Packed(own.batches, too_large), next_offset)
        self._routed_to = self._position

    def _add(self, packed: Packed, next_offset: int) -> None:
        self._send(*packed.batches)
        self._position = next_offset
        if packed.too_large:
            offset, size_bytes, limit_bytes = packed.too_large
            self._position = offset
            self._fault = CopyFault(
                reason="RECORD_TOO_LARGE",
                offset=offset,
                message=f"the record at offset {offset} takes {size_bytes} bytes, and the target topic takes"
                f" {limit_bytes} (max.message.bytes, or segment.bytes if that is less)",
                size_bytes=size_bytes,
                limit_bytes=limit_bytes,
            )

    def _open(self, batch: Batch) -> list[OpenRecord]:
        policy, wanted, base_offset = self._policy, self._wanted_offset, batch.header.base_offset
        if policy.opened is not None and base_offset in policy.opened:
            records = policy.opened[base_offset]
        else:
            records = open_records(batch, check_crc=policy.check_crc, max_bytes=policy.max_open_bytes)
            if policy.opened is not None:
                policy.opened[base_offset] = records
        if records and records[0][0] < wanted:
            records = [record for record in records if record[0] >= wanted]
        if policy.routes is not None:
            ways = list(policy.routes(records))
            self._routes |= {record[0]: route for route, record in ways if route}
            passed = [record for _, record in ways]
        elif policy.transform is not None:
            passed = list(policy.transform(records))
        else:
            return records
        if dropped := len(records) - len(passed):
            self._dropped.append((batch.header.next_offset, dropped))
        return passed

    def _codec_for(self, batch: Batch) -> Codec:
        named = self._policy.target.codec
        return batch.header.codec if named is None else named
