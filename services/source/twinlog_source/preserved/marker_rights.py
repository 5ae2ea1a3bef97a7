"""Whether the target lets us write markers at its leaders."""

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
    """Asked by a marker for a partition that a topic does not have: brokers look at the right first, and
    write nothing. False as well where the request is never answered although the brokers are there: a proxy
    may drop what it does not know.

    Raises KafkaError when no broker answers anything.
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
            return False  # the brokers do not know the request
        code: int | None = answers.get((nowhere, 0))
        return code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    return False
