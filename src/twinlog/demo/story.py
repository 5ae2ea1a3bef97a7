"""The demo from beginning to end; each step prints what it does, and its result."""

import asyncio
import tempfile
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from dataclasses import dataclass, field, replace
from pathlib import Path

import grpc
from rich.console import Console
from rich.table import Table

from twinlog.clock import SystemClock
from twinlog.demo import changing
from twinlog.demo.comparison import CopyCheck, Reading, compare, first_records, group_position, read_some
from twinlog.demo.screen import Screen
from twinlog.demo.watching import PATIENCE_SECONDS, OrderStream, Watching, live_page
from twinlog.errors import KafkaError, StateError, first_of
from twinlog.kafka.clients import CALL_TIMEOUT_KEY, aiokafka_client_options
from twinlog.kafka.cluster import open_cluster
from twinlog.kafka.ports import KafkaCluster, NewTopic
from twinlog.kafka.raw import DataClientPool
from twinlog.local.blocking_cluster import BlockingCluster, start_in_thread, stop_clusters
from twinlog.local.spec import ClusterSpec
from twinlog.local.twinlog_run import TwinlogRun
from twinlog.model import TopicPartition
from twinlog.service.runtime import handle_signals
from twinlog.service.waiting import wait_or_stop

# The demo's properties file.

PROPERTIES = """\
# The demo's mm2.properties: a file of MirrorMaker 2, with keys of Twinlog beside its own.
clusters = A, B
A.bootstrap.servers = {a}
B.bootstrap.servers = {b}

A->B.enabled = true
A->B.topics = orders, payments
B->A.enabled = false

replication.factor = 1
checkpoints.topic.replication.factor = 1
heartbeats.topic.replication.factor = 1
offset-syncs.topic.replication.factor = 1
offset.storage.replication.factor = 1
status.storage.replication.factor = 1
config.storage.replication.factor = 1

# Often, so that a minute shows everything.
refresh.topics.interval.seconds = 1
refresh.groups.interval.seconds = 1
emit.checkpoints.interval.seconds = 1
sync.group.offsets.enabled = true
sync.group.offsets.interval.seconds = 1
twinlog.epoch.seconds = 10
twinlog.epoch.max.seconds = 10
"""


def demo_properties(a: BlockingCluster, b: BlockingCluster) -> str:
    """The file's text for two clusters."""
    return PROPERTIES.format(a=a.bootstrap_servers, b=b.bootstrap_servers)


def patient(cluster: BlockingCluster) -> dict[str, str]:
    """The properties of a client that waits for a crowded machine."""
    return {**cluster.client_properties(), CALL_TIMEOUT_KEY: str(round(PATIENCE_SECONDS * 1000))}


TOPIC, REMOTE_TOPIC, GROUP = "orders", "A.orders", "billing"
PARTITIONS = 5
BACKLOG_RECORDS = 20_000
EXPIRED_BELOW = 1_000
"""Retention has deleted the orders below this offset before they are copied, so logs do not start at 0."""
RECORDS_PER_SECOND = 2_000
LIVE_SECONDS = 20.0
SETTLE_TIMEOUT_SECONDS = 600.0
"""A busy machine is no failure: Spark's JVM alone may take four minutes to start."""
POLL_SECONDS = 0.25


@dataclass(slots=True, kw_only=True)
class StoryFindings:
    """The content of the summary, from which the exit code follows."""

    comparison: CopyCheck = field(default_factory=CopyCheck)
    changed: CopyCheck | None = None
    """Of the topic whose records Spark changes."""
    offsets: dict[int, tuple[int, int, bool]] = field(default_factory=dict)
    """Partition -> the group's offset on A, the one on B, whether both name the same record."""
    read_on_a: int = 0
    read_on_b: int = 0

    @property
    def failures(self) -> list[str]:
        """What did not hold, in words; empty when everything was as promised."""
        compared, read = self.comparison, self.read_on_a + self.read_on_b
        elsewhere = [str(number) for number, (_, _, exact) in sorted(self.offsets.items()) if not exact]
        checks = (
            (
                self.changed is None or self.changed.identical,
                "the changed records are not what they should be",
            ),
            (compared.identical, "the copy is not the same records in the same order"),
            (not compared.elsewhere, f"{compared.elsewhere:,} records have another offset than on A"),
            (bool(self.offsets), "the group has no offsets on A"),
            (not elsewhere, f"the group continues at another record in partition {', '.join(elsewhere)}"),
            (
                read == compared.source_records,
                f"the group read {read:,} records in all, and A has {compared.source_records:,}",
            ),
        )
        return [words for holds, words in checks if not holds]

    @property
    def held(self) -> bool:
        return not self.failures


