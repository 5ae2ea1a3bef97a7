"""A start of the checkpoint service reads what was kept of the offset syncs, and only the syncs since."""

import asyncio
import contextlib
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from twinlog.errors import FatalKafkaError, WireFormatError
from twinlog.kafka.ports import OffsetSpec
from twinlog.model import Record, TopicPartition
from twinlog.testing.brokers import eventually
from twinlog.testing.fakes.cluster import Call
from twinlog.wire import TopicIds
from twinlog_checkpoint.flow.parts import FlowParts
from twinlog_checkpoint.translation.history import (
    CONDENSED_NEWEST,
    CONDENSED_OLDER,
    CondensedPairs,
    OffsetPair,
    PairHistory,
    SyncHistory,
)
from twinlog_checkpoint.translation.sync_history_log import (
    Head,
    PartitionRecord,
    decode,
    encode_head,
    encode_partition,
)
from twinlog_checkpoint.translation.translation import SourcePosition
from unit.checkpoint.checkpoint_rig import SYNCS_TOPIC, CheckpointFlowRig, turns
from unit.checkpoint.mirrored_logs import COPY, MirroredLogs

T, U = TopicPartition("t", 0), TopicPartition("u", 0)
KEPT = TopicPartition("mm2-sync-history.A.internal", 0)
SAVE_AFTER = 3


def pairs(parts: FlowParts, partition: TopicPartition = T) -> list[tuple[int, int]]:
    history = parts.pairs(partition)
    assert history is not None
    condensed = history.condensed()
    assert condensed is not None
    return [(pair.upstream, pair.downstream) for pair in condensed.pairs]


class Rig(CheckpointFlowRig):
    """A flow whose owner keeps what it knows after few syncs."""

    async def keep(self) -> None:
        """One owner, from its start to its end."""
        async with self.running() as parts:
            tail = parts.checkpointer.tail
            tail.kept.save_after_syncs = SAVE_AFTER
            tail.kept.begin()
            await self.do_pass(parts.checkpointer)

    async def end(self) -> int:
        log = TopicPartition(SYNCS_TOPIC, 0)
        end = (await self.source.list_offsets(OffsetSpec.LATEST, [log]))[log]
        assert isinstance(end, int)
        return end

    def reads(self) -> list[int]:
        """Where the syncs are read from now on."""
        offsets: list[int] = []

        def note(call: Call) -> None:
            if call.arguments["partition"].topic == SYNCS_TOPIC:
                offsets.append(call.arguments["offset"])

        self.source.intercept("fetch", note)
        return offsets


@pytest.fixture
async def rig() -> Rig:
    made = Rig()
    for number in range(5):
        await made.write_sync("t", 100 * number, 90 * number)
    await made.write_sync("u", 7, 7)
    return made


async def test_a_start_reads_only_the_syncs_since_what_was_kept(rig: Rig) -> None:
    await rig.keep()
    await rig.write_sync("t", 500, 450)
    reads = rig.reads()
    async with rig.running() as parts:
        assert pairs(parts) == [(100 * number, 90 * number) for number in range(6)]
        assert pairs(parts, U) == [(7, 7)]
        assert min(reads) == 6
        translation = parts.checkpointer.tail.store.translate(T, 450)
        assert translation.downstream_offset == 361


async def test_little_is_not_worth_keeping(rig: Rig) -> None:
    async with rig.running() as parts:
        parts.checkpointer.tail.kept.begin()
        await rig.do_pass(parts.checkpointer)
    assert KEPT.topic not in rig.target.topics


async def test_only_what_changed_is_written_again(rig: Rig) -> None:
    async with rig.running() as parts:
        tail = parts.checkpointer.tail
        tail.kept.save_after_syncs = SAVE_AFTER
        tail.kept.begin()
        await rig.do_pass(parts.checkpointer)
        for number in range(3):
            await rig.write_sync("u", 10 + number, 10 + number)
        await turns(lambda: pairs(parts, U)[-1] == (12, 12))
        await rig.do_pass(parts.checkpointer)
    written = [decode(record.key, record.value) for record in rig.target.records(KEPT)]
    kinds = [each.partition if isinstance(each, PartitionRecord) else "head" for each in written]
    assert sorted(map(str, kinds[:2])) == ["t-0", "u-0"]
    assert kinds[2:] == ["head", U, "head"]
    async with rig.running() as parts:
        assert pairs(parts, U) == [(7, 7), (10, 10), (11, 11), (12, 12)]


