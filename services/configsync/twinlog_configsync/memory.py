"""What configsync knows of one flow, and how it is kept as records. Values only."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from twinlog_configsync.entry import TopicEntry
from twinlog_configsync.records import ConfigsRecord, FlowRecord, Kind, RecordKey, RecordValue


@dataclass(frozen=True, slots=True, kw_only=True)
class Memory:
    entries: Mapping[str, TopicEntry] = field(default_factory=dict)
    """By source topic, also those that no rule selects any more."""
    last_set: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    """By source topic: the overrides that Twinlog last brought its counterpart to."""
    settled_at_ms: int | None = None
    """When the selection was complete for the first time; None before."""

    @property
    def settled(self) -> bool:
        return self.settled_at_ms is not None

    @property
    def selected_count(self) -> int:
        return sum(entry.selected for entry in self.entries.values())

    def records(self) -> dict[RecordKey, RecordValue]:
        records: dict[RecordKey, RecordValue] = {
            RecordKey(Kind.TOPIC, name): entry for name, entry in self.entries.items()
        }
        for name, values in self.last_set.items():
            records[RecordKey(Kind.CONFIGS, name)] = ConfigsRecord(values=values)
        if self.settled_at_ms is not None:
            records[RecordKey(Kind.FLOW)] = FlowRecord(settled_at_ms=self.settled_at_ms)
        return records


def recall(records: Mapping[RecordKey, RecordValue]) -> Memory:
    """The memory that these records hold."""
    entries: dict[str, TopicEntry] = {}
    last_set: dict[str, Mapping[str, str]] = {}
    settled_at_ms: int | None = None
    for key, value in records.items():
        match value:
            case TopicEntry():
                entries[key.name] = value
            case ConfigsRecord():
                last_set[key.name] = value.values
            case FlowRecord():
                settled_at_ms = value.settled_at_ms
    return Memory(entries=entries, last_set=last_set, settled_at_ms=settled_at_ms)