async def tell(console: Console, *, keep: bool, ui: bool = False, transform: bool = False) -> bool:
    """Run the demo; return whether everything was as promised. With `keep`, leave it running until
    interrupted; with `transform`, Spark changes the records of a topic.

    A signal cancels it: everything that it started is stopped in order, and CancelledError is raised. Raises
    TwinlogError when something did not start or did not finish in time.
    """
    main = asyncio.current_task()
    assert main is not None

    def cancel(_: str) -> None:
        main.cancel()

    with handle_signals(on_first=cancel, on_second=cancel):
        try:
            return await _tell(Screen(console), keep=keep, ui=ui, transform=transform)
        except ExceptionGroup as failures:
            raise first_of(failures) from failures


async def _tell(screen: Screen, *, keep: bool, ui: bool, transform: bool) -> bool:
    a, b = clusters = [BlockingCluster(ClusterSpec(name=name)) for name in "AB"]
    async with AsyncExitStack() as stack:
        directory = stack.enter_context(tempfile.TemporaryDirectory(prefix="twinlog-demo-"))
        screen.step("Starting two real Kafka clusters, A and B")
        stack.callback(stop_clusters, clusters)
        await start_in_thread(clusters)
        story = _Story(screen, a, b, Path(directory), transform=transform)
        return await story.tell(keep=keep, ui=ui)


