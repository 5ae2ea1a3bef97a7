"""A verification in this process: several partitions at the same time, on one event loop."""

import asyncio
import functools
from collections.abc import Sequence
from dataclasses import dataclass

from twinlog.verify.comparing.compare import Comparison
from twinlog.verify.comparing.sides import Extended
from twinlog.verify.model import Bounds, PartitionProof, Side
from twinlog_source.verify.gathering.flow import GatheredFlow
from twinlog_source.verify.progress import ProgressBoard
from twinlog_source.verify.proving.prover import Prover
from twinlog_source.verify.proving.reading import Sides
from twinlog_source.verify.proving.waiting import Waiting, offset_for_time
from twinlog_source.verify.request import VerifyRequest
from twinlog_source.verify.state import ProvenRanges


@dataclass(frozen=True, slots=True, kw_only=True)
class InProcess:
    gathered: GatheredFlow
    request: VerifyRequest
    sides: Sides
    waiting: Waiting
    state: ProvenRanges
    progress: ProgressBoard

    async def prove_all(self, bounds: Sequence[Bounds]) -> list[PartitionProof]:
        places = asyncio.Semaphore(self.request.parallel)
        proofs: list[PartitionProof] = []

        async def prove(number: int, group: asyncio.TaskGroup) -> None:
            async with places:
                proofs.append(await self._prove(number, bounds[number], group))

        # The largest begin first; otherwise the last one to begin would also be the last one to end.
        largest_first = sorted(
            range(len(bounds)), key=lambda number: bounds[number].source_start - bounds[number].source_goal
        )
        async with asyncio.TaskGroup() as group:
            for number in largest_first:
                group.create_task(prove(number, group), name=f"verify {bounds[number].source}")
        return proofs

    async def _prove(self, number: int, bounds: Bounds, group: asyncio.TaskGroup) -> PartitionProof:
        begun = self.state.narrowed(bounds)
        patience = self.request.patience_seconds
        source = self.sides.log(Side.SOURCE, bounds.source, patience, group)
        target = self.sides.log(Side.TARGET, bounds.target, patience, group)

        async def extend(comparison: Comparison) -> Extended:
            return await self.waiting.extend(
                bounds.source, at=comparison.source.at, limit=comparison.target.limit
            )

        def note(comparison: Comparison) -> None:
            at = min(comparison.source.at, bounds.source_goal)
            self.progress.note(number, at - bounds.source_start, source.read_bytes + target.read_bytes)
            self.state.note(comparison, begun, source.read_bytes + target.read_bytes)

        prover = Prover(
            bounds=begun.bounds,
            source=source,
            target=target,
            extend=extend,
            ends=functools.partial(self.gathered.ends_now, bounds.source),
            source_offset_for_time=offset_for_time(self.gathered.source.offsets_for_times, bounds.source),
            target_offset_for_time=offset_for_time(self.gathered.target.offsets_for_times, bounds.target),
            on_progress=note,
            max_open_bytes=self.gathered.flow.source.max_uncompressed_bytes,
        )
        proof = await prover.run()
        self.gathered.say_what_is_hidden(proof)
        proof = begun.completed(proof)
        self.state.end(proof, bounds)
        self.progress.end(number, proof)
        return proof
