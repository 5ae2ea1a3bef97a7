"""Deletes the filled offsets before the first record of a copy, so that its log starts where the copy
does."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field

import structlog

from twinlog.clock import Clock
from twinlog.errors import KafkaError
from twinlog.model import TopicPartition
from twinlog.service.waiting import wait_for_any

RETRY_SECONDS = 60.0
LOOK_SECONDS = 1.0
"""How soon to check whether something is due."""

DeleteBefore = Callable[[Mapping[TopicPartition, int]], Awaitable[Mapping[TopicPartition, int | KafkaError]]]
"""Let logs of the target start at these offsets. Raises KafkaError."""

log = structlog.get_logger(__name__)


@dataclass(slots=True, kw_only=True)
class FilledBeginnings:
    """Deletes once in each task, because an earlier task may have left it undone."""

    delete_before: DeleteBefore
    clock: Clock
    _asked: set[TopicPartition] = field(default_factory=set)
    _left: dict[TopicPartition, int] = field(default_factory=dict)
    _retry_at: dict[TopicPartition, float] = field(default_factory=dict)
    _work: asyncio.Event = field(default_factory=asyncio.Event)

    def delete(self, target: TopicPartition, before: int) -> None:
        """Delete soon. Of each partition only the first call counts."""
        if target not in self._asked:
            self._asked.add(target)
            self._left[target] = before
            self._work.set()

    async def run(self, stop: asyncio.Event) -> None:
        """Loop until `stop`."""
        while not stop.is_set():
            self._work.clear()
            now = self.clock.monotonic()
            due = {
                target: before
                for target, before in self._left.items()
                if self._retry_at.get(target, 0.0) <= now
            }
            for target, refused in (await self._delete(due)).items() if due else ():
                if refused is None:
                    del self._left[target]
                    continue
                self._retry_at[target] = now + RETRY_SECONDS
                log.warning(
                    "filled_offsets_not_deleted",
                    partition=str(target),
                    reason=refused.reason,
                    error=str(refused),
                )
            await wait_for_any(stop, self._work, seconds=LOOK_SECONDS if self._left else None)

    async def _delete(self, before: Mapping[TopicPartition, int]) -> dict[TopicPartition, KafkaError | None]:
        try:
            outcome = await self.delete_before(before)
        except KafkaError as error:
            return dict.fromkeys(before, error)
        return {target: each if isinstance(each, KafkaError) else None for target, each in outcome.items()}
