"""The progress of a verification, measured in offsets of the source."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from twinlog.comparison.model import Bounds, PartitionProof


@dataclass(slots=True)
class Progress:
    total_offsets: int = 0
    done_offsets: int = 0
    read_bytes: int = 0
    differences: int = 0


OnProgress = Callable[[Progress], None]


@dataclass(slots=True, kw_only=True)
class ProgressBoard:
    """By part: a partition or a range of one."""

    on_progress: OnProgress
    _sizes: list[int] = field(default_factory=list)
    _done: dict[int, int] = field(default_factory=dict)
    _bytes: dict[int, int] = field(default_factory=dict)
    _differences: int = 0

    def begin(self, parts: Sequence[Bounds]) -> None:
        self._sizes = [each.source_goal - each.source_start for each in parts]
        self._done, self._bytes = {}, {}

    def note(self, number: int, offsets: int, read_bytes: int) -> None:
        """A part has come this far, and has read this much."""
        self._done[number] = min(offsets, self._sizes[number])
        self._bytes[number] = read_bytes
        self._tell()

    def end(self, number: int, proof: PartitionProof) -> None:
        self._done[number], self._bytes[number] = self._sizes[number], proof.bytes
        self._differences += sum(each.count for each in proof.differences)
        self._tell()

    def _tell(self) -> None:
        self.on_progress(
            Progress(
                total_offsets=sum(self._sizes),
                done_offsets=sum(self._done.values()),
                read_bytes=sum(self._bytes.values()),
                differences=self._differences,
            )
        )
