"""Every answer to "why is this topic (not) replicated?"."""

from pathlib import Path

import pytest

from twinlog.errors import FatalKafkaError
from twinlog.testing.fakes.cluster import Call
from twinlog_configsync.planning.explain import Explained, Explanation
from unit.configsync.configsync_rig import ConfigSyncRig, make_flow


@pytest.fixture
async def flow(tmp_path: Path) -> ConfigSyncRig:
    flow = make_flow(
        tmp_path, {"topics": "orders.*, A.*, B.*, mm2.*, gone, later", "topics.exclude": "orders-old"}
    )
    for name in ("orders", "orders-old", "users", "mm2-x.internal", "B.orders", "gone", "heartbeats"):
        flow.source.add_topic(name)
    await flow.refresh()
    return flow


async def the_answer(flow: ConfigSyncRig, topic: str) -> Explanation:
    (explanation,) = await flow.commands.explain(topic)
    return explanation


@pytest.mark.parametrize(
    ("topic", "verdict", "rule"),
    [
        ("orders", Explained.REPLICATED, "replicated as A.orders: topics: pattern 'orders.*'"),
        ("heartbeats", Explained.REPLICATED, "replicated as A.heartbeats: heartbeats.replication.enabled"),
        ("orders-old", Explained.EXCLUDED, "topics.exclude: pattern 'orders-old'"),
        ("users", Explained.NOT_INCLUDED, "topics: no pattern matches"),
        ("mm2-x.internal", Explained.INTERNAL, "an internal topic of the mirror (mm2…internal)"),
        (
            "B.orders",
            Explained.CYCLE,
            "its name says that it came through cluster B: copying it would form a loop",
        ),
        (
            "orders-2",
            Explained.NO_SUCH_TOPIC,
            "neither A nor B shows it; it would be replicated as A.orders-2 (topics: pattern 'orders.*')",
        ),
        ("nothing", Explained.NO_SUCH_TOPIC, "neither A nor B shows it; it would not be replicated"),
        ("bad name", Explained.NO_SUCH_TOPIC, "no topic can have this name"),
        ("..", Explained.NO_SUCH_TOPIC, "no topic can have this name"),
        ("A.orders", Explained.COUNTERPART, "the copy of orders of A"),
    ],
)
async def test_the_first_rule_that_decided(
    flow: ConfigSyncRig, topic: str, verdict: Explained, rule: str
) -> None:
    answer = await the_answer(flow, topic)
    assert (answer.verdict, answer.rule[: len(rule)]) == (verdict, rule)


async def test_a_topic_that_the_next_refresh_takes_up(flow: ConfigSyncRig) -> None:
    flow.source.add_topic("later")
    answer = await the_answer(flow, "later")
    assert (answer.verdict, answer.target_topic) == (Explained.WAITING, "A.later")
    assert answer.offsets is not None
    assert (answer.offsets.preserved, answer.offsets.filled_offsets) == (True, 0)
    flow.target.add_topic("A.later")
    assert (await the_answer(flow, "later")).offsets is None, "its copy exists: nothing is known of that"


async def test_of_a_topic_that_waits_it_is_said_which_offsets_its_copy_will_have(flow: ConfigSyncRig) -> None:
    flow.source.add_topic("later", 1, {"cleanup.policy": "compact"})
    offsets = (await the_answer(flow, "later")).offsets
    assert offsets is not None
    assert (offsets.preserved, offsets.reason) == (False, "COMPACTED")
    assert (await the_answer(flow, "orders")).offsets is None


async def test_a_topic_that_waits_says_for_what(tmp_path: Path) -> None:
    flow = make_flow(tmp_path, {"replication.factor": "3"})
    flow.source.add_topic("orders")
    await flow.refresh()
    answer = await the_answer(flow, "orders")
    assert answer.verdict is Explained.WAITING
    assert answer.rule.startswith("waiting for creation because REPLICATION_FACTOR_UNSATISFIABLE")


