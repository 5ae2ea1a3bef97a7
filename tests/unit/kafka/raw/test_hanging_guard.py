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
from twinlog.kafka.raw.lookups import OpenTransaction
from twinlog.kafka.raw.transactions.hanging_guard import COMMITTED, OUTCOME, HangingGuard
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


class Rig:
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
    rig = Rig()
    assert not rig.is_clear()
    rig.ask(P)
    rig.ask(P)
    assert len(rig.connection.asked) == 1
    await rig.told((P, 0, [OpenTransaction(OURS.producer_id + 1, 0, 5)]))
    assert rig.is_clear()
    assert rig.changes == 1
    rig.connection.quiet = True
    assert not rig.is_clear()
    rig.connection.quiet = False
    rig.connection.contact += 1
    assert not rig.is_clear()
    rig.ask(P)
    await rig.told((P, 0, []))
    assert rig.is_clear()
    assert not rig.guard.is_clear(P, cast("DataConnection", Connection()))
    rig.guard.forget()
    assert not rig.is_clear()


async def test_what_stays_open_is_refused_and_what_is_just_ending_is_not() -> None:
    rig = Rig()
    rig.guard.all_committed_from(OURS.producer_epoch)
    hanging, ending = OpenTransaction(*OURS, 5), OpenTransaction(OURS.producer_id, OURS.producer_epoch - 1, 9)
    rig.ask(P, OTHER)
    await rig.told((P, 0, [hanging]), (OTHER, 0, [ending]))
    assert rig.not_clear == [None, None]
    rig.ask(P, OTHER)
    assert len(rig.connection.asked) == 1  # a moment later
    rig.now = 1.0
    rig.ask(P, OTHER)
    await rig.told((P, 0, [hanging]), (OTHER, 0, []))
    assert rig.refused.keys() == {P}
    assert rig.refused[P].reason == "HANGING_TRANSACTION"
    assert rig.refused[P].metadata[OUTCOME] == COMMITTED
    assert rig.is_clear(OTHER)
    rig.now = 2.0
    rig.ask(OTHER)
    await rig.told((OTHER, 0, [ending]))
    assert OTHER not in rig.refused  # open for the first time again


async def test_what_hangs_since_before_this_producer_may_have_ended_either_way() -> None:
    rig = Rig()
    rig.guard.all_committed_from(OURS.producer_epoch)
    earlier = OpenTransaction(OURS.producer_id, OURS.producer_epoch - 1, 9)
    for rig.now in (0.0, 1.0):
        rig.ask(P)
        await rig.told((P, 0, [earlier]))
    assert OUTCOME not in rig.refused[P].metadata


@pytest.mark.parametrize("fails_at_once", [True, False])
async def test_who_gets_no_answer_asks_again_after_a_pause(*, fails_at_once: bool) -> None:
    rig = Rig()
    if fails_at_once:
        rig.connection.refusal = KafkaConnectionError("gone")
        rig.ask(P)
        rig.connection.refusal = None
    else:
        rig.ask(P)
        await rig.failed(KafkaConnectionError("gone"))
    (failure,) = rig.not_clear
    assert failure is not None
    assert failure.retriable
    assert not rig.is_clear()
    asked = len(rig.connection.asked)
    rig.ask(P)
    assert len(rig.connection.asked) == asked
    rig.now = 2 * PAUSE_SECONDS
    rig.ask(P)
    await rig.told((P, NOT_LEADER, []))
    assert not rig.is_clear()
    rig.now = 4 * PAUSE_SECONDS
    rig.ask(P)
    await rig.told((P, 0, []))
    assert rig.is_clear()


async def test_a_broker_that_cannot_or_may_not_tell_is_taken_as_it_is() -> None:
    rig = Rig()
    rig.connection.refusal = IncompatibleBrokerVersion("too old")
    rig.ask(P)
    assert rig.is_clear()
    rig.connection.refusal = None
    rig.ask(OTHER)
    await rig.told((OTHER, UNAUTHORIZED, []))
    assert rig.is_clear(OTHER)
    assert rig.not_clear == []


async def test_a_transaction_that_hangs_is_found_though_no_other_follows() -> None:
    rig = Rig()
    rig.guard.ended([P, OTHER])
    rig.now = 5.0
    assert rig.guard.ended_before(0.0) == {P, OTHER}
    rig.look(P, OTHER)
    assert rig.guard.ended_before(0.0) == set(), "asked already"
    await rig.told((P, 0, [OpenTransaction(*OURS, 5)]), (OTHER, 0, []))
    assert not rig.refused, "a slow leader may just be ending it"
    assert rig.guard.ended_before(0.0) == {P}
    rig.now = 5.5
    rig.look(P)
    await rig.told((P, 0, [OpenTransaction(*OURS, 5)]))
    assert rig.refused.keys() == {P}
    assert rig.refused[P].metadata[OUTCOME] == COMMITTED
    assert rig.guard.first_ended_at is None


async def test_a_transaction_that_was_just_ending_when_nothing_followed_does_not_hang() -> None:
    rig = Rig()
    rig.guard.ended([P])
    rig.now = 5.0
    rig.look(P)
    await rig.told((P, 0, [OpenTransaction(*OURS, 5)]))
    rig.now = 5.5
    rig.look(P)
    await rig.told((P, 0, []))
    assert not rig.refused
    assert rig.guard.first_ended_at is None


async def test_a_transaction_that_began_meanwhile_does_not_hang() -> None:
    rig = Rig()
    rig.guard.ended([P])
    rig.look(P)
    rig.guard.begun(P)
    await rig.told((P, 0, [OpenTransaction(*OURS, 5)]))
    assert not rig.refused
    assert rig.guard.first_ended_at is None


async def test_a_transaction_that_ended_since_the_question_is_looked_at_again() -> None:
    rig = Rig()
    rig.guard.ended([P])
    rig.look(P)
    rig.guard.begun(P)
    rig.now = 1.0
    rig.guard.ended([P])
    await rig.told((P, 0, [OpenTransaction(*OURS, 5)]))
    assert not rig.refused
    assert rig.guard.first_ended_at == 1.0


async def test_a_leader_that_did_not_say_is_asked_again_and_one_that_may_not_is_not() -> None:
    rig = Rig()
    rig.guard.ended([P, OTHER])
    rig.look(P, OTHER)
    await rig.told((P, NOT_LEADER, []), (OTHER, UNAUTHORIZED, []))
    assert rig.guard.ended_before(0.0) == {P}
    rig.look(P)
    await rig.failed(KafkaConnectionError())
    rig.connection.refusal = KafkaConnectionError()
    rig.look(P)
    assert rig.guard.ended_before(0.0) == {P}
    rig.connection.refusal = IncompatibleBrokerVersion()
    rig.look(P)
    assert rig.guard.first_ended_at is None
    assert not rig.refused