async def test_what_an_earlier_owner_still_writes_makes_the_whole_unusable(rig: Rig) -> None:
    await rig.keep()
    late = [record for record in rig.target.records(KEPT) if b'"topic":"t"' in (record.key or b"")]
    await rig.write_sync("t", 0, 1000)
    for number in range(3):
        await rig.write_sync("t", 1000 + number, 2000 + number)
    await rig.keep()
    async with rig.target.writer() as writer:
        await writer.append(KEPT, key=late[0].key, value=late[0].value)
    reads = rig.reads()
    async with rig.running() as parts:
        assert min(reads) == 0, "all syncs are read"
        assert pairs(parts)[-1] == (1002, 2002)


async def test_what_was_kept_of_another_syncs_topic_is_left_alone(rig: Rig) -> None:
    await rig.keep()
    rig.source.add_topic(SYNCS_TOPIC, configs={"cleanup.policy": "compact"})
    for number in range(9):
        await rig.write_sync("t", number, number)
    async with rig.running() as parts:
        assert pairs(parts) == [(number, number) for number in range(9)]


async def test_what_is_kept_after_the_syncs_topic_was_recreated_holds_nothing_of_before(rig: Rig) -> None:
    async with rig.running() as parts:
        tail = parts.checkpointer.tail
        tail.kept.save_after_syncs = SAVE_AFTER
        tail.kept.begin()
        await rig.do_pass(parts.checkpointer)
        rig.source.add_topic(SYNCS_TOPIC, configs={"cleanup.policy": "compact"})
        await eventually(lambda: not tail.history.partitions())
        for number in range(4):
            await rig.write_sync("t", number, number)
        await eventually(lambda: tail.history.of(T) is not None and pairs(parts)[-1] == (3, 3))
        await rig.do_pass(parts.checkpointer)
    async with rig.running() as parts:
        assert parts.checkpointer.tail.history.partitions() == {T}


async def test_without_the_right_to_read_what_was_kept_all_syncs_are_read(rig: Rig) -> None:
    await rig.keep()

    def refuse(call: Call) -> None:
        if call.arguments["partition"] == KEPT:
            raise FatalKafkaError("no right", reason="TOPIC_UNAUTHORIZED")

    rig.target.intercept("fetch", refuse)
    reads = rig.reads()
    async with rig.running() as parts:
        assert min(reads) == 0
        assert len(pairs(parts)) == 5


async def test_without_the_right_to_keep_it_the_pass_goes_on_and_nothing_is_tried_again(rig: Rig) -> None:
    tried = 0

    def refuse(call: Call) -> None:
        nonlocal tried
        if call.arguments["partition"] == KEPT:
            tried += 1
            raise FatalKafkaError("no right", reason="TOPIC_UNAUTHORIZED")

    rig.target.intercept("append", refuse)
    async with rig.running() as parts:
        tail = parts.checkpointer.tail
        tail.kept.save_after_syncs = SAVE_AFTER
        tail.kept.begin()
        await rig.do_pass(parts.checkpointer)
        first, passes = tried, parts.checkpointer.passes
        assert first
        await rig.do_pass(parts.checkpointer)
        assert (tried, parts.checkpointer.passes) == (first, passes + 1)


async def test_a_process_that_stands_by_follows_the_syncs(rig: Rig) -> None:
    parts = rig.parts()
    tail = parts.checkpointer.tail
    stop = rig.around().stop
    async with asyncio.TaskGroup() as group:
        group.create_task(tail.run(stop), name="tail")
        await turns(lambda: tail.store.read_to_end)
        await rig.write_sync("u", 9, 9)
        await turns(lambda: pairs(parts, U)[-1] == (9, 9))
        stop.set()


async def test_without_the_checkpoints_of_earlier_times_only_the_latest_sync_counts(rig: Rig) -> None:
    async with rig.running() as parts:
        store = parts.checkpointer.tail.store
        assert store.translate(T, 200).downstream_offset == 180
        parts.checkpointer.tail.on_restored(checkpoints_restored=False)
        assert store.translate(T, 200).downstream_offset is None
        assert store.translate(T, 400).downstream_offset == 360


# ---------------------------------------------------------------------------------------------- the records

_STEPS = st.lists(st.tuples(st.integers(1, 10**6), st.integers(1, 10**6)), min_size=1, max_size=300)


