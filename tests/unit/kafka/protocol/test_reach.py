"""The order in which brokers and addresses are tried."""

import pytest

from twinlog.kafka.protocol.reach import AddressOrder, NodeChoice, address_seconds


def test_a_broker_with_an_open_connection_is_asked_first() -> None:
    assert NodeChoice().ordered([1, 2, 3], {3}, now=0.0) == [3, 1, 2]


def test_the_broker_that_told_last_comes_behind_the_others_that_can_be_reached() -> None:
    choice = NodeChoice()
    choice.failed(2, now=0.0)
    assert choice.ordered([1, 2, 3, 4], {1, 4}, now=0.0, told_last=1) == [4, 3, 1, 2]


def test_a_broker_that_failed_is_left_out_for_its_back_off_and_asked_last_meanwhile() -> None:
    choice = NodeChoice()
    choice.failed(1, now=0.0)
    assert choice.ordered([1, 2], {1}, now=0.4) == [2, 1]
    assert choice.ordered([1, 2], {1}, now=0.5) == [1, 2]
    for _ in range(9):
        choice.failed(1, now=1.0)
    assert choice.ordered([1, 2], {1}, now=10.9) == [2, 1]
    assert choice.ordered([1, 2], {1}, now=11.0) == [1, 2]
    choice.failed(1, now=12.0)
    choice.answered(1)
    assert choice.ordered([1, 2], {1}, now=12.0) == [1, 2]


def test_the_next_attempt_begins_behind_the_address_that_failed() -> None:
    order = AddressOrder()
    assert order.of("kafka", ["a", "b", "a", "c"]) == ["a", "b", "c"]
    order.failed("kafka", "a")
    assert order.of("kafka", ["a", "b", "c"]) == ["b", "c", "a"]
    order.failed("kafka", "b")
    order.failed("kafka", "c")
    assert order.of("kafka", ["a", "b", "c"]) == ["a", "b", "c"]
    assert order.of("other", ["a", "b"]) == ["a", "b"]
    order.failed("kafka", "gone")
    assert order.of("kafka", ["a", "b"]) == ["a", "b"]


@pytest.mark.parametrize(("timeout", "count", "share"), [(15.0, 2, 3.0), (15.0, 10, 1.5), (2.0, 2, 1.0)])
def test_each_address_has_a_share_of_the_time(timeout: float, count: int, share: float) -> None:
    assert address_seconds(timeout, count) == share