class _Story:
    def __init__(
        self, screen: Screen, a: BlockingCluster, b: BlockingCluster, directory: Path, *, transform: bool
    ) -> None:
        self._transform = transform
        self._screen, self._a, self._b, self._directory = screen, a, b, directory
        self._findings = StoryFindings()
        self._clock = SystemClock()
        self._on_a = Reading()

    async def tell(self, *, keep: bool, ui: bool) -> bool:
        screen = self._screen
        screen.fact(f"A {self._a.bootstrap_servers} · B {self._b.bootstrap_servers}")
        async with AsyncExitStack() as stack:
            cluster_a = await stack.enter_async_context(open_cluster("A", patient(self._a)))
            cluster_b = await stack.enter_async_context(open_cluster("B", patient(self._b)))
            stream = await self._open_shop(stack, cluster_a)
            if self._transform:
                await self._write_payments(stream, cluster_a)
            screen.step("Starting Twinlog: source, checkpoint, heartbeat and configsync")
            running = await stack.enter_async_context(
                TwinlogRun(
                    demo_properties(self._a, self._b) + (changing.PROPERTIES if self._transform else ""),
                    self._directory,
                )
            )
            screen.fact(f"ready; its file is {running.file}, its log {running.log}")
            if ui:
                screen.fact(await stack.enter_async_context(live_page(running.file, self._directory)))
            watching = await self._connect(stack, running)
            await self._live(stream, watching)
            await self._fail_over(cluster_b, stream.written)
            screen.step("Comparing the content of both sides, record by record")
            self._findings.comparison = await compare(
                cluster_a, TOPIC, cluster_b, REMOTE_TOPIC, partition_count=PARTITIONS
            )
            if self._transform:
                await self._compare_payments(watching, cluster_a, cluster_b)
            self._summary()
            if keep:
                await self._stay(running)
        return self._findings.held

    async def _open_shop(self, stack: AsyncExitStack, cluster_a: KafkaCluster) -> OrderStream:
        outcome = await cluster_a.create_topics(
            [NewTopic(name=TOPIC, partition_count=PARTITIONS, replication_factor=1)]
        )
        if (error := outcome[TOPIC]) is not None:
            raise error
        session = DataClientPool(
            "A", aiokafka_client_options(self._a.client_properties()), timeout_seconds=30
        )
        stack.push_async_callback(session.close)
        stream = OrderStream(
            session=session,
            topic=TOPIC,
            partition_count=PARTITIONS,
            records_per_second=RECORDS_PER_SECOND,
            clock=self._clock,
        )
        await stream.write(BACKLOG_RECORDS)
        expired = {TopicPartition(TOPIC, number): EXPIRED_BELOW for number in range(PARTITIONS)}
        for failure in (await cluster_a.delete_records(expired)).values():
            if failure is not None:
                raise failure
        self._screen.fact(
            f"a shop on A has written {BACKLOG_RECORDS:,} orders, each partition with another codec;"
            f" retention has deleted the first {EXPIRED_BELOW:,} of each partition"
        )
        return stream

    async def _write_payments(self, stream: OrderStream, cluster_a: KafkaCluster) -> None:
        payments = replace(stream, topic=changing.TOPIC, partition_count=changing.PARTITIONS, written=0)
        topic = NewTopic(name=changing.TOPIC, partition_count=changing.PARTITIONS, replication_factor=1)
        if (error := (await cluster_a.create_topics([topic]))[changing.TOPIC]) is not None:
            raise error
        await payments.write(changing.RECORDS)
        self._screen.fact(
            f"and {changing.RECORDS:,} payments, of which Spark drops some and masks the others"
        )

    async def _compare_payments(
        self, watching: Watching, cluster_a: KafkaCluster, cluster_b: KafkaCluster
    ) -> None:
        async def copied() -> bool:
            partitions = await watching.partitions()
            return sum(p.position for p in partitions if p.source.topic == changing.TOPIC) >= changing.RECORDS

        await self._until(copied, "the payments are on B")
        self._findings.changed = await compare(
            cluster_a, changing.TOPIC, cluster_b, changing.REMOTE_TOPIC,
            partition_count=changing.PARTITIONS, change=changing.change,
        )  # fmt: skip

    async def _connect(self, stack: AsyncExitStack, running: TwinlogRun) -> Watching:
        channels = [
            await stack.enter_async_context(grpc.aio.insecure_channel(running.endpoints[service]))
            for service in ("source", "heartbeat", "checkpoint")
        ]
        return Watching(*channels)

    async def _live(self, stream: OrderStream, watching: Watching) -> None:
        screen = self._screen
        screen.step(
            f"The shop continues with {RECORDS_PER_SECOND:,} orders a second; group {GROUP!r} reads half on A"
        )
        selling, watching_ends = asyncio.Event(), asyncio.Event()
        with screen:
            async with asyncio.TaskGroup() as group:
                group.create_task(stream.run(selling), name="order stream")
                group.create_task(self._show(watching, watching_ends), name="live table")
                try:
                    await wait_or_stop(selling, LIVE_SECONDS / 2)
                    on_a = await read_some(
                        "A", patient(self._a), group=GROUP, topic=TOPIC,
                        at_least=stream.written // 2, max_idle_polls=60,
                    )  # fmt: skip
                    await wait_or_stop(selling, LIVE_SECONDS / 2)
                    selling.set()
                    await self._until(self._caught_up(watching, stream), "everything is on B")
                    copied_at_ms = self._clock.now_ms()
                    self._on_a = on_a
                    self._findings.read_on_a = on_a.records
                    await self._until(
                        lambda: watching.group_is_settled(
                            GROUP, on_a.next_offsets, copied_at_ms=copied_at_ms
                        ),
                        "the group's offsets are on B",
                    )
                finally:
                    selling.set()
                    watching_ends.set()

    async def _show(self, watching: Watching, stop: asyncio.Event) -> None:
        while not await wait_or_stop(stop, POLL_SECONDS):
            try:
                self._screen.show(await watching.topics(), await watching.delay_seconds())
            except grpc.aio.AioRpcError as error:
                self._screen.fact(f"a service does not answer: {error.code().name}")

    def _caught_up(self, watching: Watching, stream: OrderStream) -> Callable[[], Awaitable[bool]]:
        async def caught_up() -> bool:
            copied = sum(p.position for p in await watching.partitions() if p.source.topic == TOPIC)
            return copied >= stream.written

        return caught_up

    async def _fail_over(self, cluster_b: KafkaCluster, written: int) -> None:
        self._screen.step(f"Failing over: {GROUP!r} stopped on A, and continues on B as {REMOTE_TOPIC}")
        translated = {
            tp: o.next_offset
            for tp, o in (await group_position(cluster_b, GROUP)).items()
            if tp.topic == REMOTE_TOPIC
        }
        async with open_cluster("A", patient(self._a)) as cluster_a:
            wanted = await first_records(cluster_a, self._on_a.next_offsets)
        found = await first_records(cluster_b, translated)
        for tp, offset in sorted(self._on_a.next_offsets.items()):
            want, got = wanted[tp.partition], found.get(tp.partition)
            exact = (
                want is None and got is None
                if want is None or got is None
                else (want.timestamp_ms, want.key, want.value) == (got.timestamp_ms, got.key, got.value)
            )
            on_b = translated.get(TopicPartition(REMOTE_TOPIC, tp.partition), -1)
            self._findings.offsets[tp.partition] = (offset, on_b, exact)
        on_b_reading = await read_some(
            "B",
            patient(self._b),
            group=GROUP,
            topic=REMOTE_TOPIC,
            at_least=written - PARTITIONS * EXPIRED_BELOW - self._findings.read_on_a,
            max_idle_polls=120,
            poll_records=5_000,
            then_idle_polls=4,
        )
        self._findings.read_on_b = on_b_reading.records

    async def _until(self, condition: Callable[[], Awaitable[bool]], what: str) -> None:
        never = asyncio.Event()
        give_up_at = self._clock.monotonic() + SETTLE_TIMEOUT_SECONDS
        while self._clock.monotonic() < give_up_at:
            try:
                if await condition():
                    return
            except (grpc.aio.AioRpcError, KafkaError) as error:
                self._screen.fact(f"waiting until {what}: {error}")
            await wait_or_stop(never, POLL_SECONDS * 4)
        raise StateError(f"{SETTLE_TIMEOUT_SECONDS:g} s passed before {what}", reason="DEMO_STUCK")

    def _summary(self) -> None:
        findings, console = self._findings, self._screen.console
        offsets = Table(
            "partition",
            "next on A",
            "next on B",
            "same record",
            title=f"Where {GROUP!r} continues, by what it read on A",
            title_justify="left",
        )
        for number, (on_a, on_b, exact) in sorted(findings.offsets.items()):
            offsets.add_row(str(number), f"{on_a:,}", f"{on_b:,}", "[green]yes[/]" if exact else "[red]no[/]")
        console.print(offsets)
        if unread := [str(number) for number in range(PARTITIONS) if number not in findings.offsets]:
            console.print(f"[dim]It read nothing of partition {', '.join(unread)} on A: all of it on B.[/]")
        comparison = findings.comparison
        verdict = "[bold green]Passed.[/]" if findings.held else "[bold red]Failed.[/]"
        console.print(
            f"{verdict} {comparison.source_records:,} records on A, {comparison.target_records:,} on B: "
            f"{comparison.missing} missing, {comparison.duplicates} duplicates, "
            f"{comparison.different} different, {comparison.elsewhere} at another offset. "
            f"The group read {findings.read_on_a:,} on A and {findings.read_on_b:,} on B."
        )
        if (changed := findings.changed) is not None:
            console.print(
                f"Of {changing.RECORDS:,} payments {changed.target_records:,} are on B, masked:"
                f" {changed.missing} missing, {changed.duplicates} duplicates, {changed.different} different."
            )
        if findings.held:
            console.print(
                "Nothing is lost, nothing is twice, and the group continued at its next record."
                " Next: `twinlog preflight mm2.properties` with a file of yours."
            )
        for words in findings.failures:
            console.print(f"[red]{words}[/]")
        if comparison.first_problem:
            console.print(f"[red]First problem: {comparison.first_problem}[/]")

    async def _stay(self, running: TwinlogRun) -> None:
        console = self._screen.console
        console.print("\nStill running (--keep). Ctrl-C stops everything. To connect:")
        for line in (
            f"A: {self._a.bootstrap_servers}   B: {self._b.bootstrap_servers}",
            f"twinlog status --config {running.file}",
            f"twinlog decode A.checkpoints.internal --cluster B --config {running.file}",
        ):
            console.print(f"  {line}")
        await asyncio.Event().wait()
