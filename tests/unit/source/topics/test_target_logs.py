"""Copies that lost what was written: a gap, and the copy continues."""

import pytest

from twinlog.errors import KafkaError
from twinlog.kafka.errors import UNAVAILABLE, from_reason
from twinlog.model import TopicPartition
from twinlog.testing.fakes.cluster_hooks import Call
from twinlog_source.partitions.events import CopyChanged, SetAside
from unit.source.flow_rig import P, Site, ledger, reported

AUTO, TRANSLATED = "twinlog.offsets = auto", "twinlog.offsets = translated"


async def test_a_copy_that_was_made_anew_while_nobody_copied_is_a_gap(site: Site) -> None:
    first = await site.owner(TRANSLATED)
    await first.journal.position(P, 5)
    site.target.add_topic("A.t")
    assert ledger(await site.owner(TRANSLATED)) == [(0, 5, "TARGET_RECREATED")]
    assert ledger(await site.owner(TRANSLATED)) == [(0, 5, "TARGET_RECREATED")], "only once"


async def test_a_copy_that_was_made_anew_is_not_one_that_lost_its_tail_as_well(site: Site) -> None:
    """Its new, shorter log is seen before it is known to be another one."""
    await site.write(site.target, "A.t", 5)
    await (await site.owner(TRANSLATED)).journal.position(P, 5)
    estate = await site.owner(TRANSLATED)
    reported(estate, position=5, source_end_offset=5, target_end_offset=5)
    site.target.add_topic("A.t")
    await estate.target_logs.look_at_ends(estate.topics)
    site.say(estate.watch)
    await estate.refresh(owned=frozenset())
    assert ledger(estate) == [(0, 5, "TARGET_RECREATED")]


async def test_what_only_a_copy_held_that_was_made_anew_is_in_the_gap_as_well(site: Site) -> None:
    """Retention took it from the source after it was copied. What it took from both before is no gap."""
    await site.write(site.source, "t", 20)
    await site.write(site.target, "A.t", 20)
    await (await site.owner(TRANSLATED)).journal.position(P, 20)
    estate = await site.owner(TRANSLATED)
    reported(estate, position=20, source_end_offset=20, target_end_offset=20)
    await site.target.delete_records({TopicPartition("A.t", 0): 3})
    await site.source.delete_records({P: 12})
    await estate.leave()
    site.target.add_topic("A.t")
    later = await site.owner(TRANSLATED)
    assert ledger(later) == [(3, 20, "TARGET_RECREATED")]


async def test_what_only_a_copy_held_that_is_made_again_from_the_beginning_is_a_gap(site: Site) -> None:
    """The new copy gets the source's offsets, and all that the source still holds."""
    await site.write(site.source, "t", 20)
    await site.write(site.target, "A.t", 20)
    await (await site.owner(TRANSLATED)).journal.position(P, 20)
    estate = await site.owner(TRANSLATED)
    reported(estate, position=20, source_end_offset=20, target_end_offset=20)
    await site.target.delete_records({TopicPartition("A.t", 0): 3})
    await site.source.delete_records({P: 12})
    await estate.leave()
    site.target.add_topic("A.t")
    for _ in range(2):
        later = await site.owner(AUTO)
        assert later.table.rows[P].position == 12
        assert ledger(later) == [(3, 12, "TARGET_RECREATED")]


async def test_what_was_never_copied_before_a_copy_is_made_again_is_a_gap(site: Site) -> None:
    await site.write(site.source, "t", 20)
    await (await site.owner(AUTO)).journal.position(P, 6)
    await site.source.delete_records({P: 12})
    site.target.add_topic("A.t")
    assert ledger(await site.owner(AUTO)) == [(6, 12, "TARGET_RECREATED")]


@pytest.mark.parametrize("offsets", ["auto", "preserved"])
async def test_a_copy_that_was_set_aside_begins_again_where_its_target_topic_is_another_one(
    site: Site, offsets: str
) -> None:
    await site.write(site.source, "t", 9)
    estate = await site.owner(f"twinlog.offsets = {offsets}")
    await estate.journal.position(P, 6)
    await estate.reread([P])
    estate.table.apply(CopyChanged(partition=P, copy=None), 0.0)
    aside = SetAside(partition=P, reason="FOREIGN_WRITE", message="who", retry_at=1e9)
    estate.table.apply(aside, 0.0)
    site.target.add_topic("A.t")
    site.say(estate.watch)
    await estate.refresh(owned=frozenset())
    row = estate.table.rows[P]
    assert row.copy is not None
    assert (row.copy.preserved, row.position, row.obstacle) == (True, 0, None)
    assert ledger(estate) == []


