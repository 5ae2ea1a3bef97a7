"""A group that is deleted on the source is deleted on the target only when nothing there is its own."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, nullcontext
from dataclasses import dataclass, field, replace

import pytest

from twinlog.cli.checkpoint.groups import notes
from twinlog.errors import WireFormatError
from twinlog.model import TopicPartition
from twinlog.moves.record import MoveKind, Moves, MoveState, Run
from twinlog.offsets.checkpoints import WRITTEN_PLACES
from twinlog_checkpoint.api.messages import flow_progress
from twinlog_checkpoint.assembly import assemble_group_syncer
from twinlog_checkpoint.flow.parts import FlowParts
from twinlog_checkpoint.flow.syncer import GroupSyncer
from twinlog_checkpoint.journal import SourceRecord, decode, encode
from unit.checkpoint.checkpoint_rig import A_TO_B, CheckpointFlowRig, set_settings, turns
from unit.name_lists import group_lists

ORDERS, COPY = TopicPartition("orders", 0), TopicPartition("A.orders", 0)
GRACE_SECONDS = 60
"""As the rig has it; two groups an hour may go."""


@dataclass(slots=True, kw_only=True)
class Rig:
    fakes: CheckpointFlowRig
    parts: FlowParts
    deletes_enabled: bool = True
    syncer: GroupSyncer = field(init=False)

    def __post_init__(self) -> None:
        self.restart()

    def restart(self) -> None:
        """What a new process knows of deletions: what is on the clusters."""
        set_settings(self.parts, sync_group_deletes_enabled=self.deletes_enabled)
        self.syncer = assemble_group_syncer(self.parts)

    @asynccontextmanager
    async def next_process(self) -> AsyncIterator["Rig"]:
        """The service after a restart: it knows what is on the clusters."""
        async with self.fakes.running() as parts:
            yield Rig(fakes=self.fakes, parts=parts, deletes_enabled=self.deletes_enabled)

    async def read_sync(self, upstream: int) -> None:
        """Wait until the offset sync of this record has been read."""

        def known() -> bool:
            pairs = self.parts.pairs(ORDERS)
            newest = None if pairs is None else pairs.newest()
            return newest is not None and newest.upstream == upstream

        await turns(known)

    async def sync(self, *, seconds: float = 10) -> None:
        """One pass, one look at the target, as the service does each interval."""
        self.fakes.clock.advance(seconds)
        await self.fakes.do_pass(self.parts.checkpointer)
        await self.syncer.sync()

    async def sync_past_grace(self) -> None:
        await self.sync()
        await self.sync(seconds=GRACE_SECONDS)
        await self.sync()

    def forget_on_source(self, *groups: str) -> None:
        for group in groups or ("g",):
            self.fakes.source.kafka.groups.delete(group)

    def change_groups(self, include: str) -> None:
        """By a rule."""
        self.parts.checkpointer.follow(replace(self.parts.entry, groups=group_lists(include, "")))

    def on_target(self) -> set[str]:
        return set(self.fakes.target.groups)


@asynccontextmanager
async def translated(*more: str, deletes_enabled: bool = True) -> AsyncIterator[Rig]:
    """Groups `g`, `other` and `more` were translated and their offsets committed on the target."""
    fakes = CheckpointFlowRig()
    fakes.source.add_topic("orders")
    fakes.target.add_topic("A.orders")
    async with fakes.source.writer() as source, fakes.target.writer() as target:
        for number in range(20):
            await source.append(ORDERS, key=None, value=b"%d" % number)
            await target.append(COPY, key=None, value=b"%d" % number)
    await fakes.write_sync("orders", 10, 10)
    for group in ("g", "other", *more):
        fakes.source.set_group(group, {ORDERS: 10})
    async with fakes.running() as parts:
        rig = Rig(fakes=fakes, parts=parts, deletes_enabled=deletes_enabled)
        await rig.sync()
        assert "g" in fakes.target.groups
        yield rig


async def test_nothing_is_deleted_when_it_is_not_enabled() -> None:
    async with translated(deletes_enabled=False) as rig:
        rig.forget_on_source()
        await rig.sync_past_grace()
        assert "g" in rig.fakes.target.groups


@pytest.mark.parametrize(
    "own",
    [
        {"offsets": {COPY: 15}},
        {"offsets": {COPY: 0}},
        {"offsets": {TopicPartition("other", 0): 1}},
        {"state": "STABLE"},
    ],
)
async def test_a_group_with_a_life_of_its_own_stays(own: dict[str, object]) -> None:
    async with translated() as rig:
        rig.fakes.target.add_topic("other")
        rig.fakes.target.set_group("g", **own)  # type: ignore[arg-type]
        rig.forget_on_source()
        await rig.sync_past_grace()
        assert "g" in rig.fakes.target.groups


@pytest.mark.parametrize("restarted", [False, True])
async def test_a_group_that_stands_at_an_earlier_checkpoint_is_deleted(restarted: bool) -> None:
    """Twinlog wrote that offset; the last checkpoint came just before the group was deleted."""
    async with translated() as rig:
        await rig.fakes.write_sync("orders", 15, 15)
        await rig.read_sync(15)
        rig.fakes.source.set_group("g", {ORDERS: 15})
        rig.fakes.clock.advance(10)
        await rig.fakes.do_pass(rig.parts.checkpointer)
        assert rig.fakes.target.kafka.groups.offsets["g"][COPY].offset == 10
        rig.forget_on_source()
        async with rig.next_process() if restarted else nullcontext(rig) as now:
            await now.sync_past_grace()
        assert "g" not in rig.on_target()


async def test_the_committed_offset_stays_known_however_many_checkpoints_follow() -> None:
    """Checkpoints may be written far more often than offsets are committed."""
    async with translated() as rig:
        for offset in range(11, 11 + 2 * WRITTEN_PLACES):
            await rig.fakes.write_sync("orders", offset, offset)
            await rig.read_sync(offset)
            rig.fakes.source.set_group("g", {ORDERS: offset})
            rig.fakes.clock.advance(10)
            await rig.fakes.do_pass(rig.parts.checkpointer)
        assert rig.fakes.target.kafka.groups.offsets["g"][COPY].offset == 10
        rig.forget_on_source()
        await rig.sync_past_grace()
        assert rig.on_target() == {"other"}


async def test_a_new_process_keeps_a_group_with_an_offset_of_its_own() -> None:
    async with translated() as rig:
        rig.fakes.target.set_group("g", {COPY: 3})
        rig.forget_on_source()
        async with rig.next_process() as now:
            await now.sync_past_grace()
        assert rig.on_target() == {"g", "other"}


async def test_a_source_that_lost_its_topics_deletes_nothing() -> None:
    async with translated() as rig:
        rig.forget_on_source()
        await rig.fakes.source.delete_topics(["orders"])
        await rig.sync_past_grace()
        assert "g" in rig.fakes.target.groups


@pytest.mark.parametrize(
    ("kind", "state", "on_target", "stays"),
    [
        (MoveKind.FAILOVER, MoveState.DONE, True, True),
        (MoveKind.FAILOVER, MoveState.RUNNING, True, True),
        (MoveKind.FAILBACK, MoveState.DONE, True, True),
        (MoveKind.FAILBACK, MoveState.DONE, False, False),
        (MoveKind.FAILBACK, MoveState.RUNNING, True, True),
    ],
)
async def test_while_a_failover_is_in_effect_no_group_is_deleted(
    kind: MoveKind, state: MoveState, on_target: bool, stays: bool
) -> None:
    async with translated() as rig:
        journal = rig.fakes.served(rig.parts).failover.journal
        await journal.store(
            Moves(flow=A_TO_B, run=Run(run_id="r", kind=kind, state=state, on_target=on_target))
        )
        rig.forget_on_source()
        await rig.sync_past_grace()
        assert ("g" in rig.fakes.target.groups) is stays
        assert (flow_progress(rig.parts).deletions_held_reason == "FAILED_OVER") is stays


async def test_groups_that_never_were_translated_stay() -> None:
    async with translated() as rig:
        rig.fakes.target.set_group("local", {COPY: 3})
        await rig.sync_past_grace()
        assert "local" in rig.fakes.target.groups


async def test_a_deleted_group_stays_for_the_grace_and_longer_when_it_comes_back() -> None:
    async with translated() as rig:
        rig.forget_on_source()
        await rig.sync()
        await rig.sync(seconds=GRACE_SECONDS - 1)
        assert "g" in rig.on_target()
        rig.fakes.source.set_group("g", {ORDERS: 10})
        await rig.sync()
        rig.forget_on_source()
        await rig.sync()
        await rig.sync(seconds=GRACE_SECONDS - 1)
        assert "g" in rig.on_target()
        await rig.sync(seconds=1)
        assert rig.on_target() == {"other"}


async def test_the_grace_goes_on_in_a_new_process() -> None:
    """Else nothing is ever deleted where the service restarts every night."""
    async with translated() as rig:
        rig.forget_on_source()
        await rig.sync()
        rig.restart()
        await rig.sync(seconds=GRACE_SECONDS / 2)
        assert "g" in rig.on_target()
        rig.restart()
        await rig.sync(seconds=GRACE_SECONDS / 2)
        assert "g" not in rig.on_target()


async def test_a_group_that_came_back_begins_its_grace_again_also_in_a_new_process() -> None:
    async with translated() as rig:
        rig.forget_on_source()
        await rig.sync()
        rig.fakes.source.set_group("g", {ORDERS: 10})
        await rig.sync()
        rig.restart()
        rig.forget_on_source()
        await rig.sync(seconds=GRACE_SECONDS)
        assert "g" in rig.on_target()
        await rig.sync(seconds=GRACE_SECONDS)
        assert "g" not in rig.on_target()


def test_a_record_of_the_source_without_times_is_one_of_an_earlier_release() -> None:
    assert decode(b'{"format": 1, "cluster_id": "c", "held": ""}') == SourceRecord(cluster_id="c")
    record = SourceRecord(cluster_id="c", held="SOURCE_LOST", gone_ms={"g": 7})
    assert decode(encode(record)) == record
    with pytest.raises(WireFormatError):
        decode(b'{"format": 1, "cluster_id": "c", "held": "", "gone_ms": {"g": "x"}}')


async def test_only_so_many_groups_are_deleted_in_an_hour() -> None:
    async with translated("h", "i", "j") as rig:
        rig.forget_on_source("g", "h", "i", "j")
        await rig.sync_past_grace()
        await rig.sync(seconds=600)
        assert len(rig.on_target()) == 3
        await rig.sync(seconds=3600)
        assert rig.on_target() == {"other"}


async def test_a_source_that_lost_all_its_groups_deletes_none_until_they_are_back() -> None:
    async with translated("h") as rig:
        rig.forget_on_source("g", "h", "other")
        await rig.sync_past_grace()
        rig.fakes.source.set_group("other", {ORDERS: 10})
        rig.restart()
        await rig.sync_past_grace()
        assert rig.on_target() == {"g", "h", "other"}
        told = flow_progress(rig.parts)
        assert told.deletions_held_reason == "SOURCE_LOST"
        (line,) = notes([told])
        assert "no group is deleted: 2 groups gone from A" in line
        rig.fakes.source.set_group("g", {ORDERS: 10})
        rig.fakes.source.set_group("h", {ORDERS: 10})
        await rig.sync_past_grace()
        rig.forget_on_source("g")
        await rig.sync_past_grace()
        assert rig.on_target() == {"h", "other"}
        assert flow_progress(rig.parts).deletions_held == ""


async def test_a_source_that_is_another_cluster_deletes_none_until_they_are_back() -> None:
    async with translated() as rig:
        rig.fakes.source.kafka.cluster_id = "another"
        rig.forget_on_source("g")
        rig.restart()
        await rig.sync_past_grace()
        assert rig.on_target() == {"g", "other"}
        rig.fakes.source.set_group("g", {ORDERS: 10})
        await rig.sync_past_grace()
        rig.forget_on_source("g")
        await rig.sync_past_grace()
        assert rig.on_target() == {"other"}


async def test_a_source_that_lost_its_groups_deletes_none_though_the_topic_that_says_so_is_deleted() -> None:
    async with translated("h") as rig:
        rig.forget_on_source("g", "h", "other")
        await rig.sync_past_grace()
        await rig.fakes.target.delete_topics(["mm2-failover.A.internal"])
        await rig.sync()
        rig.fakes.source.set_group("other", {ORDERS: 10})
        rig.restart()
        await rig.sync_past_grace()
        assert rig.on_target() == {"g", "h", "other"}


async def test_nothing_is_said_to_be_held_once_offsets_are_not_committed_any_more() -> None:
    async with translated() as rig:
        rig.forget_on_source("g", "other")
        await rig.sync()
        assert flow_progress(rig.parts).deletions_held_reason == "SOURCE_LOST"
        set_settings(rig.parts, sync_group_offsets_enabled=False)
        await rig.sync()
        assert flow_progress(rig.parts).deletions_held == ""


async def test_a_process_that_loses_the_flow_says_nothing_of_what_is_held() -> None:
    """The next owner may have deleted the groups, and they may be back on the source."""
    async with translated() as rig:
        rig.forget_on_source("g", "other")
        rig.fakes.clock.advance(10)
        await rig.fakes.do_pass(rig.parts.checkpointer)
        stop = asyncio.Event()
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(rig.syncer.run(stop), name="group offsets")
            await turns(lambda: flow_progress(rig.parts).deletions_held_reason)
            stop.set()
        assert flow_progress(rig.parts).deletions_held == ""


async def test_groups_of_changed_rules_are_not_gone_before_they_are_listed() -> None:
    async with translated("b1", "b2") as rig:
        rig.change_groups("g,other")
        await rig.sync()
        rig.forget_on_source("b2")
        await rig.sync()
        rig.change_groups("b.*")
        await rig.syncer.sync()
        for _ in range(5):
            await rig.sync(seconds=60)
        assert rig.parts.checkpointer.table.deletions_held == ("", "")
        assert rig.on_target() == {"g", "other", "b1"}


async def test_an_excluded_group_gets_no_commit_any_more() -> None:
    async with translated() as rig:
        await rig.fakes.write_sync("orders", 15, 15)
        await rig.read_sync(15)
        rig.fakes.source.set_group("g", {ORDERS: 15})
        rig.fakes.clock.advance(10)
        await rig.fakes.do_pass(rig.parts.checkpointer)
        rig.change_groups("other")
        await rig.syncer.sync()
        assert rig.fakes.target.kafka.groups.offsets["g"][COPY].offset == 10
