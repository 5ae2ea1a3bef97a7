"""The subject of an operator's command: a flow, a topic or a partition, and the partitions that it
includes."""

from dataclasses import dataclass

from twinlog.errors import NotFoundError, StateError, TwinlogError
from twinlog.model import TopicPartition
from twinlog.service.owner.name import is_elsewhere
from twinlog_source.driver.flow_driver import FlowDriver


@dataclass(frozen=True, slots=True, kw_only=True)
class Subject:
    """A flow (no topic), a topic (no partition), or a partition."""

    topic: str | None = None
    partition: int | None = None

    def __str__(self) -> str:
        if self.topic is None:
            return "the flow"
        return self.topic if self.partition is None else f"{self.topic}-{self.partition}"

    def includes(self, partition: TopicPartition) -> bool:
        return self.topic in (None, partition.topic) and self.partition in (None, partition.partition)


def refusal_on_standby(driver: FlowDriver) -> TwinlogError | None:
    """OWNED_ELSEWHERE while another process copies the flow."""
    standing = None if driver.owned else driver.standing()
    return standing if is_elsewhere(standing) else None


def refuse_on_standby(driver: FlowDriver) -> None:
    """Raises StateError (OWNED_ELSEWHERE) while another process copies the flow."""
    if (refusal := refusal_on_standby(driver)) is not None:
        raise refusal


def require_owned(driver: FlowDriver) -> None:
    """Raises StateError while this process does not copy the flow: OWNED_ELSEWHERE with the owner's address
    where another one does."""
    if not driver.owned:
        refuse_on_standby(driver)
        reason, message = driver.idle_reason()
        raise StateError(
            f"{driver.flow} is not copied by this process now: {reason} {message}".rstrip(),
            reason="FLOW_NOT_READY",
        )


def require_partitions(driver: FlowDriver, subject: Subject) -> frozenset[TopicPartition]:
    """The partitions of a subject. Raises NotFoundError, and StateError as `require_owned`."""
    require_owned(driver)
    found = partitions_of(driver, subject)
    if not found and subject.topic is not None:
        raise NotFoundError(
            f"{driver.flow} does not copy {subject} now; a new topic is found with the next refresh",
            reason="PARTITION_UNKNOWN",
            metadata={"flow": str(driver.flow), "topic": subject.topic},
        )
    return found


def partitions_of(driver: FlowDriver, subject: Subject) -> frozenset[TopicPartition]:
    """The flow's partitions that the subject includes; empty when the flow does not copy them."""
    return frozenset(filter(subject.includes, driver.state.table.rows))