async def test_a_gap_of_no_offsets_is_not_written(site: Site) -> None:
    """A copy that held nothing was created again: the source had nothing left when it was copied."""
    await site.write(site.source, "t", 5)
    await (await site.owner()).journal.position(P, 5)
    await site.source.delete_records({P: 5})
    site.target.add_topic("A.t")
    assert ledger(await site.owner()) == []


async def test_what_was_copied_into_the_new_topic_already_is_no_gap_of_a_copy_that_was_made_anew(
    site: Site,
) -> None:
    """Its coming is noticed after the first records are in it."""
    await site.write(site.source, "t", 20)
    await site.write(site.target, "A.t", 5)
    await (await site.owner()).journal.position(P, 5)
    estate = await site.owner()
    reported(estate, position=5, source_end_offset=20, target_end_offset=5)
    site.target.add_topic("A.t")
    await site.write(site.target, "A.t", 3)
    reported(
        estate,
        position=9,
        source_end_offset=20,
        target_end_offset=3,
        target_shortened_to=0,
        target_shortened_at=6,
    )
    await estate.target_logs.note_shortened(estate.topics)
    reported(estate, position=12, source_end_offset=20, target_end_offset=6)
    site.say(estate.watch)
    await estate.refresh(owned=frozenset())
    assert ledger(estate) == [(0, 6, "TARGET_RECREATED")]


async def test_a_copy_that_lost_its_tail_while_nobody_copied_is_a_gap(site: Site) -> None:
    await site.write(site.target, "A.t", 12)
    first = await site.owner()
    await first.journal.position(P, 10)
    reported(first, position=10, source_end_offset=10, target_end_offset=12)
    await first.target_logs.put_ends_on_log(first.topics)
    await site.target.delete_records({TopicPartition("A.t", 0): 6})
    assert ledger(await site.owner()) == [], "what retention took is no loss of the copy"
    site.target.truncate(TopicPartition("A.t", 0), 8)
    second = await site.owner()
    assert ledger(second) == [(6, 10, "TARGET_TRUNCATED")]
    assert second.table.rows[P].position == 10
    await site.write(site.target, "A.t", 1)
    assert ledger(await site.owner()) == [(6, 10, "TARGET_TRUNCATED")], "only once"


@pytest.mark.parametrize("operation", ["describe_topics", "append"])
async def test_a_loss_of_the_copy_is_on_record_once_the_target_answers_again(
    site: Site, operation: str
) -> None:
    """Brokers that lose records are those that do not answer just then."""
    await site.write(site.target, "A.t", 12)
    estate = await site.owner()
    await estate.journal.position(P, 10)
    reported(estate, position=10, source_end_offset=10, target_end_offset=12)
    await estate.target_logs.put_ends_on_log(estate.topics)
    site.target.truncate(TopicPartition("A.t", 0), 8)
    await estate.target_logs.look_at_ends(estate.topics)

    def fails(_: Call) -> None:
        raise from_reason(UNAVAILABLE, operation, alias="B")

    mend = site.target.intercept(operation, fails)
    with pytest.raises(KafkaError):
        await estate.target_logs.put_ends_on_log(estate.topics)
    mend()
    await estate.target_logs.put_ends_on_log(estate.topics)
    assert ledger(estate) == [(6, 10, "TARGET_TRUNCATED")]
    assert ledger(await site.owner()) == [(6, 10, "TARGET_TRUNCATED")]


