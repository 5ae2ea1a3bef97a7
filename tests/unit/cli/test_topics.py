"""Which topics of a flow are copied, and why one is not."""

from collections.abc import Coroutine
from typing import Any

import typer
from typer.testing import CliRunner

from twinlog.api.common.v1 import types_pb2
from twinlog.api.configsync.v1 import configsync_service_pb2 as pb2
from twinlog.cli.common.failures import RUN
from twinlog.cli.common.fields import as_json, cells_of
from twinlog.cli.configsync.topics import TOPIC, cycle_words, is_troubled, topics_command
from twinlog.errors import ConfigError


def topic(state: str = "READY", *, reason: str = "", made: int = 3) -> pb2.ReplicatedTopic:
    return pb2.ReplicatedTopic(
        flow=types_pb2.Flow(source="A", target="B"),
        source_topic="orders",
        target_topic="A.orders",
        partition_count=3,
        target_partition_count=made,
        state=pb2.TopicState.Value(f"TOPIC_STATE_{state}"),
        reason=reason,
        message="in words" if reason else "",
        generation=1,
    )


def test_a_topic_that_waits_says_why_and_how_much_of_it_is_there() -> None:
    waiting = topic("WAITING", reason="REPLICATION_FACTOR_INVALID", made=0)
    assert cells_of(TOPIC, waiting) == [
        *("A->B", "orders", "A.orders", "0 of 3", "WAITING", "REPLICATION_FACTOR_INVALID in words")
    ]
    assert cells_of(TOPIC, topic())[3:] == ["3", "READY", ""]
    routed = topic()
    routed.routed_from = "orders"
    assert cells_of(TOPIC, routed)[3:] == ["3", "READY", "records of orders go there"]


def test_what_is_copied_and_not_in_step_is_among_those_that_wait() -> None:
    several = [topic(), topic(reason="PLAN_PENDING"), topic("WAITING"), topic("DELETED_AT_SOURCE")]
    assert [is_troubled(each) for each in several] == [False, True, True, True]


def test_programs_get_null_where_nothing_is_wrong() -> None:
    document = as_json(TOPIC, topic())
    assert (document["state"], document["reason"], document["message"]) == ("READY", None, None)
    assert (document["partition_count"], document["target_partition_count"]) == (3, 3)


def test_what_is_no_flow_is_refused_before_anybody_is_asked() -> None:
    def ask(work: Coroutine[Any, Any, Any]) -> None:
        work.close()
        raise AssertionError("somebody is asked")

    app, token = typer.Typer(), RUN.set(ask)
    app.command()(topics_command)
    try:
        assert isinstance(CliRunner().invoke(app, ["orders"]).exception, ConfigError)
    finally:
        RUN.reset(token)


def test_topics_that_are_kept_out_by_their_names_are_named_by_cluster() -> None:
    many = {f"B.{number}": "B" for number in range(7)}
    assert cycle_words({**many, "A.orders": "A"}) == {
        "A": "not copied, because by their names they came through A: A.orders",
        "B": "not copied, because by their names they came through B: B.0, B.1, B.2, B.3, B.4 and 2 more",
    }
    assert cycle_words({}) == {}
