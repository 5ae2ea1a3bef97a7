"""The settings that the driver gives to its tasks: clients, transactional ids, topics of positions and
syncs."""

from dataclasses import dataclass

from twinlog.config.values.reader import texts_of
from twinlog.policy.internal_topics import transactional_id_prefix
from twinlog_source.config import SourceFlow
from twinlog_source.driver.stream.stream_pace import REPORTS
from twinlog_source.log.facts import WriterFact
from twinlog_source.partitions.orders import TaskSetup

IDS_PER_SLOT = 6
"""Two that are used in turn and one that fills holes of preserved copies, for each of two overlapping
epochs."""
_FILLER = 4
"""The index of the first of a slot's ids that fill holes."""


def transactional_ids(flow: SourceFlow, epoch: int, slot: int) -> tuple[str, ...]:
    """Two ids for each slot and parity of the epoch. They are used in turn, so that a commit never waits for
    the previous one, and are initialised before the previous epoch has ended. None when the flow is not
    exactly once."""
    if not flow.settings.exactly_once:
        return ()
    first = 2 * (epoch % 2)
    return tuple(_transactional_id(flow, slot, first + turn) for turn in range(2))


def filler_id(flow: SourceFlow, epoch: int, slot: int) -> str:
    """The id with which a slot fills holes of preserved copies; empty when the flow is not exactly once."""
    return _transactional_id(flow, slot, _FILLER + epoch % 2) if flow.settings.exactly_once else ""


def marker_id(flow: SourceFlow) -> str:
    """The id whose producer identities write markers at leaders: one for the flow, because their numbers are
    compared. No transaction is ever begun with it, so it needs no fencing. Empty as `filler_id`."""
    return f"{transactional_id_prefix(flow.flow)}markers" if flow.settings.exactly_once else ""


def ids_of_slot(flow: SourceFlow, epoch: int, slot: int) -> tuple[str, ...]:
    """Every id that the task of a slot uses in an epoch."""
    filler = filler_id(flow, epoch, slot)
    return (*transactional_ids(flow, epoch, slot), filler) if filler else ()


def every_transactional_id(flow: SourceFlow, slots: int) -> tuple[str, ...]:
    """Every id that up to `slots` slots have ever used; a new owner fences them. Also for a flow that is no
    longer exactly once, because its previous owner may have been."""
    return tuple(_transactional_id(flow, slot, turn) for slot in range(slots) for turn in range(IDS_PER_SLOT))


def _transactional_id(flow: SourceFlow, slot: int, turn: int) -> str:
    return f"{transactional_id_prefix(flow.flow)}{slot}-{turn}"


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskSettings:
    flow: SourceFlow
    flows: int = 1
    """The number of flows in the process."""

    def prepare(
        self, epoch: int, slot: int, *, positions_partition_count: int, writer: WriterFact | None = None
    ) -> TaskSetup:
        """The answer to a task's Hello. `writer` writes the preserved copies. Contains secrets: never log
        it."""
        flow, settings, syncs = self.flow, self.flow.settings, self.flow.offset_syncs
        return TaskSetup(
            clients=flow.task_clients(slot),
            transactional_ids=transactional_ids(flow, epoch, slot),
            settings={
                **flow.transforms,
                **texts_of(settings),
                **texts_of(settings.offset_syncs),
                "twinlog.copy.until": settings.copy_until,
                "offset.flush.interval.ms": str(int(settings.sync_flush_seconds * 1000)),
            },
            positions_topic=settings.offset_storage.topic,
            positions_partition_count=positions_partition_count,
            offset_syncs_topic="" if syncs is None else syncs.topic,
            offset_syncs_on_source=syncs is not None and syncs.cluster == flow.flow.source,
            read_committed=settings.read_committed,
            lease_seconds=settings.lease_seconds,
            report_seconds=REPORTS.seconds(self.flows),
            connector_name=settings.connector_name,
            preserved_writer=writer,
            filler_transactional_id=filler_id(flow, epoch, slot),
            marker_transactional_id=marker_id(flow),
        )
