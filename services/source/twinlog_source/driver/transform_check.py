"""Lets Spark look at the expressions of a flow before a record of their topics is fetched."""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field

import structlog

from twinlog.errors import StateError, TwinlogError
from twinlog.kafka.deadline import pause
from twinlog.policy.transformed import TopicTransforms
from twinlog.transforms.expressions import Expressions
from twinlog_source.config import SourceFlow
from twinlog_source.reasons import STARTING, PartitionReason

RETRY_SECONDS = 5.0
CHECK_SECONDS = 300.0
"""A function of the user may not return."""
Check = Callable[[Expressions], Awaitable[None]]
"""Raises TwinlogError (TRANSFORM_REFUSED: for good)."""

log = structlog.get_logger(__name__)


@dataclass(slots=True, kw_only=True)
class TransformCheck:
    flow: SourceFlow
    decided: asyncio.Event
    """Set when there is news."""
    _problem: TwinlogError | None = field(init=False, default=None)
    _transforms: TopicTransforms | None = field(init=False, default=None)

    def __post_init__(self) -> None:
        if self.flow.expressions is not None:
            self._transforms = TopicTransforms(self.flow.transforms, self.flow.flow.source)
            self._problem = StateError("Spark looks at the flow's twinlog.transform.*", reason=STARTING)

    def problem_of(self, topic: str) -> TwinlogError | None:
        """Why the records of a topic of the source may not be copied (yet)."""
        transforms = self._transforms
        return None if transforms is None or transforms.expressions(topic) is None else self._problem

    async def run(self, check: Check, *, after: asyncio.Event) -> None:
        """Return when Spark has decided; it is not asked before `after` is set."""
        await after.wait()
        expressions = self.flow.expressions
        while expressions is not None and self._problem is not None:
            try:
                async with asyncio.timeout(CHECK_SECONDS):
                    await check(expressions)
                self._problem = None
            except TimeoutError:
                told = f"Spark has not understood the flow's twinlog.transform.* within {CHECK_SECONDS:g} s"
                self._problem = StateError(told, reason=PartitionReason.TRANSFORM_REFUSED)
            except TwinlogError as error:
                log.warning("transform_not_checked", flow=str(self.flow.flow), error=str(error))
                self._problem = error
            self.decided.set()
            if self._problem is None or self._problem.reason == PartitionReason.TRANSFORM_REFUSED:
                return
            await pause(RETRY_SECONDS)
