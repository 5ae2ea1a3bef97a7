"""InitProducerId, AddPartitionsToTxn, EndTxn, DescribeTransactions."""

from kio.schema.errors import ErrorCode

from twinlog.testing.broker.acls import Operation, Resource
from twinlog.testing.broker.calls import Call, Handlers
from twinlog.testing.broker.codec import Fields
from twinlog.testing.broker.transactions import NOBODY, Identity

HANDLERS = Handlers()
_TRANSACTION = 1
_VERSION_2_END = 5
"""A client that sends EndTxn from this version on has transactions of version 2 (KIP-890)."""
_FENCED_VERSIONS = {22: 4, 24: 2, 26: 2}
"""By API: older versions do not know PRODUCER_FENCED."""


def _not_mine(call: Call, transactional_id: str | None) -> ErrorCode:
    if call.injected or transactional_id is None:
        return call.injected
    if not call.allows(Operation.WRITE, Resource.TRANSACTIONAL_ID, transactional_id):
        return ErrorCode.transactional_id_authorization_failed
    return call.cluster.coordinator_error(call.node, _TRANSACTION, transactional_id)


def _known(call: Call, error: ErrorCode) -> ErrorCode:
    if error is ErrorCode.producer_fenced and call.version < _FENCED_VERSIONS[call.api_key]:
        return ErrorCode.invalid_producer_epoch
    return error


@HANDLERS.serves("init_producer_id")
async def init_producer_id(call: Call) -> Fields:
    body = call.body
    error = _not_mine(call, body.transactional_id)
    identity = NOBODY
    if not error:
        expected = Identity(call.get("producer_id", -1), call.get("producer_epoch", -1))
        timeout_ms = round(body.transaction_timeout.total_seconds() * 1000)
        identity, error = call.cluster.transactions.init(body.transactional_id, timeout_ms, expected)
    return {
        "error_code": _known(call, error),
        "producer_id": identity.producer_id,
        "producer_epoch": identity.epoch if not error else -1,
    }


@HANDLERS.serves("add_partitions_to_txn")
async def add_partitions_to_txn(call: Call) -> Fields:
    """All partitions, or none of them. Versions above 3 are for brokers."""
    body, cluster = call.body, call.cluster
    transactional_id, topics = body.v3_and_below_transactional_id, body.v3_and_below_topics
    asked = [(topic.name, index) for topic in topics for index in topic.partitions]
    refused = {
        each: ErrorCode.unknown_topic_or_partition for each in asked if cluster.partition(*each) is None
    }
    for each in asked:
        if not call.allows(Operation.WRITE, Resource.TOPIC, each[0]):
            refused[each] = ErrorCode.topic_authorization_failed
    error = _not_mine(call, transactional_id)
    errors: dict[tuple[str, int], ErrorCode] = {}
    if refused and not error:
        errors = dict.fromkeys(asked, ErrorCode.operation_not_attempted)
        errors |= refused
    elif not error:
        identity = Identity(body.v3_and_below_producer_id, body.v3_and_below_producer_epoch)
        error = cluster.transactions.add(transactional_id, identity, asked)
    return {
        "results_by_topic_v3_and_below": [
            {
                "name": topic.name,
                "results_by_partition": [
                    {
                        "partition_index": index,
                        "partition_error_code": _known(call, errors.get((topic.name, index), error)),
                    }
                    for index in topic.partitions
                ],
            }
            for topic in topics
        ]
    }


@HANDLERS.serves("end_txn")
async def end_txn(call: Call) -> Fields:
    body = call.body
    error = _not_mine(call, body.transactional_id)
    identity = NOBODY
    if not error:
        identity, error = call.cluster.transactions.end(
            body.transactional_id,
            Identity(body.producer_id, body.producer_epoch),
            commit=body.committed,
            version_2=call.version >= _VERSION_2_END,
        )
    return {
        "error_code": _known(call, error),
        "producer_id": identity.producer_id,
        "producer_epoch": identity.epoch,
    }


@HANDLERS.serves("describe_transactions")
async def describe_transactions(call: Call) -> Fields:
    """KIP-664."""
    return {"transaction_states": [_described(call, each) for each in call.body.transactional_ids]}


def _described(call: Call, transactional_id: str) -> Fields:
    error = _not_mine(call, transactional_id)
    found = call.cluster.transactions.by_id.get(transactional_id)
    if not transactional_id:
        error = ErrorCode.invalid_request
    elif found is None and not error:
        error = ErrorCode.transactional_id_not_found
    shown = found if not error else None
    topics: dict[str, list[int]] = {}
    for topic, index in shown.partitions if shown else ():
        topics.setdefault(topic, []).append(index)
    return {
        "error_code": error,
        "transactional_id": transactional_id,
        "transaction_state": shown.state.value if shown else "",
        "transaction_timeout": shown.timeout_ms if shown else 0,
        "transaction_start_time": shown.started_ms if shown else 0,
        "producer_id": shown.identity.producer_id if shown else -1,
        "producer_epoch": shown.identity.epoch if shown else -1,
        "topics": [{"topic": topic, "partitions": indexes} for topic, indexes in topics.items()],
    }
