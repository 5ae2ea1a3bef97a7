"""The gap ledger while the flow runs: every gap is on the log, counted, and said once."""

from collections.abc import Callable
from dataclasses import dataclass

import structlog

from twinlog.api.source.v1 import worker_service_pb2 as pb
from twinlog.model import Flow, TopicPartition
from twinlog_source.gaps import Gap
from twinlog_source.journal import Journal
from twinlog_source.positions import PositionsLog

log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class Ledger:
    flow: Flow
    journal: Journal
    positions: PositionsLog
    on_gap: Callable[[Gap], None]

    async def write(self, gap: Gap) -> None:
        """A gap that the driver found. Raises KafkaError."""
        await self.journal.gap(gap)
        self.enter(gap)

    def take(self, reports: pb.PartitionReports) -> None:
        """The gaps that a task found, and put on the log itself."""
        for report in reports.partitions:
            partition = TopicPartition(report.partition.topic, report.partition.partition)
            for found in report.gaps:
                self.enter(
                    Gap(
                        partition=partition,
                        from_offset=found.from_offset,
                        to_offset=found.to_offset,
                        reason=found.reason,
                        found_at_ms=found.found_at.ToMilliseconds(),
                    )
                )

    def enter(self, gap: Gap) -> None:
        """A gap that is on the log already."""
        self.positions.gaps[gap.identity] = gap
        self.on_gap(gap)
        log.warning(
            "data_gap",
            flow=str(self.flow),
            topic=gap.partition.topic,
            partition=gap.partition.partition,
            from_offset=gap.from_offset,
            to_offset=gap.to_offset,
            reason=gap.reason,
        )
