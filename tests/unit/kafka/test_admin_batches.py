"""Changes cut into what a controller takes in one request."""

from collections.abc import Mapping

from twinlog.errors import FatalKafkaError, KafkaError, TransientKafkaError
from twinlog.kafka.admin.changes import MOST_RECORDS, batches, in_batches


def test_no_batch_makes_more_records_than_a_controller_takes() -> None:
    cut = list(batches(range(2_000), lambda _topic: 7))
    assert [each for batch in cut for each in batch] == list(range(2_000))
    assert max(len(batch) * 7 for batch in cut) <= MOST_RECORDS
    assert len(cut) == 3


def test_what_is_too_much_alone_stands_alone() -> None:
    assert list(batches([1, 9, 1, 1], lambda size: size, most=4)) == [[1], [9], [1, 1]]


def test_nothing_is_no_request() -> None:
    assert list(batches([])) == []


class Controller:
    def __init__(self, *answers: KafkaError | None) -> None:
        self._answers = iter(answers)
        self.requests = 0

    async def send(self, batch: list[int]) -> Mapping[int, KafkaError | None]:
        self.requests += 1
        return dict.fromkeys(batch, next(self._answers))


async def changed(controller: Controller) -> dict[int, KafkaError | None]:
    return await in_batches(
        range(3), controller.send, key=lambda change: change, records=lambda _change: MOST_RECORDS
    )


async def test_one_refused_batch_stops_no_other() -> None:
    refusal = FatalKafkaError("no", reason="POLICY_VIOLATION", code=44)
    assert await changed(Controller(None, refusal, None)) == {0: None, 1: refusal, 2: None}


async def test_a_cluster_that_is_away_is_waited_for_once() -> None:
    silence = TransientKafkaError("no answer", reason="KAFKA_TIMEOUT")
    controller = Controller(None, silence)
    assert await changed(controller) == {0: None, 1: silence, 2: silence}
    assert controller.requests == 2