async def test_a_loss_of_the_copy_is_on_record_before_the_end_it_left(site: Site) -> None:
    """A task says with its last words that the log had lost its tail: nobody would find that later."""
    await site.write(site.target, "A.t", 12)
    estate = await site.owner()
    await estate.journal.position(P, 10)
    reported(estate, position=10, source_end_offset=20, target_end_offset=12)
    site.target.truncate(TopicPartition("A.t", 0), 8)
    await site.write(site.target, "A.t", 6)
    reported(
        estate,
        position=16,
        source_end_offset=20,
        target_end_offset=14,
        target_shortened_to=8,
        target_shortened_at=10,
    )
    await estate.target_logs.put_ends_on_log(estate.topics)
    assert ledger(await site.owner()) == [(6, 10, "TARGET_TRUNCATED")]


async def test_a_copy_whose_topic_cannot_be_described_keeps_its_loss_for_later(site: Site) -> None:
    await site.write(site.target, "A.t", 12)
    estate = await site.owner()
    await estate.journal.position(P, 10)
    reported(estate, position=10, source_end_offset=10, target_end_offset=12)
    site.target.truncate(TopicPartition("A.t", 0), 8)
    await estate.target_logs.look_at_ends(estate.topics)
    topic = site.target.topics.pop("A.t")
    await estate.target_logs.note_shortened(estate.topics)
    site.target.topics["A.t"] = topic
    await estate.target_logs.note_shortened(estate.topics)
    assert ledger(estate) == [(6, 10, "TARGET_TRUNCATED")]


async def test_what_is_copied_while_the_targets_end_is_asked_for_is_no_loss_of_the_copy(site: Site) -> None:
    """A broker that hangs delays the answer about all copies: it is old when it comes."""
    await site.write(site.target, "A.t", 12)
    estate = await site.owner()
    await estate.journal.position(P, 10)
    reported(estate, position=10, source_end_offset=30, target_end_offset=12)

    def goes_on(_: Call) -> None:
        reported(estate, position=20, source_end_offset=30, target_end_offset=22)

    site.target.intercept("list_offsets", goes_on, after=True)
    await estate.target_logs.look_at_ends(estate.topics)
    await estate.target_logs.note_shortened(estate.topics)
    assert ledger(estate) == []
    assert estate.table.rows[P].target_end == 22


@pytest.mark.parametrize("is_set_back", [False, True])
async def test_what_was_copied_again_after_a_position_was_set_back_is_not_taken_for_a_strangers(
    site: Site, is_set_back: bool
) -> None:
    """The position is the one at which the end of the copy was noted: once more."""
    await site.write(site.target, "A.t", 5)
    estate = await site.owner()
    await estate.journal.position(P, 5)
    await estate.positions.refresh()
    site.clock.advance(1)
    reported(estate, position=5, source_end_offset=5, target_end_offset=5)
    await estate.target_logs.put_ends_on_log(estate.topics)
    if is_set_back:
        # Five more lie behind the end that was noted, and their owner is killed before it says so.
        site.clock.advance(1)
        await estate.journal.position(P, 0)
        await estate.journal.position(P, 5)
    later = await site.owner()
    assert later.table.rows[P].target_end == 5
    assert later.assignment(P).target_end_is_exact is not is_set_back


async def test_what_is_copied_again_in_the_same_process_is_not_taken_for_a_strangers(site: Site) -> None:
    estate = await site.owner(TRANSLATED)
    reported(estate, position=5, source_end_offset=5, target_end_offset=5)
    assert estate.assignment(P).target_end_is_exact
    await estate.set_position(P, 0)
    await estate.journal.position(P, 5)
    await estate.reread([P])
    assert not estate.assignment(P).target_end_is_exact


async def test_the_end_that_a_loss_left_is_remembered_with_all_that_is_known_of_it(site: Site) -> None:
    await site.write(site.target, "A.t", 12)
    estate = await site.owner()
    await estate.journal.position(P, 10)
    reported(estate, position=10, source_end_offset=10, target_end_offset=12)
    await site.target.delete_records({TopicPartition("A.t", 0): 5})
    await estate.target_logs.look_at_ends(estate.topics)
    held_from = estate.table.rows[P].held_from
    assert held_from is not None
    site.target.truncate(TopicPartition("A.t", 0), 8)
    await estate.target_logs.look_at_ends(estate.topics)
    await estate.target_logs.note_shortened(estate.topics)
    fact = estate.target_logs.marks.control.targets[P]
    assert (fact.end_offset, fact.position, fact.held_from) == (8, 6, held_from)
    assert fact.noted_at_ms is not None
