"""Errors about single partitions: the refused one is named, so that only it is set aside."""

from twinlog.errors import KafkaError
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


def again(error: KafkaError) -> KafkaError:
    """A copy, for another partition that met the same failure."""
    return type(error)(str(error), reason=error.reason, metadata=error.metadata, code=error.code)
