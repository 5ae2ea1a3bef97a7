"""Reads the rules of a flow that configsync stored on the target: for a service that starts while configsync
is away, and for commands that ask no service.
"""

from twinlog.kafka.ports import KafkaCluster
from twinlog.kafka.table import Table
from twinlog.policy.internal_topics import configsync_topic
from twinlog.service.feeds.rules_record import NO_RULES, RulesRecord, parsed_rules

_KEY = b'["rules"]'


class _Rules:
    """One row of configsync's registry, which this process does not write."""

    def decode_key(self, key: bytes) -> bytes | None:
        return key if key == _KEY else None

    def decode_value(self, key: bytes, value: bytes) -> RulesRecord:
        return parsed_rules(value)

    def encode(self, key: bytes, value: RulesRecord | None) -> tuple[bytes, bytes | None]:
        raise AssertionError("only configsync writes its registry")


async def stored_rules(cluster: KafkaCluster, source: str) -> RulesRecord:
    """The rules that differ from the file; `NO_RULES` if they never were changed.

    `cluster` is the flow's target. Raises as `Table.load`.
    """
    rows = await Table(cluster=cluster, topic=configsync_topic(source), codec=_Rules()).load()
    return rows.get(_KEY, NO_RULES)