async def test_a_deleted_topic_and_its_copy(flow: ConfigSyncRig) -> None:
    await flow.source.delete_topics(["gone"])
    await flow.refresh()
    answer = await the_answer(flow, "gone")
    assert (answer.verdict, answer.rule) == (
        Explained.DELETED_AT_SOURCE,
        "gone is gone from the source; A.gone stays (twinlog.sync.topic.deletes.enabled=false)",
    )
    copy = await the_answer(flow, "A.gone")
    assert (copy.verdict, copy.rule) == (
        Explained.COUNTERPART,
        "the copy of gone of A, which was deleted there",
    )


async def test_a_topic_that_is_gone_from_both_sides_is_not_waited_for(flow: ConfigSyncRig) -> None:
    await flow.source.delete_topics(["gone"])
    await flow.target.delete_topics(["A.gone"])
    await flow.refresh()
    assert (await the_answer(flow, "gone")).verdict is Explained.NO_SUCH_TOPIC
    assert (await the_answer(flow, "A.gone")).verdict is Explained.NO_SUCH_TOPIC


@pytest.mark.parametrize(
    ("topic", "rule"),
    [
        ("own", "no topic of A is copied to it"),
        (
            "A.users",
            "it would be the copy of users of A, which is not replicated: topics: no pattern matches",
        ),
        ("A.orders-9", "it would be the copy of orders-9 of A, which does not exist"),
    ],
)
async def test_a_topic_of_the_targets_own(flow: ConfigSyncRig, topic: str, rule: str) -> None:
    flow.target.add_topic(topic)
    answer = await the_answer(flow, topic)
    assert (answer.cluster, answer.verdict, answer.rule) == ("B", Explained.NO_COUNTERPART, rule)


async def test_a_topic_we_may_not_describe(flow: ConfigSyncRig) -> None:
    refusal = FatalKafkaError("an ACL for the topic is missing", reason="TOPIC_UNAUTHORIZED", code=29)

    def hide(call: Call) -> None:
        call.result["orders"] = refusal

    flow.source.intercept("describe_topics", hide, after=True)
    answer = await the_answer(flow, "orders")
    assert (answer.verdict, answer.rule) == (Explained.TOPIC_UNAUTHORIZED, str(refusal))


async def test_a_target_that_hides_the_name_adds_nothing_to_the_sources_answer(flow: ConfigSyncRig) -> None:
    refusal = FatalKafkaError("an ACL for the topic is missing", reason="TOPIC_UNAUTHORIZED", code=29)

    def hide(call: Call) -> None:
        call.result.update(dict.fromkeys(call.result, refusal))

    flow.target.intercept("describe_topics", hide, after=True)
    assert (await the_answer(flow, "orders")).verdict is Explained.REPLICATED
    assert (await the_answer(flow, "hidden")).verdict is Explained.TOPIC_UNAUTHORIZED


@pytest.mark.parametrize(
    ("topic", "rule"), [("users", "topics: no pattern matches"), ("orders-old", "topics.exclude: pattern")]
)
async def test_of_a_source_that_is_away_it_is_not_said_that_a_rule_leaves_its_topic_out(
    flow: ConfigSyncRig, topic: str, rule: str
) -> None:
    """It need not have the topic: no rule is to blame, and none to be changed."""
    flow.source.take_away()
    answer = await the_answer(flow, topic)
    assert answer.verdict is Explained.UNKNOWN
    assert answer.rule.startswith("cluster A: ")
    assert f"; if it has {topic}, that is not copied: {rule}" in answer.rule


async def test_a_cluster_that_is_away_is_an_answer(flow: ConfigSyncRig) -> None:
    flow.source.take_away()
    flow.target.take_away()
    verdicts = {answer.cluster: answer.verdict for answer in await flow.commands.explain("orders")}
    assert verdicts == {"A": Explained.UNKNOWN, "B": Explained.UNKNOWN}
