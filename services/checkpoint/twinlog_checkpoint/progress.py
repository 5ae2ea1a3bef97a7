"""What is known of every group of a flow: the table behind ListGroups. Pure."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace

from twinlog.errors import KafkaError, TwinlogError
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
    as_of_ms: int = field(compare=False)
    """When the verdict was reached; a row that only was looked at again is the same row."""
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
    """The latest progress of each (group, partition) of one flow.

    Invariants:
    - A. a group with members on the target stays ACTIVE_ON_TARGET until somebody saw it without;
    - B. what a cluster that is away hides is kept: the row with its offset, and the last translation.
    """

    def __init__(self, flow: Flow, on_change: Callable[[], None] = lambda: None) -> None:
        """`on_change` is called after every change, from the event loop."""
        self.flow = flow
        self.on_change = on_change
        self.problem: TwinlogError | None = None
        """Why the last pass was not done; None when it was."""
        self.confirmed_ms: int | None = None
        """When the last pass was done."""
        self._rows: dict[tuple[str, TopicPartition], GroupProgress] = {}
        self._active: set[str] = set()
        self._translated: dict[tuple[str, TopicPartition], Translation] = {}
        """The last offset of each group and target partition, as of the last pass."""

    def replace_all(
        self,
        rows: Iterable[GroupProgress],
        *,
        now_ms: int,
        unreadable: Mapping[str, KafkaError] | None = None,
    ) -> None:
        """Take a whole pass: what is not in it is gone, but for the groups whose offsets cannot be read."""
        unreadable = unreadable or {}
        kept = {
            key: self._unread(row, unreadable[row.group], now_ms)
            for key, row in self._rows.items()
            if row.group in unreadable
        }
        taken = list(rows)
        self._rows = {**kept, **{(row.group, row.source): self._as_active(row) for row in taken}}
        self._translated = {
            **{key: known for key, known in self._translated.items() if key[0] in unreadable},
            **{
                (row.group, row.target): row.translation
                for row in taken
                if row.translation.downstream_offset is not None
            },
        }
        self.problem, self.confirmed_ms = None, now_ms
        self.on_change()

    def on_all_unreadable(self, error: TwinlogError, now_ms: int) -> None:
        """A cluster did not answer at all: the verdict says which."""
        self.problem = error
        self._rows = {key: self._unread(row, error, now_ms) for key, row in self._rows.items()}
        self.on_change()

    def on_active(self, group: str) -> None:
        """The group has members on the target: its offsets there are its own."""
        if group in self._active:
            return
        self._active.add(group)
        self._rows = {
            key: self._as_active(row) if row.group == group else row for key, row in self._rows.items()
        }
        self.on_change()

    def on_idle(self, group: str) -> None:
        """The group has no members on the target (any more)."""
        if group not in self._active:
            return
        self._active.discard(group)
        for key, row in self._rows.items():
            known = self._translated.get((group, row.target))
            if row.group == group and row.translation.verdict is Verdict.ACTIVE_ON_TARGET and known:
                self._rows[key] = replace(row, translation=known)
        self.on_change()

    def on_committed(self, group: str, offsets: Mapping[TopicPartition, int]) -> None:
        """Offsets of the group were written on the target, by target partition."""
        for key, row in self._rows.items():
            if row.group == group and row.target in offsets:
                self._rows[key] = replace(row, offset_on_target=offsets[row.target])
        self.on_change()

    def rows(self, group: str = "") -> list[GroupProgress]:
        """Rows of one group, or of all when empty, sorted by group, topic and partition."""
        return [
            self._rows[key]
            for key in sorted(self._rows, key=lambda key: (key[0], key[1]))
            if group in ("", key[0])
        ]

    def last_translation(self, group: str, target: TopicPartition) -> Translation | None:
        """The last one that gave an offset, also while a cluster is away; None when there was none."""
        return self._translated.get((group, target))

    def _as_active(self, row: GroupProgress) -> GroupProgress:
        if row.group not in self._active or row.translation.downstream_offset is None:
            return row
        active = replace(
            row.translation,
            verdict=Verdict.ACTIVE_ON_TARGET,
            message=f"the group has members on {self.flow.target}, which own its offsets there",
        )
        return replace(row, translation=active)

    def _unread(self, row: GroupProgress, error: TwinlogError, now_ms: int) -> GroupProgress:
        translation = Translation(
            verdict=unreadable_verdict(self.flow, error), downstream_offset=None, message=str(error)
        )
        return replace(row, translation=translation, as_of_ms=now_ms)


def unreadable_verdict(flow: Flow, error: TwinlogError) -> Verdict:
    """Which end of the flow an error is about; the source when it does not say."""
    at_target = error.metadata.get("cluster") == flow.target
    return Verdict.TARGET_UNREADABLE if at_target else Verdict.SOURCE_UNREADABLE
