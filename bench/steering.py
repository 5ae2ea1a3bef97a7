"""`python -m bench.steering`: how exactly limits are kept, and how soon a pause holds. About three minutes.

Limits: a backlog, one limit, and the rate over 30 s by records counted on the target. Pauses: live traffic,
and the ends of the target's logs looked at all the time.
"""

import argparse
import asyncio
import sys
import time
from collections.abc import AsyncIterator, Collection, Iterable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from itertools import pairwise

import uvloop

from bench.comparing.copiers import copier_properties
from bench.comparing.loads import LOADS, BatchPool, make_pool
from bench.comparing.priming import put_first_records, wait_for_first_records
from bench.comparing.replay import replay
from bench.comparing.results import Copier
from bench.comparing.stage import Stage, open_stage
from bench.display import Display
from twinlog.api.common.v1 import types_pb2
from twinlog.api.source.v1 import source_service_pb2 as pb
from twinlog.api.source.v1.source_service_pb2_grpc import SourceServiceStub
from twinlog.errors import StateError
from twinlog.kafka.raw import ProducerSettings, RawProducer
from twinlog.local.twinlog_run import TwinlogRun
from twinlog.machine.work_directory import WorkDirectory
from twinlog.model import Flow, TopicPartition
from twinlog.properties_text import render_properties
from twinlog.service.peers import open_channel
from twinlog.service.waiting import wait_or_stop

