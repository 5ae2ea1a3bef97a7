"""What is known of every group of a flow: the table behind ListGroups. Pure."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

from twinlog.model import Flow, TopicPartition
from twinlog_checkpoint.translation import Translation, Verdict


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupProgress:
    """The progress of one group on one partition, on both clusters."""

    flow: Flow
    group: str
    source: TopicPartition
    target: TopicPartition
    upstream_offset: int
    """Committed on the source: the next offset to read."""
    translation: Translation
    as_of_ms: int
    """When the verdict was reached."""
    offset_on_target: int | None = None
    """What the group has committed on the target; None when nothing, or when it could not be read."""
    source_lag: int | None = None
    """Records (offsets) between the group and the end of the source log."""
    target_lag: int | None = None
    """The same from the translated offset to the end of the target log."""

    @property
    def committed_on_target(self) -> bool:
        """The translated offset is the group's committed one on the target."""
        return (
            self.translation.downstream_offset is not None
            and self.translation.downstream_offset == self.offset_on_target
        )


class ProgressTable:
    """The latest progress of each (group, partition) of one flow."""

    def __init__(self, flow: Flow) -> None:
        self.flow = flow
        self._rows: dict[tuple[str, TopicPartition], GroupProgress] = {}

    def replace_all(self, rows: Iterable[GroupProgress]) -> None:
        """Take a whole pass: what is not in it is gone."""
        self._rows = {(row.group, row.source): row for row in rows}

    def on_unreadable(self, group: str, message: str, now_ms: int) -> None:
        """Keep what was known of a group whose offsets cannot be read, but say so."""
        translation = Translation(verdict=Verdict.SOURCE_UNREADABLE, downstream_offset=None, message=message)
        for key, row in self._rows.items():
            if row.group == group:
                self._rows[key] = replace(row, translation=translation, as_of_ms=now_ms)

    def on_all_unreadable(self, message: str, now_ms: int) -> None:
        """The source (or the target) did not answer at all."""
        for group in {row.group for row in self._rows.values()}:
            self.on_unreadable(group, message, now_ms)

    def on_active(self, group: str) -> None:
        """The group has members on the target: its offsets there are its own."""
        for key, row in self._rows.items():
            if row.group == group and row.translation.downstream_offset is not None:
                active = replace(
                    row.translation,
                    verdict=Verdict.ACTIVE_ON_TARGET,
                    message=f"the group has members on {self.flow.target}, which own its offsets there",
                )
                self._rows[key] = replace(row, translation=active)

    def on_committed(self, group: str, offsets: Mapping[TopicPartition, int]) -> None:
        """Offsets of the group were written on the target, by target partition."""
        for key, row in self._rows.items():
            if row.group == group and row.target in offsets:
                self._rows[key] = replace(row, offset_on_target=offsets[row.target])

    def rows(self, group: str = "") -> list[GroupProgress]:
        """Rows of one group, or of all when empty, sorted by group, topic and partition."""
        return [
            self._rows[key]
            for key in sorted(self._rows, key=lambda key: (key[0], key[1]))
            if group in ("", key[0])
        ]
