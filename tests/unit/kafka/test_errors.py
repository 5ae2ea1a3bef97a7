"""Client errors by code, and the table they come from."""

import ssl

import aiokafka.errors
import pytest

from twinlog.errors import FatalKafkaError, TransientKafkaError
from twinlog.kafka.clients import apply_aiokafka_fixes
from twinlog.kafka.errors import KAFKA_REASONS, TIMEOUT, from_code, from_reason, translate
from twinlog.reasons import KAFKA
from unit.cases import about


def test_codes_have_reasons() -> None:
    for code, reason, retriable in [
        (-1, "KAFKA_SERVER_ERROR", True),
        (1, "OFFSET_OUT_OF_RANGE", False),
        (3, "TOPIC_UNKNOWN", False),
        (6, "LEADER_UNAVAILABLE", True),
        (7, "KAFKA_TIMEOUT", True),
        (10, "RECORD_TOO_LARGE", False),
        (16, "COORDINATOR_UNAVAILABLE", True),
        (19, "NOT_ENOUGH_REPLICAS", True),
        (29, "TOPIC_UNAUTHORIZED", False),
        (30, "GROUP_UNAUTHORIZED", False),
        (31, "CLUSTER_UNAUTHORIZED", False),
        (32, "TIMESTAMP_REFUSED", False),
        (36, "TOPIC_EXISTS", False),
        (43, "UNSUPPORTED_FOR_MESSAGE_FORMAT", False),
        (47, "PRODUCER_FENCED", False),
        (54, "NO_AUTHORIZER", False),
        (58, "AUTHENTICATION_FAILED", False),
        (68, "GROUP_ACTIVE", False),
        (74, "LEADER_UNAVAILABLE", True),
        (87, "RECORD_INVALID", False),
        (90, "PRODUCER_FENCED", False),
        (100, "TOPIC_CHANGED", True),
        (106, "FETCH_SESSION_LOST", True),
        (4711, "KAFKA_REFUSED", False),
    ]:
        with about(code, reason, retriable):
            error = from_code(code, "append to t-0", alias="A", detail="more")
            assert (error.reason, error.retriable, error.code) == (reason, retriable, code)
            assert isinstance(error, TransientKafkaError if retriable else FatalKafkaError)
            assert str(error).startswith("cluster A: append to t-0: ")
            assert error.metadata == {"cluster": "A", "doing": "append to t-0", "detail": "more"}


@pytest.mark.parametrize("code", [74, 75, 78, 87, 90, 100])
def test_codes_that_aiokafka_does_not_know_keep_their_number(code: int) -> None:
    apply_aiokafka_fixes()
    raised = aiokafka.errors.for_code(code)()
    assert raised.retriable is KAFKA_REASONS[code].retriable
    assert translate(raised, "read").code == code


def test_every_error_of_aiokafka_has_a_row() -> None:
    apply_aiokafka_fixes()
    known = set(aiokafka.errors.kafka_errors) - {0}
    without = {code for code in known if code not in KAFKA_REASONS}
    # Protocols, fetch sessions and delegation tokens, which Twinlog never uses.
    assert without == {11, 21, 23, 28, 57, 61, 62, 63, 64, 65, 66, 67}


def test_what_aiokafka_retries_is_retriable_here() -> None:
    apply_aiokafka_fixes()
    for code, kind in aiokafka.errors.kafka_errors.items():
        # An unknown topic is retried within the call and is final after it.
        if kind.retriable and code != 3:
            assert KAFKA_REASONS[code].retriable, kind


def test_a_broker_that_was_asked_alone_is_the_one_that_is_named() -> None:
    """The others may well be there."""
    closed = aiokafka.errors.KafkaConnectionError("Connection at b1:9092 closed")
    error = translate(closed, "ask for the end of logs", alias="B", node_id=1)
    assert error.reason == "KAFKA_UNAVAILABLE"
    assert "broker 1 cannot be reached" in str(error)
    assert "no broker can be reached" in str(translate(closed, "connect", alias="B"))


def test_a_broker_that_is_away_is_named_without_the_librarys_words() -> None:
    """A cause stays where it tells something."""
    bare = "cluster B: ask: broker 3 cannot be reached"
    for raised, told in [
        (aiokafka.errors.NodeNotReadyError("Attempt to send a request to node (node id 3)."), bare),
        (aiokafka.errors.NodeNotReadyError(), bare),
        (aiokafka.errors.KafkaConnectionError(), bare),
        (aiokafka.errors.KafkaConnectionError("at b3:9092 closed"), f"{bare} (at b3:9092 closed)"),
        (ConnectionRefusedError(111, "refused"), f"{bare} ([Errno 111] refused)"),
        (ConnectionResetError("Connection lost"), f"{bare} (ConnectionResetError: Connection lost)"),
    ]:
        with about(raised, told):
            assert str(translate(raised, "ask", alias="B", node_id=3)) == told
    unready = aiokafka.errors.NodeNotReadyError("of node id 3")
    assert str(translate(unready, "ask")).endswith("(of node id 3)"), "the only word of which one"
    for failed, word in [
        (TimeoutError(), "TimeoutError"),
        (ssl.SSLError("bad record"), "SSLError: "),
        (aiokafka.errors.AuthenticationFailedError("no user"), "AuthenticationFailedError: no user"),
    ]:
        with about(failed, word):
            assert f"({word}" in str(translate(failed, "ask", node_id=3))


def test_our_own_errors_pass_as_they_are() -> None:
    error = from_reason(TIMEOUT, "ask")
    assert translate(error, "ask again") is error


def test_a_reason_means_one_thing() -> None:
    facts: dict[str, bool] = {}
    for row in KAFKA.reasons:
        assert facts.setdefault(row.name, row.retriable) is row.retriable, row
