"""A task of a verification on Spark: one part of one partition, on its own event loop."""

import asyncio
import contextlib
from contextlib import AsyncExitStack
from dataclasses import dataclass

import uvloop

from twinlog.config.client_settings import ClientConfig
from twinlog.errors import TwinlogError
from twinlog.model import TopicPartition
from twinlog.verify.comparing.compare import Comparison
from twinlog.verify.comparing.sides import EndsNow, Extended
from twinlog.verify.model import Bounds, PartitionProof, Side
from twinlog_source.task.memory import give_back_memory
from twinlog_source.verify.proving.desk import DeskClient
from twinlog_source.verify.proving.failures import failed_proof, first_of
from twinlog_source.verify.proving.locating import OffsetForTime
from twinlog_source.verify.proving.prover import Prover
from twinlog_source.verify.proving.reading import open_sides


@dataclass(frozen=True, slots=True, kw_only=True)
class PartSpec:
    """What Spark carries to a task. No secrets of Kafka."""

    number: int
    bounds: Bounds
    endpoint: tuple[str, int]
    token: str


def prove_part(spec: PartSpec) -> PartitionProof:
    """Blocks. Does not raise for failures of clusters: the proof tells why it is not complete."""
    try:
        proof: PartitionProof = uvloop.run(_prove(spec))
    except* TwinlogError as failures:
        proof = failed_proof(spec.bounds, first_of(failures))
    finally:
        give_back_memory()
    return proof


async def ask_to_extend(desk: DeskClient, partition: TopicPartition, *, at: int, limit: int) -> Extended:
    """As `Waiting.extend`, which may take longer than an answer: ask until something has arrived, or the time
    is over. Raises TransientKafkaError."""
    told = None
    while told is None:
        told = await desk.ask(
            "extend", topic=partition.topic, partition=partition.partition, at=at, limit=limit
        )
    return Extended(target_limit=told["limit"], position=told["position"])


async def _prove(spec: PartSpec) -> PartitionProof:
    bounds = spec.bounds
    async with AsyncExitStack() as stack:
        desk = await stack.enter_async_context(DeskClient(endpoint=spec.endpoint, token=spec.token))
        settings = await desk.ask("settings")
        sides = await open_sides(
            stack,
            ClientConfig(alias=settings["source_alias"], properties=settings["source"]),
            ClientConfig(alias=settings["target_alias"], properties=settings["target"]),
            read_committed=settings["read_committed"],
            max_bytes_per_second=settings["max_bytes_per_second"],
            policy_config=settings["policy_config"],
        )

        async def extend(comparison: Comparison) -> Extended:
            return await ask_to_extend(
                desk, bounds.source, at=comparison.source.at, limit=comparison.target.limit
            )

        async def ends() -> EndsNow:
            return EndsNow(
                **await desk.ask("ends", topic=bounds.source.topic, partition=bounds.source.partition)
            )

        def offset_for_time(side: Side) -> OffsetForTime:
            partition = bounds.source if side is Side.SOURCE else bounds.target

            async def offset(timestamp_ms: int) -> int | None:
                found: int | None = await desk.ask(
                    "time",
                    side=str(side),
                    topic=partition.topic,
                    partition=partition.partition,
                    timestamp_ms=timestamp_ms,
                )
                return found

            return offset

        async with asyncio.TaskGroup() as group:
            telling: list[asyncio.Task[None]] = []

            async def tell(offsets: int) -> None:
                size = sides.source_pace.read_bytes + sides.target_pace.read_bytes
                with contextlib.suppress(TwinlogError):  # The progress is only displayed.
                    await desk.ask("progress", number=spec.number, offsets=offsets, bytes=size)

            def note(comparison: Comparison) -> None:
                if not telling or telling[-1].done():
                    at = min(comparison.source.at, bounds.source_goal)
                    told = group.create_task(tell(at - bounds.source_start), name="tell the progress")
                    telling[:] = [told]

            patience = settings["patience_seconds"]
            prover = Prover(
                bounds=bounds,
                source=sides.log(Side.SOURCE, bounds.source, patience, group),
                target=sides.log(Side.TARGET, bounds.target, patience, group),
                extend=extend,
                ends=ends,
                source_offset_for_time=offset_for_time(Side.SOURCE),
                target_offset_for_time=offset_for_time(Side.TARGET),
                on_progress=note,
                max_open_bytes=settings["max_open_bytes"],
            )
            proof = await prover.run()
        # The pace belongs to this task. Without the wait here, the debt of its last fetch would be forgotten,
        # and many parts of one fetch each would be read without any limit.
        for pace in (sides.source_pace, sides.target_pace):
            await pace.wait()
        if not proof.differences and not proof.not_compared:
            size = sides.source_pace.read_bytes + sides.target_pace.read_bytes
            with contextlib.suppress(TwinlogError):  # Spark carries the proof itself.
                await desk.ask(
                    "proven",
                    number=spec.number,
                    bytes=size,
                    records=proof.records,
                    unopened_records=proof.unopened_records,
                    same_offsets=proof.same_offsets,
                    source_hash=proof.source_hash,
                    target_hash=proof.target_hash,
                )
        return proof
