"""What is known of one partition of one group before the decision about it. Pure."""

from dataclasses import dataclass

from twinlog.model import TopicPartition
from twinlog_checkpoint.translation.translation import LogBounds, SourcePosition, Translation


@dataclass(slots=True, kw_only=True)
class GroupPlace:
    """Where a group stands on the cluster that it leaves, translated; a look at both clusters adds the
    rest."""

    group: str
    from_partition: TopicPartition
    to_partition: TopicPartition | None
    from_offset: int
    translation: Translation
    metadata: str = ""
    state_before: str | None = None
    """The group's state on the cluster that it leaves; None = unknown."""
    state_there: str | None = None
    present_offset: int | None = None
    log_there: LogBounds | None = None
    """The log on the cluster that the group moves to; None when the partition does not exist there."""
    end_here: int | None = None
    """Of the log on the cluster that the group leaves, with what no transaction has committed; None while
    that cluster does not answer."""
    unread_before_start: int | None = 0
    """Records that the group has not read and that lie before the log there: to continue at its first record
    would skip them. None = the cluster that the group leaves does not tell."""
    unread_foreign: int = 0
    """Records that the group has not read and that other producers wrote into the copy on the cluster that it
    leaves: they are not on the other one."""
    wrote_present: bool = False
    """Twinlog committed `present_offset` there because of a checkpoint, and that checkpoint is no later than
    `from_offset`: the offset may be set back."""
    wrote_further: bool = False
    """The last move left the group there at `present_offset`, or Twinlog committed it when the group had read
    further than `from_offset`: the group was put back since, and continues where it is now."""
    came_from: int | None = None
    """The last move found the group there at this offset, and the group has not gone on since."""

    @property
    def position(self) -> SourcePosition:
        return SourcePosition(partition=self.from_partition, next_offset=self.from_offset)
