"""The registry on the target: a compacted topic with one partition that only configsync writes.

A decision about a flow is stored there before anybody is told, so that a restart continues with it.
"""

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from twinlog.errors import KafkaError, WireFormatError
from twinlog.kafka.admin.compacted_topic import ensure_compacted_topic
from twinlog.kafka.ports import KafkaCluster, ManagedWriter, OffsetSpec
from twinlog.kafka.whole_logs import log_bounds, records_to
from twinlog.model import Record, TopicPartition
from twinlog_configsync.model.observation import is_absent
from twinlog_configsync.model.reasons import Reason
from twinlog_configsync.model.records import (
    RecordKey,
    RecordValue,
    decode_key,
    decode_value,
    encode_key,
    encode_value,
)

Change = tuple[RecordKey, RecordValue | None]

_IN_FLIGHT: Final = 200


@dataclass(slots=True, kw_only=True)
class RegistryStore:
    """Call `load`, `create`, then `put`; `load` again while another process writes. Not for concurrent use:
    it belongs to the flow's loop."""

    cluster: KafkaCluster
    topic: str
    replication_factor: int
    """Used to create the topic; -1 = the target's default."""
    _stored: dict[RecordKey, RecordValue] = field(default_factory=dict)
    _created: bool = False
    _topic_id: str = ""
    _next_offset: int = 0

    def forget(self) -> None:
        """The next `load` reads everything again."""
        self._topic_id = ""
        self._created = False

    async def load(self) -> Mapping[RecordKey, RecordValue]:
        """Read the topic's content, or only new records if it was read before; nothing when there is no topic
        yet.

        Raises KafkaError (the target does not answer or refuses), WireFormatError (reason
        REGISTRY_UNREADABLE).
        """
        found = (await self.cluster.describe_topics([self.topic]))[self.topic]
        if not isinstance(found, KafkaError):
            await self._catch_up(found.topic_id)
        elif is_absent(found):
            self._stored, self._topic_id = {}, ""
        else:
            raise found
        return dict(self._stored)

    async def create(self) -> None:
        """Create the topic if it does not exist. Costs nothing once it was seen. Raises KafkaError."""
        if not self._created:
            await ensure_compacted_topic(self.cluster, self.topic, replication_factor=self.replication_factor)
            self._created = True

    async def put(self, records: Mapping[RecordKey, RecordValue]) -> int:
        """Make these the records: write those that differ from what is stored, remove those that are not
        among them; return how many records that was. Records of kinds that this version does not know stay.

        Returns when the target has all of them. After an error some may be stored; calling it again is safe.
        """
        changes: list[Change] = [(key, None) for key in self._stored.keys() - records.keys()]
        changes += [(key, value) for key, value in records.items() if self._stored.get(key) != value]
        if not changes:
            return 0
        async with self.cluster.writer() as writer:
            for start in range(0, len(changes), _IN_FLIGHT):
                await self._append(writer, changes[start : start + _IN_FLIGHT])
        return len(changes)

    async def _append(self, writer: ManagedWriter, changes: Sequence[Change]) -> None:
        async def append(key: RecordKey, value: RecordValue | None) -> None:
            raw = None if value is None else encode_value(value)
            await writer.append(self._partition, key=encode_key(key), value=raw)

        try:
            async with asyncio.TaskGroup() as group:
                for key, value in changes:
                    group.create_task(append(key, value), name=f"registry-append-{key.kind}-{key.name}")
        except* KafkaError as errors:
            error = _first(errors)
            if is_absent(error):
                self._lose()
            raise error from errors
        for key, value in changes:
            if value is None:
                self._stored.pop(key, None)
            else:
                self._stored[key] = value

    def _lose(self) -> None:
        """The topic was deleted: `create` creates it again, and the next `put` writes everything."""
        self._stored, self._created = {}, False

    async def _catch_up(self, topic_id: str) -> None:
        """Read from the end of the last read to the present end of the log."""
        start, end = await log_bounds(self.cluster, self._partition, OffsetSpec.LATEST)
        position, stored = self._next_offset, dict(self._stored)
        if topic_id != self._topic_id or not start <= position <= end:
            position, stored = start, {}
        if position < end:
            async with self.cluster.reader() as reader:
                async for record in records_to(reader, self._partition, position, end):
                    self._replay(record, stored)
        self._stored, self._topic_id, self._next_offset = stored, topic_id, end

    def _replay(self, record: Record, stored: dict[RecordKey, RecordValue]) -> None:
        try:
            key = decode_key(record.key)
            if key is None:
                return
            if record.value is None:
                stored.pop(key, None)
            else:
                stored[key] = decode_value(key, record.value)
        except WireFormatError as error:
            raise WireFormatError(
                f"{self.topic} at offset {record.offset}: {error}",
                reason=Reason.REGISTRY_UNREADABLE,
                metadata={**error.metadata, "topic": self.topic, "offset": str(record.offset)},
            ) from error

    @property
    def _partition(self) -> TopicPartition:
        return TopicPartition(self.topic, 0)


def _first(errors: ExceptionGroup[KafkaError]) -> KafkaError:
    for error in errors.exceptions:
        return error if isinstance(error, KafkaError) else _first(error)
    raise AssertionError("an exception group is never empty")