FLOW = Flow("a", "b")
PARTS = ["pauses", "flow-limits", "topic-limit"]
TOPICS = ("limited", "free")
PARTITIONS = 4
MEASURED_SECONDS = 30.0
SETTLE_SECONDS = 2.0
CALL_SECONDS = 10.0
FLOW_LIMITS_BYTES = (1_000_000, 20_000_000)
TOPIC_LIMIT_BYTES = 3_000_000
LOOK_SECONDS = 0.02
PAUSE_SECONDS = 3.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Steering:
    stage: Stage
    stub: SourceServiceStub
    pool: BatchPool
    display: Display

    async def limit(self, bytes_per_second: int, topic: str = "") -> None:
        request = pb.SetThrottleRequest(
            scope=_scope(topic), bytes_per_second=bytes_per_second, by="benchmark"
        )
        await self.stub.SetThrottle(request, timeout=CALL_SECONDS)

    async def fill(self, topic: str, size_bytes: float) -> None:
        await replay(
            self.stage.source.session,
            topic,
            self.pool,
            partition_count=PARTITIONS,
            record_count=int(size_bytes / self.pool.bytes_per_record),
            progress=lambda _: None,
        )

    async def rate(self, topics: Iterable[str]) -> float:
        """Bytes per second of these topics together over 30 s, by visible records."""
        before = {topic: await self._ends(topic) for topic in topics}
        began = time.perf_counter()
        await wait_or_stop(asyncio.Event(), MEASURED_SECONDS)
        after = {topic: await self._ends(topic) for topic in topics}
        seconds = time.perf_counter() - began
        if not await self._lag():
            raise StateError("the backlog ran out: what was measured is no limit")
        records = 0
        for topic, ends in after.items():
            target = self.stage.target
            records += sum(await target.count_records(_remote(topic), ends))
            records -= sum(await target.count_records(_remote(topic), before[topic]))
        return records * self.pool.bytes_per_record / seconds

    async def flow_limits(self) -> bool:
        """Each limit for itself. True when all were kept to a tenth."""
        good = True
        for limit in FLOW_LIMITS_BYTES:
            await self.limit(limit)
            for topic in TOPICS:
                await self.fill(topic, limit * (MEASURED_SECONDS + SETTLE_SECONDS) * 0.8)
            await wait_or_stop(asyncio.Event(), SETTLE_SECONDS)
            good &= self._tell("flow", limit, await self.rate(TOPICS))
            await self.limit(0)
            await self._drained()
        return good

    async def topic_limit(self) -> bool:
        """One topic limited, the other under live traffic. True when it was kept to a tenth."""
        await self.limit(TOPIC_LIMIT_BYTES, TOPICS[0])
        await self.fill(TOPICS[0], TOPIC_LIMIT_BYTES * (MEASURED_SECONDS + SETTLE_SECONDS) * 1.5)
        async with self.traffic(TOPICS[1:]):
            await wait_or_stop(asyncio.Event(), SETTLE_SECONDS)
            good = self._tell("topic", TOPIC_LIMIT_BYTES, await self.rate(TOPICS[:1]))
        await self.limit(0, TOPICS[0])
        await self._drained()
        return good

    async def pauses(self) -> bool:
        """Pause and resume each scope under live traffic. True when each took less than a second.

        How long the other partitions were silent meanwhile stands beside how long they are without a pause.
        """
        good = True
        for topic, partition in ((TOPICS[0], 1), (TOPICS[0], None), ("", None)):
            scope = pb.Scope(flow=_flow(), source_topic=topic, partition=partition)
            async with self.traffic(TOPICS):
                await wait_or_stop(asyncio.Event(), SETTLE_SECONDS)
                before = [_longest_gap(seen) for seen in (await self._moves(PAUSE_SECONDS)).values()]
                asked = time.perf_counter()
                await self.stub.PauseReplication(
                    pb.PauseReplicationRequest(scope=scope, by="benchmark"), timeout=CALL_SECONDS
                )
                moves = await self._moves(PAUSE_SECONDS)
                inside = {p for p in moves if topic in ("", p.topic) and partition in (None, p.partition)}
                stopped = max((at - asked for p in inside for at in moves[p]), default=0.0)
                others = [_longest_gap(moves[p]) for p in moves if p not in inside]
                asked = time.perf_counter()
                await self.stub.ResumeReplication(
                    pb.ResumeReplicationRequest(scope=scope, by="benchmark"), timeout=CALL_SECONDS
                )
                moves = await self._moves(PAUSE_SECONDS)
                went_on = max(min(moves[p], default=asked + 99) - asked for p in inside)
            name = " ".join(str(each) for each in (topic or "the flow", partition) if each is not None)
            rest = ""
            if others:
                rest = (
                    f"; the others: longest silence {max(others) * 1000:.0f} ms"
                    f" ({max(before) * 1000:.0f} ms without a pause)"
                )
            self.display.fact(
                f"pause {name}: held in {stopped * 1000:.0f} ms, went on in {went_on * 1000:.0f} ms{rest}"
            )
            good &= stopped < 1 and went_on < 1
        return good

    @asynccontextmanager
    async def traffic(self, topics: Iterable[str]) -> AsyncIterator[None]:
        """A small batch to every partition each few milliseconds."""
        pool = make_pool(LOADS[0], batch_bytes=2000, pool_bytes=100_000, now_ms=time.time_ns() // 1_000_000)
        targets = [TopicPartition(topic, number) for topic in topics for number in range(PARTITIONS)]
        stop = asyncio.Event()

        async def send() -> None:
            async with RawProducer(self.stage.source.session, ProducerSettings()) as producer:
                while not await wait_or_stop(stop, LOOK_SECONDS):
                    for partition in targets:
                        producer.send(partition, pool.batches[0])

        async with asyncio.TaskGroup() as group:
            group.create_task(send(), name="traffic")
            try:
                yield
            finally:
                stop.set()

    async def _moves(self, seconds: float) -> dict[TopicPartition, list[float]]:
        """When the end of each partition of the target was seen to move."""
        moves: dict[TopicPartition, list[float]] = {}
        known: dict[TopicPartition, int] = {}
        until = time.perf_counter() + seconds
        while time.perf_counter() < until:
            for topic in TOPICS:
                for number, end in enumerate(await self._ends(topic)):
                    partition = TopicPartition(topic, number)
                    seen = moves.setdefault(partition, [])
                    if known.setdefault(partition, end) != end:
                        known[partition] = end
                        seen.append(time.perf_counter())
            await wait_or_stop(asyncio.Event(), LOOK_SECONDS)
        return moves

    async def _ends(self, topic: str) -> list[int]:
        return list(await self.stage.target.ends(_remote(topic), PARTITIONS))

    async def _drained(self) -> None:
        while await self._lag() != 0:
            await wait_or_stop(asyncio.Event(), 0.5)

    async def _lag(self) -> int | None:
        (flow, *_) = (await self.stub.ListFlows(pb.ListFlowsRequest(), timeout=CALL_SECONDS)).flows
        return flow.lag_records if flow.HasField("lag_records") else None

    def _tell(self, what: str, limit: int, rate: float) -> bool:
        off = rate / limit - 1
        self.display.fact(f"{what} limit {limit / 1e6:g} MB/s: {rate / 1e6:.2f} MB/s ({off:+.1%})")
        return abs(off) <= 0.1


def _longest_gap(moves: list[float]) -> float:
    return max((after - before for before, after in pairwise(moves)), default=99.0)


def _remote(topic: str) -> str:
    return f"{FLOW.source}.{topic}"


def _flow() -> types_pb2.Flow:
    return types_pb2.Flow(source=FLOW.source, target=FLOW.target)


def _scope(topic: str) -> pb.Scope:
    return pb.Scope(flow=_flow(), source_topic=topic)


async def run(parts: Collection[str]) -> int:
    display, good = Display(), True
    work = WorkDirectory("twinlog-bench-")
    try:
        display.step("starting two clusters and Twinlog")
        async with open_stage() as stage:
            for topic in TOPICS:
                await put_first_records(stage, topic, PARTITIONS)
            properties = copier_properties(
                Copier.TWINLOG,
                FLOW,
                stage.source.brokers.client_properties(),
                stage.target.brokers.client_properties(),
                topics=",".join(TOPICS),
            )
            async with TwinlogRun(render_properties(properties), work.path) as twinlog:
                for topic in TOPICS:
                    await wait_for_first_records(stage, _remote(topic), PARTITIONS)
                async with open_channel(twinlog.endpoints["source"]) as channel:
                    pool = make_pool(
                        LOADS[0], batch_bytes=131_072, pool_bytes=8 << 20, now_ms=time.time_ns() // 1_000_000
                    )
                    steering = Steering(
                        stage=stage, stub=SourceServiceStub(channel), pool=pool, display=display
                    )
                    if "pauses" in parts:
                        display.step("pausing and resuming under live traffic")
                        good &= await steering.pauses()
                    if "flow-limits" in parts:
                        display.step("limits of the flow, each over 30 s")
                        good &= await steering.flow_limits()
                    if "topic-limit" in parts:
                        display.step("a limit of one topic, over 30 s")
                        good &= await steering.topic_limit()
    finally:
        work.remove()
    display.step("all within bounds" if good else "not all within bounds")
    return 0 if good else 1


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.steering", description="Pauses and limits.")
    parser.add_argument("parts", nargs="*", metavar="PART", help=f"{', '.join(PARTS)}; all when left out")
    parts = parser.parse_args().parts or PARTS
    unknown = sorted(set(parts) - set(PARTS))
    if unknown:
        parser.error(f"no such part: {', '.join(unknown)}; there are {', '.join(PARTS)}")
    return int(uvloop.run(run(parts)))


if __name__ == "__main__":
    sys.exit(main())
