"""When a copy that ends by itself is over: everything has arrived, is gone, or waits for an operator."""

from twinlog.api.common.v1 import types_pb2
from twinlog.api.source.v1 import source_service_pb2 as pb
from twinlog.cli.copying import Arrivals
from twinlog.cli.verify.progress import copy_line
from twinlog.model import TopicPartition

ORDERS, BILLS = TopicPartition("orders", 0), TopicPartition("bills", 1)
RUNNING, FAULTED, BACKOFF = (
    pb.PARTITION_STATE_RUNNING,
    pb.PARTITION_STATE_FAULTED,
    pb.PARTITION_STATE_BACKOFF,
)


def arrivals() -> Arrivals:
    return Arrivals(starts={ORDERS: 100, BILLS: 0}, ends={ORDERS: 200, BILLS: 300})


def status(
    partition: TopicPartition,
    position: int,
    state: "pb.PartitionState.ValueType" = RUNNING,
    reason: str = "",
    message: str = "",
) -> pb.PartitionStatus:
    source = types_pb2.TopicPartition(topic=partition.topic, partition=partition.partition)
    return pb.PartitionStatus(source=source, position=position, state=state, reason=reason, message=message)


def test_it_is_over_when_every_partition_has_arrived() -> None:
    copy = arrivals()
    copy.observe([], 0.0)
    assert not copy.is_over(0.0), "the service has told nothing yet"
    copy.observe([status(ORDERS, 200), status(BILLS, 299)], 1.0)
    assert copy.left == [BILLS]
    assert not copy.is_over(1.0)
    copy.observe([status(BILLS, 300)], 2.0)
    assert copy.is_over(2.0)


def test_a_copy_in_which_there_is_nothing_is_waited_for_until_it_is_there() -> None:
    copy = Arrivals(starts={ORDERS: 7}, ends={ORDERS: 7}, without_copy=frozenset((ORDERS,)))
    assert not copy.is_over(0.0)
    copy.observe([status(ORDERS, 7)], 1.0)
    assert not copy.is_over(1.0)
    there = status(ORDERS, 7)
    there.target_topic_id = "id"
    copy.observe([there], 2.0)
    assert copy.is_over(2.0)


def test_a_topic_that_is_deleted_meanwhile_is_not_waited_for() -> None:
    copy = arrivals()
    copy.observe([status(ORDERS, 200), status(BILLS, 10)], 0.0)
    copy.gone = frozenset(("bills",))
    assert copy.is_over(0.0)


def test_a_cluster_that_is_away_is_waited_for_and_what_needs_an_operator_is_not() -> None:
    copy = arrivals()
    for second in range(600):
        away = status(BILLS, 10, BACKOFF, "KAFKA_UNAVAILABLE", "cluster B does not answer")
        copy.observe([status(ORDERS, 200), away], float(second))
        assert not copy.is_over(float(second))
    copy.observe([status(ORDERS, 200), status(BILLS, 10, FAULTED, "DATA_LOSS")], 600.0)
    assert not copy.is_over(630.0), "it may come back by itself"
    copy.observe([status(BILLS, 20)], 640.0)
    copy.observe([status(BILLS, 20, FAULTED, "DATA_LOSS")], 650.0)
    assert not copy.is_over(700.0)
    assert copy.is_over(711.0)


def test_how_far_it_is_and_what_stands_in_its_way_is_said() -> None:
    copy = arrivals()
    copy.observe([status(ORDERS, 150), status(BILLS, 310)], 0.0)
    assert copy_line(copy.progress, 30.0) == "copy: 88%, 350 of 400 offsets, 30 s left"
    copy.observe([status(ORDERS, 150, BACKOFF, "KAFKA_TIMEOUT", "no answer")], 1.0)
    line = copy_line(copy.progress, None)
    assert line.endswith("time left not known; orders-0: BACKOFF KAFKA_TIMEOUT no answer")
    copy.observe([status(ORDERS, 150)], 2.0)
    copy.observe_flow("INVALID_REPLICATION_FACTOR", "topics cannot be created", 0.0)
    line = copy_line(copy.progress, None)
    assert line.endswith("not known; the flow: INVALID_REPLICATION_FACTOR topics cannot be created")


def test_a_flow_that_kafka_refuses_to_begin_is_not_waited_for_and_its_refusal_is_told() -> None:
    copy = arrivals()
    refusal = "REPLICATION_FACTOR_INVALID", "cluster B has 1 broker(s)"
    for second in (0.0, 59.0):
        copy.observe_flow(*refusal, second)
        assert not copy.is_over(second)
    copy.observe_flow(*refusal, 60.0)
    assert copy.is_over(60.0)
    assert copy.blockers == [(None, *refusal)]
    for reason in ("KAFKA_UNAVAILABLE", "TOPIC_UNKNOWN", ""):
        waiting = arrivals()
        waiting.observe_flow(reason, "", 0.0)
        waiting.observe_flow(reason, "", 9_999.0)
        assert not waiting.is_over(9_999.0), "it comes back by itself"


def test_what_stood_in_the_way_of_a_partition_is_told_when_it_was_given_up() -> None:
    copy = arrivals()
    given_up = status(BILLS, 10, FAULTED, "DATA_LOSS", "offsets 10 to 20")
    for second in (0.0, 60.0):
        copy.observe([status(ORDERS, 200), given_up], second)
        copy.observe_flow("DATA_LOSS", "offsets 10 to 20", second)
    assert copy.is_over(60.0)
    assert copy.blockers == [("bills", "DATA_LOSS", "bills-1: offsets 10 to 20")]
