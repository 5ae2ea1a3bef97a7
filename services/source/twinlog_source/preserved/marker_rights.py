"""Whether the target allows writing markers at its leaders."""

import structlog

from twinlog.errors import FatalKafkaError, TransientKafkaError
from twinlog.kafka.codes import ErrorCode
from twinlog.kafka.deadline import deadline
from twinlog.kafka.raw import DataClientPool
from twinlog.kafka.raw.leaders import refresh_metadata
from twinlog.kafka.raw.transactions.leader_markers import AbortMarker, write_markers
from twinlog.model import TopicPartition

_NO_PARTITION = 2**31 - 1
_TRIES = 3
_SECONDS = 5.0

log = structlog.get_logger(__name__)


async def may_write_markers(session: DataClientPool, known_topic: str) -> bool:
    """Ask by sending a marker for a partition that does not exist: brokers check the right first, and write
    nothing. Also False if the request is never answered although the brokers are up, because a proxy may drop
    unknown requests.

    Raises KafkaError when no broker answers at all.
    """
    doing = "ask whether markers may be written"
    nowhere = TopicPartition(known_topic, _NO_PARTITION)
    for _ in range(_TRIES):
        client = await session.client(doing)
        await refresh_metadata(session, client, {known_topic})
        node = await session.any_node(doing)
        try:
            async with deadline(_SECONDS, doing, alias=session.alias):
                answers = await session.send(node, write_markers([AbortMarker(nowhere, 0, 0, 0)]), doing)
        except TransientKafkaError as error:
            log.info("markers_not_answered", cluster=session.alias, error=str(error))
            continue
        except FatalKafkaError:
            return False  # The brokers do not know the request.
        code: int | None = answers.get((nowhere, 0))
        return code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    return False
