"""What the coordinator of a transactional id is asked again, and what is said when it never agrees."""

from typing import Any, cast

import pytest
from aiokafka.protocol.coordination import FindCoordinatorRequest

from twinlog.errors import TransientKafkaError
from twinlog.kafka.codes import ErrorCode
from twinlog.kafka.protocol.client_pool import DataClientPool
from twinlog.kafka.raw.transactions.coordinator import TransactionCoordinator


class Answer:
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
    session = Session(ErrorCode.COORDINATOR_NOT_AVAILABLE)
    coordinator = TransactionCoordinator(
        cast("DataClientPool", session), "twinlog-A-B-0-0", transaction_timeout_seconds=60
    )
    with pytest.raises(TransientKafkaError) as raised:
        await coordinator.new_identity(timeout_seconds=30)
    assert session.asked > 1
    assert raised.value.reason == "KAFKA_TIMEOUT"
    assert str(raised.value) == (
        "cluster B: initialise the producer twinlog-A-B-0-0: no answer in time"
        " (30 s, the last attempt: COORDINATOR_UNAVAILABLE)"
    )
