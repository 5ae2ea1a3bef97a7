"""What an owner sees of the end of its copy, in the model of the leader's log."""

from twinlog.batches.header import CONTROL_BIT, TRANSACTIONAL_BIT, BatchHeader
from twinlog_source.preserved.append_steps import Hole, ReadEnd
from twinlog_source.preserved.own_batches import FilledRanges, OwnBatches, is_filler, sequence_behind
from unit.source.preserved.broker_model import MARKER, Leader

OURS, STRANGER, STRANGERS_MARKER, FILLER = "ours", "stranger", "stranger's marker", "filler"
IDS = {OURS: 1, STRANGER: 3, STRANGERS_MARKER: 3, FILLER: 2, "repeated": 2}


def headers(leader: Leader, begin: int = 0) -> list[BatchHeader]:
    """The batches of the leader's log, from the one that holds an offset on."""
    found: list[BatchHeader] = []
    at, log = 0, leader.log
    while at < len(log):
        entry, first = log[at], at
        at += 1
        while entry.sequence >= 0 and at < len(log) and log[at][::2] == entry[::2]:
            at += 1
        is_ours = entry.writer in (FILLER, "repeated")
        if at > begin:
            attributes = TRANSACTIONAL_BIT if is_ours else 0
            attributes |= CONTROL_BIT if entry.sequence == MARKER else 0
            found.append(
                BatchHeader(
                    first,
                    60,
                    0,
                    2,
                    0,
                    attributes,
                    at - first - 1,
                    0 if is_ours else 5,
                    0 if is_ours else 5,
                    IDS[entry.writer],
                    0,
                    entry.sequence,
                    at - first,
                )
            )
    return found


def own_before(leader: Leader, offset: int) -> OwnBatches:
    behind = headers(leader, offset)
    at = behind[0].base_offset if behind else offset
    before = [each for each in headers(leader) if each.next_offset <= at and each.producer_id == IDS[OURS]]
    follows = sequence_behind(before[-1]) if before else None
    return OwnBatches(IDS[OURS], follows, not before)


def _foreign(leader: Leader, checked_from: int) -> int | None:
    own = own_before(leader, checked_from)
    first = next((each for each in headers(leader, checked_from) if not own.owns(each)), None)
    return None if first is None else max(first.base_offset, checked_from)


def _foreign_beginning(leader: Leader) -> int | None:
    own = OwnBatches(IDS[OURS], is_first=True)
    first = next((each for each in headers(leader) if not own.owns(each)), None)
    return None if first is None else first.base_offset


def _filled(leader: Leader, checked_from: int, foreign: int | None) -> tuple[Hole, ...]:
    filled = FilledRanges(checked_from)
    for header in headers(leader, checked_from):
        if foreign is not None and header.next_offset > foreign:
            break
        if header.producer_id != IDS[OURS]:
            filled.add(header)
    return filled.found


def tail_of(leader: Leader, asked: ReadEnd) -> tuple[int | None, tuple[Hole, ...]]:
    """The first foreign offset and the filled ranges, as `CopyTails` finds them."""
    checked_from = asked.checked_from
    end, known = len(leader.log), asked.leader_epoch
    if end < checked_from:
        begin = _foreign_beginning(leader)
        if begin is not None:
            return begin, _filled(leader, _filled_from(leader, begin), begin)
        checked_from = _filled_from(leader, end)
        known = leader.epoch - 1 if known is None and leader.epoch else known
    if known is not None and known < leader.epoch:
        checked_from = min(checked_from, leader.end_of_epoch(known))
    foreign = _foreign(leader, checked_from)
    return foreign, _filled(leader, checked_from, foreign)


def _filled_from(leader: Leader, end: int) -> int:
    for header in reversed(headers(leader)):
        if header.next_offset > end:
            continue
        if not is_filler(header):
            break
        end = header.base_offset
    return end