@given(_STEPS, st.sampled_from([None, TopicIds("a", "b"), TopicIds("", "")]))
def test_a_history_keeps_its_newest_pairs_and_some_of_the_older_ones(
    steps: list[tuple[int, int]], topic_ids: TopicIds | None
) -> None:
    history, upstream, downstream = PairHistory(), 0, 0
    taken = []
    for first, second in steps:
        upstream, downstream = upstream + first, downstream + second
        taken.append(OffsetPair(upstream, downstream))
        history.on_sync(taken[-1], topic_ids)
    condensed = history.condensed()
    assert condensed is not None
    assert condensed.pairs[-CONDENSED_NEWEST:] == tuple(taken[-CONDENSED_NEWEST:])
    assert condensed.pairs[0] == taken[0]
    assert len(condensed.pairs) <= CONDENSED_NEWEST + CONDENSED_OLDER
    assert set(condensed.pairs) <= set(taken)
    record = PartitionRecord(writer="w", partition=T, through=9, condensed=condensed)
    assert decode(*encode_partition(record)) == record
    restored = PairHistory.restored(condensed)
    assert (restored.newest(), restored.topic_ids) == (taken[-1], topic_ids)


def test_what_may_be_of_a_log_that_is_gone_stays_doubtful_over_a_restart() -> None:
    history = PairHistory()
    for pair in (OffsetPair(10, 10), OffsetPair(20, 20), OffsetPair(30, 15)):
        history.on_sync(pair)
    condensed = history.condensed()
    assert condensed is not None
    for each in (history, PairHistory.restored(condensed)):
        assert not each.vouched(OffsetPair(10, 10))
        assert each.vouched(OffsetPair(30, 15))


@pytest.mark.parametrize("unknown", [None, TopicIds("", "")])
def test_what_was_found_in_topics_that_are_not_known_is_not_taken_for_that_of_others(
    unknown: TopicIds | None,
) -> None:
    """Both may have been created again since; brokers before 2.8 show no ids."""
    history = SyncHistory()
    history.begun(T, unknown).on_verified(OffsetPair(5, 3))
    assert not len(history.begun(T, unknown))
    known = TopicIds("source", "target")
    history.begun(T, known).on_verified(OffsetPair(5, 3))
    assert (len(history.begun(T, unknown)), len(history.begun(T, known))) == (0, 1)
    assert not len(history.begun(T, TopicIds("another", "target")))
    history.on_sync(T, OffsetPair(7, 7))
    assert history.begun(T, unknown).newest_sync == OffsetPair(7, 7)


def test_a_head_is_read_as_it_was_written() -> None:
    head = Head(writer="w", syncs_topic_id="id", through=5, partitions=2)
    assert decode(*encode_head(head)) == head


@given(st.binary(max_size=60), st.binary(max_size=60))
def test_damaged_records_are_told_or_left_alone(key: bytes, value: bytes) -> None:
    with contextlib.suppress(WireFormatError):
        decode(key, value)


@pytest.mark.parametrize("deltas", [[1], [1, 1, 0, 5], [-1, 3], ["a", 1], [1, 2**63]])
def test_pairs_that_do_not_rise_are_refused(deltas: list[object]) -> None:
    condensed = CondensedPairs(newest_sync=OffsetPair(1, 1), vouched_from=0, pairs=())
    key, value = encode_partition(PartitionRecord(writer="w", partition=T, through=1, condensed=condensed))
    document = json.loads(value) | {"pairs": deltas}
    with pytest.raises(WireFormatError):
        decode(key, json.dumps(document).encode())


async def test_a_start_without_any_sync_finds_the_places_of_a_copys_groups() -> None:
    """Nobody has asked about an offset of the source before: all groups work on the target."""
    logs = MirroredLogs.copied(30, seed=1, lost_syncs=1)
    rig = CheckpointFlowRig(source=logs.source, target=logs.target, translation_max_bytes=1 << 20)
    async with rig.running() as parts:
        wanted = {copied.offset: here.offset for here, copied in _both_logs(logs)}
        positions = {offset: SourcePosition(partition=COPY, next_offset=offset) for offset in wanted}
        told = await parts.back.translate(positions.values())
        assert {offset: told[each].downstream_offset for offset, each in positions.items()} == wanted


def _both_logs(logs: MirroredLogs) -> list[tuple[Record, Record]]:
    return list(zip(logs.visible_source(), logs.visible_target(), strict=True))
