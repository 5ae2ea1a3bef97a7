"""When a partition is clear for the first batch of a transaction."""

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, cast

import pytest
from aiokafka.errors import IncompatibleBrokerVersion, KafkaConnectionError

from twinlog.errors import KafkaError
from twinlog.kafka.deadline import pause
from twinlog.kafka.protocol.data_connection import DataConnection
from twinlog.kafka.raw.transactions.hanging_guard import COMMITTED, OUTCOME, HangingGuard
from twinlog.kafka.raw.transactions.open_transactions import OpenTransaction
from twinlog.kafka.raw.transactions.wire import ProducerIdentity
from twinlog.model import TopicPartition

P, OTHER = TopicPartition("t", 0), TopicPartition("t", 1)
OURS = ProducerIdentity(7, 3)
NOT_LEADER, UNAUTHORIZED = 6, 29
PAUSE_SECONDS = 0.05


@dataclass(eq=False)
class Connection:
    """A broker that answers when the test says so."""

    contact: int = 0
    quiet: bool = False
    asked: list["asyncio.Future[Any]"] = field(default_factory=list)
    refusal: Exception | None = None

    def is_quiet(self) -> bool:
        return self.quiet

    def post(self, _request: object) -> "asyncio.Future[Any]":
        if self.refusal is not None:
            raise self.refusal
        self.asked.append(asyncio.get_running_loop().create_future())
        return self.asked[-1]


class Bench:
    def __init__(self) -> None:
        self.now = 0.0
        self.connection = Connection()
        self.refused: dict[TopicPartition, KafkaError] = {}
        self.not_clear: list[KafkaError | None] = []
        self.changes = 0
        self.guard = HangingGuard(
            "B",
            pause_seconds=PAUSE_SECONDS,
            refuse=self.refuse,
            not_clear=self.not_clear.append,
            changed=self.change,
            now=lambda: self.now,
        )

    def refuse(self, refused: Mapping[TopicPartition, KafkaError]) -> None:
        self.refused.update(refused)

    def change(self) -> None:
        self.changes += 1

    def ask(self, *partitions: TopicPartition) -> None:
        self.guard.ask({cast("DataConnection", self.connection): set(partitions)}, OURS.producer_id)

    def look(self, *partitions: TopicPartition) -> None:
        self.guard.look({cast("DataConnection", self.connection): partitions}, OURS.producer_id)

    async def told(self, *answers: tuple[TopicPartition, int, list[OpenTransaction]]) -> None:
        self.connection.asked[-1].set_result(list(answers))
        await pause(0)

    async def failed(self, error: Exception) -> None:
        self.connection.asked[-1].set_exception(error)
        await pause(0)

    def is_clear(self, partition: TopicPartition = P) -> bool:
        return self.guard.is_clear(partition, cast("DataConnection", self.connection))


async def test_a_partition_is_clear_while_its_leader_is_heard_without_a_break() -> None:
    bench = Bench()
    assert not bench.is_clear()
    bench.ask(P)
    bench.ask(P)
    assert len(bench.connection.asked) == 1
    await bench.told((P, 0, [OpenTransaction(OURS.producer_id + 1, 0, 5)]))
    assert bench.is_clear()
    assert bench.changes == 1
    bench.connection.quiet = True
    assert not bench.is_clear()
    bench.connection.quiet = False
    bench.connection.contact += 1
    assert not bench.is_clear()
    bench.ask(P)
    await bench.told((P, 0, []))
    assert bench.is_clear()
    assert not bench.guard.is_clear(P, cast("DataConnection", Connection()))
    bench.guard.forget()
    assert not bench.is_clear()


async def test_what_stays_open_is_refused_and_what_is_just_ending_is_not() -> None:
    bench = Bench()
    bench.guard.all_committed_from(OURS.producer_epoch)
    hanging, ending = OpenTransaction(*OURS, 5), OpenTransaction(OURS.producer_id, OURS.producer_epoch - 1, 9)
    bench.ask(P, OTHER)
    await bench.told((P, 0, [hanging]), (OTHER, 0, [ending]))
    assert bench.not_clear == [None, None]
    bench.ask(P, OTHER)
    assert len(bench.connection.asked) == 1  # a moment later
    bench.now = 1.0
    bench.ask(P, OTHER)
    await bench.told((P, 0, [hanging]), (OTHER, 0, []))
    assert bench.refused.keys() == {P}
    assert bench.refused[P].reason == "HANGING_TRANSACTION"
    assert bench.refused[P].metadata[OUTCOME] == COMMITTED
    assert bench.is_clear(OTHER)
    bench.now = 2.0
    bench.ask(OTHER)
    await bench.told((OTHER, 0, [ending]))
    assert OTHER not in bench.refused  # open for the first time again


