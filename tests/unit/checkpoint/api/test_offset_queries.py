"""TranslateOffsets and ExplainGroup on two fake clusters."""

import pytest

from twinlog.errors import ConfigError, StateError
from twinlog.model import TopicPartition
from twinlog_checkpoint.api.group_explainer import Rule, explain_group
from twinlog_checkpoint.api.offset_queries import MAX_QUERIES, Direction, OffsetQuery, answer_queries
from twinlog_checkpoint.translation.translation import Verdict
from unit.checkpoint.mirrored_logs import COPY, ORIGIN
from unit.checkpoint.moves.move_rig import MoveRig


async def test_offsets_go_there_and_back_to_the_same_record(rig: MoveRig) -> None:
    records = rig.logs.visible_source()
    wanted = [records[index].offset for index in (0, 17, 120, 200)]
    queries = [OffsetQuery(partition=ORIGIN, offset=offset) for offset in wanted]
    there = await answer_queries(rig.parts, Direction.FORWARD, queries)
    assert [answer.partition for answer in there] == [COPY] * 4
    assert {answer.translation.verdict for answer in there} == {Verdict.EXACT}
    back = await answer_queries(
        rig.parts,
        Direction.BACK,
        [OffsetQuery(partition=COPY, offset=answer.translation.downstream_offset) for answer in there],
    )
    assert [answer.translation.downstream_offset for answer in back] == wanted
    assert [answer.partition for answer in back] == [ORIGIN] * 4


async def test_times_are_looked_up_first(rig: MoveRig) -> None:
    records = rig.logs.visible_source()
    asked = records[100].timestamp_ms
    first = next(record for record in records if record.timestamp_ms >= asked)
    late = records[-1].timestamp_ms + 1
    queries = [
        OffsetQuery(partition=ORIGIN, timestamp_ms=asked),
        OffsetQuery(partition=ORIGIN, timestamp_ms=late),
        OffsetQuery(partition=ORIGIN, timestamp_ms=asked),
    ]
    found, nothing, again = await answer_queries(rig.parts, Direction.FORWARD, queries)
    assert found.offset == again.offset
    assert found.offset is not None
    assert found.offset <= first.offset
    rig.logs.check(found.offset, found.translation.downstream_offset or 0)
    assert (nothing.offset, nothing.translation.downstream_offset) == (None, None)


async def test_what_cannot_be_translated_says_why(rig: MoveRig) -> None:
    rig.logs.source.add_topic("__internal")
    queries = [
        OffsetQuery(partition=TopicPartition("missing", 0), offset=1),
        OffsetQuery(partition=TopicPartition("__internal", 0), offset=0),
        OffsetQuery(partition=ORIGIN, offset=rig.source_end + 1000),
    ]
    missing, internal, beyond = await answer_queries(rig.parts, Direction.FORWARD, queries)
    foreign = await answer_queries(rig.parts, Direction.BACK, [OffsetQuery(partition=ORIGIN, offset=1)])
    assert "A has no partition missing-0" in missing.translation.message
    assert internal.translation.verdict is Verdict.NOT_REPLICATED
    assert beyond.translation.verdict is Verdict.PAST_END
    assert f"ends at {rig.source_end}" in beyond.translation.message
    assert beyond.translation.downstream_offset is None
    assert foreign[0].translation.verdict is Verdict.NOT_REPLICATED
    assert (missing.translation.downstream_offset, internal.translation.downstream_offset) == (None, None)


async def test_too_many_queries_are_refused(rig: MoveRig) -> None:
    queries = [OffsetQuery(partition=ORIGIN, offset=0)] * (MAX_QUERIES + 1)
    with pytest.raises(ConfigError, match="at most"):
        await answer_queries(rig.parts, Direction.FORWARD, queries)


async def test_nothing_is_answered_before_the_syncs_are_read(rig: MoveRig) -> None:
    unread = rig.fakes.parts()
    with pytest.raises(StateError) as refused:
        await answer_queries(unread, Direction.FORWARD, [OffsetQuery(partition=ORIGIN, offset=0)])
    assert refused.value.reason == "NOT_READY"


@pytest.mark.parametrize(
    ("group", "rule"),
    [
        ("console-consumer-1", Rule.FILTER),
        ("nobody", Rule.EXISTS),
        ("shared", Rule.TYPE),
        ("fresh", Rule.OFFSETS),
        ("elsewhere", Rule.OFFSETS),
    ],
)
async def test_the_first_rule_against_a_group_is_named(rig: MoveRig, group: str, rule: Rule) -> None:
    source = rig.logs.source
    source.add_topic("__other")
    source.set_group("console-consumer-1", {ORIGIN: 1})
    source.set_group("shared", group_type="share")
    source.set_group("fresh")
    source.set_group("elsewhere", {TopicPartition("__other", 0): 1})
    await rig.parts.checkpointer.groups.present(())
    explanation = await explain_group(rig.parts, group, [])
    assert not explanation.translated
    assert explanation.findings[-1].rule is rule
    assert [finding.passed for finding in explanation.findings] == [
        *[True] * (len(explanation.findings) - 1),
        False,
    ]


async def test_a_translated_group_shows_its_way_through_every_rule(rig: MoveRig) -> None:
    rig.logs.source.set_group("g", {ORIGIN: 100})
    rig.fakes.clock.advance(60)
    await rig.fakes.do_pass(rig.parts.checkpointer)
    explanation = await explain_group(rig.parts, "g", [])
    assert explanation.translated
    assert {finding.rule for finding in explanation.findings} == set(Rule)
    assert [row.translation.verdict for row in explanation.rows] == [Verdict.EXACT]
    assert (explanation.state_on_source, explanation.state_on_target) == ("EMPTY", "DEAD")
