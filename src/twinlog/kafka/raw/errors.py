"""Errors about single partitions, so that only the refused one is set aside."""

from twinlog.errors import FatalKafkaError, KafkaError, WireFormatError
from twinlog.kafka.codes import ErrorCode
from twinlog.kafka.errors import from_code
from twinlog.model import TopicPartition


def partition_error(
    code: int, partition: TopicPartition, doing: str, *, alias: str, detail: str = ""
) -> KafkaError:
    """A broker's refusal, with `topic` and `partition` in its metadata."""
    return about(partition, from_code(code, f"{doing}, {partition}", alias=alias, detail=detail))


def about(partition: TopicPartition, error: KafkaError) -> KafkaError:
    """The same error with the partition in its metadata."""
    error.metadata["topic"] = partition.topic
    error.metadata["partition"] = str(partition.partition)
    return error


def not_told(partition: TopicPartition, doing: str, *, alias: str) -> KafkaError:
    """A broker answered without this partition: it may no longer lead it. Transient."""
    return partition_error(
        ErrorCode.NOT_LEADER_OR_FOLLOWER, partition, doing, alias=alias, detail="the broker left it out"
    )


def again(error: KafkaError) -> KafkaError:
    """A copy for another partition with the same failure."""
    return type(error)(str(error), reason=error.reason, metadata=error.metadata, code=error.code)


def damaged(error: WireFormatError, doing: str, *, alias: str) -> FatalKafkaError:
    """A broker's data of a log cannot be read."""
    return FatalKafkaError(
        f"cluster {alias}: {doing}: {error}",
        reason=error.reason,
        metadata={"cluster": alias, **error.metadata},
    )
