"""Operators' commands on a flow: pause, resume, throttle, acknowledge gaps and foreign writes. Each is stored
before it takes effect, but for the last: how many records others wrote is counted since the process started.
"""

import asyncio
from dataclasses import dataclass, replace

import structlog

from twinlog.clock import Clock
from twinlog.errors import ConfigError, NotFoundError, TransientKafkaError
from twinlog_source.driver.flow_driver import FlowDriver
from twinlog_source.driver.subjects import Subject, require_owned, require_partitions
from twinlog_source.log.facts import PauseFact, ThrottleFact
from twinlog_source.log.gaps import Gap
from twinlog_source.partitions.events import ForeignKnown
from twinlog_source.partitions.rows import PartitionRow

LOG_SECONDS = 8.0
"""The longest time to read the log; less than the deadline of a call."""

log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class FlowOperations:
    driver: FlowDriver
    clock: Clock

    async def pause(self, subject: Subject, *, by: str) -> None:
        """Raises StateError, NotFoundError, KafkaError."""
        require_partitions(self.driver, subject)
        mark = PauseFact(topic=subject.topic, partition=subject.partition, by=by, at_ms=self.clock.now_ms())
        await self._command("pause", subject, mark)
        self.driver.send_pauses()
        log.info(
            "paused", flow=str(self.driver.flow), topic=subject.topic, partition=subject.partition, by=by
        )

    async def resume(self, subject: Subject, *, by: str) -> None:
        """Raises NotFoundError if there is no pause of exactly this subject; StateError, KafkaError."""
        require_owned(self.driver)
        pauses = self.driver.state.control.pauses
        is_known = (subject.topic, subject.partition) in pauses
        # Also one that is not known: a pause whose answer was lost may be on the log, or reach it later.
        await self._command("pause", subject, None)
        if not is_known:
            paused = ", ".join(
                sorted(str(Subject(topic=topic, partition=number)) for topic, number in pauses)
            )
            raise NotFoundError(
                f"{subject} of {self.driver.flow} has no pause of its own; paused: {paused or 'nothing'}",
                reason="NOT_PAUSED",
            )
        self.driver.send_pauses()
        log.info(
            "resumed", flow=str(self.driver.flow), topic=subject.topic, partition=subject.partition, by=by
        )

    async def resume_all(self, *, by: str) -> None:
        """End every pause of the flow, the narrowest first. Raises StateError, KafkaError; pauses that ended
        before an error stay ended."""
        require_owned(self.driver)
        await self._read_log()  # Of some pauses only that may know.
        for topic, partition in sorted(
            self.driver.state.control.pauses,
            key=lambda scope: (scope[1] is None, scope[0] is None, scope[0] or "", scope[1] or 0),
        ):
            await self.resume(Subject(topic=topic, partition=partition), by=by)

    async def throttle(self, subject: Subject, bytes_per_second: int, *, by: str) -> None:
        """0 removes the limit. Raises ConfigError, StateError, NotFoundError, KafkaError."""
        if subject.partition is not None:
            raise ConfigError(
                "a limit is for a flow or a topic, not for one partition", reason="INVALID_SCOPE"
            )
        if bytes_per_second < 0:
            raise ConfigError("a limit is 0 (none) or more bytes per second", reason="INVALID_LIMIT")
        require_owned(self.driver)
        mark = None
        if bytes_per_second:
            require_partitions(self.driver, subject)
            mark = ThrottleFact(
                topic=subject.topic, bytes_per_second=bytes_per_second, by=by, at_ms=self.clock.now_ms()
            )
        await self._command("throttle", subject, mark)
        self.driver.send_throttles()
        log.info(
            "throttled",
            flow=str(self.driver.flow),
            topic=subject.topic,
            bytes_per_second=bytes_per_second,
            by=by,
        )

    async def gaps(self) -> list[Gap]:
        """The ledger, sorted. Raises StateError or KafkaError when it cannot be read."""
        positions = self.driver.state.positions
        if not (self.driver.owned and positions.is_read):
            await self._read_log()
        return [gap for _, gap in sorted(positions.gaps.items(), key=lambda item: item[0])]

    async def _read_log(self) -> None:
        """Read what is committed there."""
        positions = self.driver.state.positions
        if not positions.partition_count:
            require_owned(self.driver)
        try:
            async with asyncio.timeout(LOG_SECONDS):
                await positions.peek()
        except TimeoutError:
            raise TransientKafkaError(
                f"cluster {self.driver.flow.target}: {positions.topic} was not read within {LOG_SECONDS:g} s",
                reason="KAFKA_TIMEOUT",
                metadata={"cluster": self.driver.flow.target, "topic": positions.topic},
            ) from None

    async def acknowledge_gaps(
        self, subject: Subject, *, from_offset: int | None, found_until_ms: int | None, by: str
    ) -> list[Gap]:
        """Acknowledge gaps; return those that were not acknowledged before. Raises StateError, NotFoundError
        (PARTITION_UNKNOWN: there is no such partition, GAP_UNKNOWN: it has no such gap), KafkaError."""
        require_owned(self.driver)

        def is_meant(gap: Gap) -> bool:
            return (
                subject.includes(gap.partition)
                and from_offset in (None, gap.from_offset)
                and (found_until_ms is None or gap.found_at_ms <= found_until_ms)
            )

        ledger = self.driver.state.ledger
        new = await ledger.acknowledge(is_meant, by=by, now_ms=self.clock.now_ms())
        if new is None:
            if not any(subject.includes(gap.partition) for gap in self.driver.state.positions.gaps.values()):
                require_partitions(self.driver, subject)
            raise NotFoundError(f"the ledger of {self.driver.flow} has no such gap", reason="GAP_UNKNOWN")
        log.info("gaps_acknowledged", flow=str(self.driver.flow), gaps=len(new), by=by)
        return sorted(new, key=lambda gap: gap.identity)

    def acknowledge_foreign_writes(self, subject: Subject, *, by: str, dry_run: bool) -> list[PartitionRow]:
        """Count foreign records from 0 again, unless `dry_run`; return the rows with such records, as they
        were. Raises StateError, NotFoundError."""
        table = self.driver.state.table
        rows = [table.rows[each] for each in sorted(require_partitions(self.driver, subject))]
        found = [replace(row) for row in rows if row.foreign_records]
        if found and not dry_run:
            for row in found:
                known = ForeignKnown(
                    partition=row.partition,
                    records=0,
                    writes=row.foreign_writes,
                    acknowledged_by=by,
                    acknowledged_at_ms=self.clock.now_ms(),
                )
                table.apply(known, self.clock.monotonic())
            log.info("foreign_writes_acknowledged", flow=str(self.driver.flow), copies=len(found), by=by)
        return found

    # -------------------------------------------------------------------------------------------------

    async def _command(self, kind: str, subject: Subject, fact: PauseFact | ThrottleFact | None) -> None:
        """Store the command. When this raises KafkaError, it is in force once the log shows it."""
        try:
            await self.driver.state.command(kind, subject.topic, subject.partition, fact)
        except TransientKafkaError as error:
            raise TransientKafkaError(
                f"the target of {self.driver.flow} did not confirm it, so it may or may not be in force:"
                f" try again: {error}",
                reason=error.reason,
                metadata=error.metadata,
                code=error.code,
            ) from error
