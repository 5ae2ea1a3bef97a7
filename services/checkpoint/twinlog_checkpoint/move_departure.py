"""Leaving a cluster: keep writers out if asked, note how far the logs go, wait until that is copied."""

import asyncio
from collections.abc import AsyncGenerator
from dataclasses import dataclass, replace

from twinlog.clock import Clock
from twinlog.errors import StateError
from twinlog.model import TopicPartition
from twinlog.service.runtime import wait_or_stop
from twinlog_checkpoint.move_ends import ends_behind_fence, ends_now
from twinlog_checkpoint.move_events import StepEvent, StepState, step_event
from twinlog_checkpoint.move_fence import missing_fences, raise_fences
from twinlog_checkpoint.move_journal import MoveJournal, MoveRecord, Step
from twinlog_checkpoint.move_planner import MovePlanner
from twinlog_checkpoint.moves import MoveOptions, total_backlog


@dataclass(frozen=True, slots=True, kw_only=True)
class Departure:
    """The steps FENCE, FINAL_OFFSETS and DRAIN of one move, where its groups come from."""

    planner: MovePlanner
    journal: MoveJournal
    clock: Clock
    stop: asyncio.Event
    look_seconds: float
    """Between two looks at the logs."""

    async def leave(
        self, record: MoveRecord, options: MoveOptions
    ) -> AsyncGenerator[StepEvent | MoveRecord, None]:
        """Yield each step as it happens, at last the record as it is then.

        Raises StateError (BACKLOG_NOT_COPIED, STOPPING) or KafkaError.
        """
        newly_fenced = False
        if options.fence and Step.FENCE not in record.done:
            record = await self._fenced(record)
            newly_fenced = True
            message = f"writes are denied on {_topics(len(record.fences))}"
            yield step_event(self.clock, Step.FENCE, StepState.DONE, message)
        elif record.fences:
            message = f"writers are kept out of {_topics(len(record.fences))} already"
            yield step_event(self.clock, Step.FENCE, StepState.SKIPPED, message)
        else:
            yield step_event(self.clock, Step.FENCE, StepState.SKIPPED, "writers are not kept out")
        if newly_fenced or Step.FINAL_OFFSETS not in record.done:
            finals = await self._final_offsets(fenced=bool(record.fences))
            record = replace(record, final_offsets=finals).after(Step.FINAL_OFFSETS)
            await self.journal.store(record)
            yield step_event(
                self.clock, Step.FINAL_OFFSETS, StepState.DONE, f"the ends of {_logs(len(finals))} are noted"
            )
        if options.wait_seconds > 0:
            async for event in self._drain(record, options):
                yield event
        else:
            yield step_event(self.clock, Step.DRAIN, StepState.SKIPPED, "not asked to wait")
        yield record

    async def _drain(self, record: MoveRecord, options: MoveOptions) -> AsyncGenerator[StepEvent, None]:
        """Wait until everything before the final offsets is copied."""
        give_up_at = self.clock.monotonic() + options.wait_seconds
        yield step_event(self.clock, Step.DRAIN, StepState.STARTED, "waiting for the copy")
        while not self.stop.is_set():
            left = total_backlog(await self.planner.backlog(record.final_offsets))
            if left == 0:
                yield step_event(
                    self.clock, Step.DRAIN, StepState.DONE, "everything is copied", records_left=0
                )
                return
            words = "records left to copy" if left is not None else "the backlog cannot be counted"
            yield step_event(self.clock, Step.DRAIN, StepState.PROGRESS, words, records_left=left)
            if self.clock.monotonic() >= give_up_at:
                if options.accept_loss:
                    message = f"gave up after {options.wait_seconds:g} s, as accepted"
                    yield step_event(self.clock, Step.DRAIN, StepState.SKIPPED, message, records_left=left)
                    return
                count = "an unknown number of" if left is None else str(left)
                raise StateError(
                    f"{count} records are not copied after {options.wait_seconds:g} s: is the source service"
                    " running? Run it again to go on waiting, or accept the loss.",
                    reason="BACKLOG_NOT_COPIED",
                    metadata={"records": count},
                )
            await wait_or_stop(self.stop, self.look_seconds)
        raise StateError("the service is stopping; run it again to go on", reason="STOPPING")

    async def _fenced(self, record: MoveRecord) -> MoveRecord:
        """Raise the fences, recorded before they are there: a run that is killed between leaves none unknown.

        One that was there before is somebody else's and stays when ours go.
        """
        route = self.planner.route
        scope = await self.planner.fence_scope()
        missing = await missing_fences(route.from_cluster, scope.topics)
        record = replace(record, fences=tuple(dict.fromkeys((*record.fences, *(missing or ())))))
        await self.journal.store(record)
        await raise_fences(route.from_cluster, record.fences)
        record = record.after(Step.FENCE)
        await self.journal.store(record)
        return record

    async def _final_offsets(self, *, fenced: bool) -> dict[TopicPartition, int]:
        route = self.planner.route
        partitions = {entry.here for entry in await route.written()}
        if not fenced:
            return await ends_now(route.here.admin, partitions)
        return await ends_behind_fence(
            route.here.admin,
            partitions,
            clock=self.clock,
            stop=self.stop,
            look_seconds=self.look_seconds,
        )


def _topics(count: int) -> str:
    return "1 topic" if count == 1 else f"{count} topics"


def _logs(count: int) -> str:
    return "1 log" if count == 1 else f"{count} logs"
