"""Errors about single partitions: the refused one is named, so that only it is set aside."""

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
    """The same error, saying in its metadata which partition it is about."""
    error.metadata["topic"] = partition.topic
    error.metadata["partition"] = str(partition.partition)
    return error


def not_told(partition: TopicPartition, doing: str, *, alias: str) -> KafkaError:
    """A broker answered, and left this partition out: it may lead it no longer. Transient."""
    return partition_error(
        ErrorCode.NOT_LEADER_OR_FOLLOWER, partition, doing, alias=alias, detail="the broker left it out"
    )


def again(error: KafkaError) -> KafkaError:
    """A copy, for another partition that met the same failure."""
    return type(error)(str(error), reason=error.reason, metadata=error.metadata, code=error.code)


def damaged(error: WireFormatError, doing: str, *, alias: str) -> FatalKafkaError:
    """What a broker sent of a log cannot be read."""
    return FatalKafkaError(
        f"cluster {alias}: {doing}: {error}",
        reason=error.reason,
        metadata={"cluster": alias, **error.metadata},
    )