async def test_what_hangs_since_before_this_producer_may_have_ended_either_way() -> None:
    bench = Bench()
    bench.guard.all_committed_from(OURS.producer_epoch)
    earlier = OpenTransaction(OURS.producer_id, OURS.producer_epoch - 1, 9)
    for bench.now in (0.0, 1.0):
        bench.ask(P)
        await bench.told((P, 0, [earlier]))
    assert OUTCOME not in bench.refused[P].metadata


@pytest.mark.parametrize("fails_at_once", [True, False])
async def test_who_gets_no_answer_asks_again_after_a_pause(*, fails_at_once: bool) -> None:
    bench = Bench()
    if fails_at_once:
        bench.connection.refusal = KafkaConnectionError("gone")
        bench.ask(P)
        bench.connection.refusal = None
    else:
        bench.ask(P)
        await bench.failed(KafkaConnectionError("gone"))
    (failure,) = bench.not_clear
    assert failure is not None
    assert failure.retriable
    assert not bench.is_clear()
    asked = len(bench.connection.asked)
    bench.ask(P)
    assert len(bench.connection.asked) == asked
    bench.now = 2 * PAUSE_SECONDS
    bench.ask(P)
    await bench.told((P, NOT_LEADER, []))
    assert not bench.is_clear()
    bench.now = 4 * PAUSE_SECONDS
    bench.ask(P)
    await bench.told((P, 0, []))
    assert bench.is_clear()


async def test_a_broker_that_cannot_or_may_not_tell_is_taken_as_it_is() -> None:
    bench = Bench()
    bench.connection.refusal = IncompatibleBrokerVersion("too old")
    bench.ask(P)
    assert bench.is_clear()
    bench.connection.refusal = None
    bench.ask(OTHER)
    await bench.told((OTHER, UNAUTHORIZED, []))
    assert bench.is_clear(OTHER)
    assert bench.not_clear == []


async def test_a_transaction_that_hangs_is_found_though_no_other_follows() -> None:
    bench = Bench()
    bench.guard.ended([P, OTHER])
    bench.now = 5.0
    assert bench.guard.ended_before(0.0) == {P, OTHER}
    bench.look(P, OTHER)
    assert bench.guard.ended_before(0.0) == set(), "asked already"
    await bench.told((P, 0, [OpenTransaction(*OURS, 5)]), (OTHER, 0, []))
    assert bench.refused.keys() == {P}
    assert bench.refused[P].metadata[OUTCOME] == COMMITTED
    assert bench.guard.first_ended_at is None


async def test_a_transaction_that_began_meanwhile_does_not_hang() -> None:
    bench = Bench()
    bench.guard.ended([P])
    bench.look(P)
    bench.guard.begun(P)
    await bench.told((P, 0, [OpenTransaction(*OURS, 5)]))
    assert not bench.refused
    assert bench.guard.first_ended_at is None


async def test_a_transaction_that_ended_since_the_question_is_looked_at_again() -> None:
    bench = Bench()
    bench.guard.ended([P])
    bench.look(P)
    bench.guard.begun(P)
    bench.now = 1.0
    bench.guard.ended([P])
    await bench.told((P, 0, [OpenTransaction(*OURS, 5)]))
    assert not bench.refused
    assert bench.guard.first_ended_at == 1.0


async def test_a_leader_that_did_not_say_is_asked_again_and_one_that_may_not_is_not() -> None:
    bench = Bench()
    bench.guard.ended([P, OTHER])
    bench.look(P, OTHER)
    await bench.told((P, NOT_LEADER, []), (OTHER, UNAUTHORIZED, []))
    assert bench.guard.ended_before(0.0) == {P}
    bench.look(P)
    await bench.failed(KafkaConnectionError())
    bench.connection.refusal = KafkaConnectionError()
    bench.look(P)
    assert bench.guard.ended_before(0.0) == {P}
    bench.connection.refusal = IncompatibleBrokerVersion()
    bench.look(P)
    assert bench.guard.first_ended_at is None
    assert not bench.refused
