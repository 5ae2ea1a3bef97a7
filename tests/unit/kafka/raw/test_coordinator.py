"""What the coordinator of a transactional id is asked again, and what is said when it never agrees."""

from typing import Any, cast

import pytest
from aiokafka.protocol.coordination import FindCoordinatorRequest
from aiokafka.protocol.transaction import InitProducerIdRequest

from twinlog.errors import KafkaError, TransientKafkaError
from twinlog.kafka.codes import ErrorCode
from twinlog.kafka.protocol.client_pool import DataClientPool
from twinlog.kafka.raw.transactions.coordinator import TransactionCoordinator
from twinlog.kafka.raw.transactions.wire import EndAnswer, ProducerIdentity


class Answer:
    coordinator_id = 1

    def __init__(self, error_code: int) -> None:
        self.error_code = error_code


class Session:
    """Each FindCoordinator is refused."""

    alias = "B"

    def __init__(self, code: int) -> None:
        self.code = code
        self.asked = 0

    async def send_any(self, request: Any, _doing: str) -> Answer:
        assert isinstance(request, FindCoordinatorRequest)
        self.asked += 1
        return Answer(self.code)


async def test_a_deadline_names_what_the_last_attempt_met() -> None:
    session = Session(ErrorCode.coordinator_not_available)
    coordinator = TransactionCoordinator(
        cast("DataClientPool", session), "twinlog-A-B-0-0", transaction_timeout_seconds=60
    )
    with pytest.raises(TransientKafkaError) as raised:
        await coordinator.new_identity(timeout_seconds=30)
    assert 1 < session.asked < 60, "it is asked less often the longer it lasts"
    assert raised.value.reason == "KAFKA_TIMEOUT"
    assert str(raised.value) == (
        "cluster B: initialise the producer twinlog-A-B-0-0: no answer in time"
        " (30 s, the last attempt: COORDINATOR_UNAVAILABLE)"
    )


class Initialised:
    """What InitProducerId answers."""

    error_code = 0

    def __init__(self, producer_id: int, producer_epoch: int) -> None:
        self.producer_id = producer_id
        self.producer_epoch = producer_epoch


class IdSession:
    """A coordinator that gives these identities: the first when the id is initialised, the others when its
    transactions end."""

    alias = "B"

    def __init__(self, *identities: tuple[int, int]) -> None:
        self.identities = [ProducerIdentity(*each) for each in identities]

    async def send_any(self, request: Any, _doing: str) -> Answer:
        assert isinstance(request, FindCoordinatorRequest)
        return Answer(0)

    async def make_known(self, nodes: tuple[int, ...], _doing: str) -> None:
        assert nodes == (1,)

    async def send(self, _node: int, request: Any, _doing: str) -> object:
        given = self.identities.pop(0)
        return Initialised(*given) if isinstance(request, InitProducerIdRequest) else EndAnswer(0, given)


async def test_a_producer_id_is_admitted_before_it_is_used() -> None:
    """Also one that the end of a transaction brings, when the epochs of the one before are used up."""
    session = IdSession((7, 3), (7, 4), (9, 0), (9, 1))
    admitted: list[tuple[int, str]] = []

    async def admit(producer_id: int, transactional_id: str) -> None:
        admitted.append((producer_id, transactional_id))

    coordinator = TransactionCoordinator(
        cast("DataClientPool", session), "id", transaction_timeout_seconds=60, admit=admit
    )
    identity = await coordinator.new_identity(timeout_seconds=30)
    assert admitted == [(7, "id")]
    for expected in ([(7, "id")], [(7, "id"), (9, "id")], [(7, "id"), (9, "id")]):
        identity = await coordinator.end(identity, commit=True, timeout_seconds=30)
        assert admitted == expected
    assert identity == (9, 1)


async def test_a_producer_id_that_is_not_admitted_is_not_used() -> None:
    refusals = [TransientKafkaError("B is away", reason="KAFKA_UNAVAILABLE")]

    async def admit(_producer_id: int, _transactional_id: str) -> None:
        if refusals:
            raise refusals.pop()

    coordinator = TransactionCoordinator(
        cast("DataClientPool", IdSession((7, 3), (7, 4))), "id", transaction_timeout_seconds=60, admit=admit
    )
    with pytest.raises(KafkaError, match="away"):
        await coordinator.new_identity(timeout_seconds=30)
    assert await coordinator.new_identity(timeout_seconds=30) == (7, 4), "it is asked again"
