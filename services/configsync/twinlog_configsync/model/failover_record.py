"""Whether the flow's applications work on the target now, according to the checkpoint service's record of
moves.

`mm2-failover.<A>.internal` belongs to the checkpoint service. Only these fields of its record are read: the
kind, the state, whether the run was given up, and whether groups may work on the target. While groups move,
and until they have moved back, a topic that is missing on the source is no reason to delete the copy with
which they work. A run that was given up before it committed an offset holds nothing.
"""

import json

from twinlog.errors import KafkaError, WireFormatError
from twinlog.kafka.ports import KafkaCluster
from twinlog.kafka.whole_logs import committed_records
from twinlog.model import Flow, TopicPartition
from twinlog.policy.internal_topics import failover_topic
from twinlog_configsync.model.observation import is_absent


async def failover_in_effect(target: KafkaCluster, flow: Flow) -> str:
    """Which failover is running or in effect; "" when there is none.

    Raises KafkaError, WireFormatError.
    """
    topic = failover_topic(flow.source)
    found = (await target.describe_topics([topic]))[topic]
    if isinstance(found, KafkaError):
        if is_absent(found):
            return ""
        raise found
    return words(flow, await _newest(target, flow, TopicPartition(topic, 0)))


def words(flow: Flow, record: bytes | None) -> str:
    """The meaning of a record, as `failover_in_effect` returns it. Pure. Raises WireFormatError."""
    if record is None:
        return ""
    try:
        fields = json.loads(record)
        kind, state = str(fields["kind"]), str(fields["state"])
        aborted = fields.get("aborted", False) is True
        # Earlier releases did not record it.
        on_target = fields.get("on_target", kind != "failback" or aborted) is True
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise WireFormatError(f"the record of the last move is damaged: {error!r}") from error
    if state != "DONE":
        return (
            f"a {kind} is running or was interrupted ({state}): `twinlog {kind} run '{flow}'` continues it,"
            f" `twinlog {kind} abort '{flow}'` gives it up"
        )
    if not on_target:
        return ""
    given_up = f" (the last {kind} was given up)" if aborted else ""
    back = f"`twinlog failback run '{flow}'` moves them back"
    return f"groups were moved to {flow.target} and not back{given_up}: {back}"


async def _newest(target: KafkaCluster, flow: Flow, partition: TopicPartition) -> bytes | None:
    newest: bytes | None = None
    async with target.reader() as reader:
        async for record in committed_records(target, reader, partition):
            if _is_of(record.key, flow):
                newest = record.value
    return newest


def _is_of(key: bytes | None, flow: Flow) -> bool:
    try:
        name, place = json.loads(key or b"")
        # Each moved group, and the source, has a record of its own besides that of the move.
        return bool(name == "TwinlogMove" and place["flow"] == str(flow))
    except (ValueError, KeyError, TypeError, RecursionError):
        return False
