"""Connect's transforms that send a record to another topic; its partition stays."""

import re
from dataclasses import dataclass

from twinlog.transforms.date_format import DateFormat
from twinlog.transforms.java_replacement import Replacement
from twinlog.transforms.parts import RecordParts


@dataclass(frozen=True, slots=True)
class RegexRouter:
    """Renames topics that match the whole pattern."""

    pattern: re.Pattern[str]
    replacement: Replacement
    regex_written: str
    replacement_written: str

    def apply(self, record: RecordParts) -> bool:
        record.topic = self.routed(record.topic)
        return True

    def routed(self, topic: str) -> str:
        """The name after the router. As in Java, the pattern must match the whole name, and then its first
        match inside the name is replaced: with `.*?`, that is nothing, before the name."""
        if self.pattern.fullmatch(topic) is None:
            return topic
        found = self.pattern.search(topic)
        if found is None:
            return topic
        return topic[: found.start()] + self.replacement.of(found) + topic[found.end() :]


@dataclass(frozen=True, slots=True)
class TimestampRouter:
    """Puts the record's timestamp, in UTC, into the name of its topic."""

    topic_format: str
    timestamp_format: DateFormat

    def apply(self, record: RecordParts) -> bool:
        named = self.topic_format.replace("${topic}", record.topic)
        record.topic = named.replace("${timestamp}", self.timestamp_format.of(record.timestamp_ms))
        return True
