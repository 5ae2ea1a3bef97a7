"""Reads the rules of a flow that configsync stored on the target: for a service that starts while configsync
is away, and for commands that ask no service.
"""

from twinlog.errors import KafkaError
from twinlog.kafka.ports import KafkaCluster, OffsetSpec
from twinlog.kafka.reasons import KafkaReason
from twinlog.kafka.whole_logs import log_bounds, records_to
from twinlog.model import TopicPartition
from twinlog.policy.internal_topics import configsync_topic
from twinlog.service.feeds.rules_record import NO_RULES, RulesRecord, parsed_rules

_KEY = b'["rules"]'


async def stored_rules(cluster: KafkaCluster, source: str) -> RulesRecord:
    """The rules that differ from the file; `NO_RULES` if they never were changed.

    `cluster` is the flow's target. Raises KafkaError (retriable if a new leader shows less than the log has),
    WireFormatError for a record of a newer version.
    """
    partition = TopicPartition(configsync_topic(source), 0)
    try:
        start, end = await log_bounds(cluster, partition, OffsetSpec.LATEST)
    except KafkaError as error:
        if error.reason == KafkaReason.TOPIC_UNKNOWN:
            return NO_RULES
        raise
    newest: bytes | None = None
    async with cluster.reader() as reader:
        async for record in records_to(reader, partition, start, end):
            if record.key == _KEY:
                newest = record.value
    return NO_RULES if newest is None else parsed_rules(newest)
