"""The two that are compared: the real MirrorMaker 2 and Twinlog, each as a process tree of its own."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Iterable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from bench.comparing.results import Copier
from twinlog.batches import Codec
from twinlog.errors import StateError
from twinlog.local.processes.process import ProcessError
from twinlog.local.twinlog_run import TwinlogRun
from twinlog.model import Flow
from twinlog.properties_text import render_properties
from twinlog.testing.java.mm2 import MirrorMaker2

TASKS = 2
_MM2_HEAP_MEGABYTES = 2048
"""What MM2's own start script gives it."""
_FACTORS = (
    "replication.factor",
    "checkpoints.topic.replication.factor",
    "heartbeats.topic.replication.factor",
    "offset-syncs.topic.replication.factor",
    "offset.storage.replication.factor",
    "status.storage.replication.factor",
    "config.storage.replication.factor",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class RunningCopier:
    """What a run needs of a copier that is being started."""

    copier: TwinlogRun | MirrorMaker2
    start: Callable[[], Coroutine[Any, Any, None]]
    """Returns once it says that it is ready; it may be copying already. Raises TwinlogError."""
    stop: Callable[[], Awaitable[None]]

    @property
    def pid(self) -> int | None:
        """Root of its process tree; None before there is one."""
        try:
            return self.copier.process.pid
        except (StateError, ProcessError):
            return None


def copier_properties(
    copier: Copier,
    flow: Flow,
    source: Mapping[str, str],
    target: Mapping[str, str],
    *,
    topics: str,
    codec: Codec = Codec.NONE,
    more: Iterable[tuple[str, str]] = (),
) -> dict[str, str]:
    """The properties file: the same for both but for what is said here.

    Everything has its default, except replication factor 1 (there is one broker), two tasks (there are two
    cores at least), copies with the source's offsets where Twinlog can have them (a key that MM2 does not
    know), and that MM2 does not run a second worker for heartbeats of the other direction, which spares it a
    third of its memory. Tuned: large polls and batches, and the codec of the source.
    """
    settings = {
        "clusters": f"{flow.source}, {flow.target}",
        **{f"{flow.source}.{key}": value for key, value in source.items()},
        **{f"{flow.target}.{key}": value for key, value in target.items()},
        f"{flow}.enabled": "true",
        f"{flow}.topics": topics,
        f"{flow.target}->{flow.source}.emit.heartbeats.enabled": "false",
        "tasks.max": str(TASKS),
        "twinlog.offsets": "translated" if copier is Copier.TWINLOG_TRANSLATED else "auto",
        **dict.fromkeys(_FACTORS, "1"),
        **{f"{flow}.{key}": value for key, value in more},
    }
    if copier is Copier.MM2_TUNED:
        settings |= {
            f"{flow.source}.consumer.max.poll.records": "10000",
            f"{flow.target}.producer.batch.size": "1048576",
            f"{flow.target}.producer.linger.ms": "20",
            f"{flow.target}.producer.compression.type": codec.name.lower(),
        }
    return settings


@asynccontextmanager
async def copier_in(
    directory: Path, copier: Copier, properties: Mapping[str, str]
) -> AsyncIterator[RunningCopier]:
    """A copier that is not started yet; it has ended at the end."""
    text = render_properties(properties)
    if copier in (Copier.MM2, Copier.MM2_TUNED):
        file = directory / "mm2.properties"
        file.write_text(text)
        mm2 = MirrorMaker2(file, log_file=directory / "mm2.log", heap_megabytes=_MM2_HEAP_MEGABYTES)
        start, stop = partial(asyncio.to_thread, mm2.start), partial(asyncio.to_thread, mm2.stop)
        running = RunningCopier(copier=mm2, start=start, stop=stop)
    else:
        twinlog = TwinlogRun(text, directory)
        running = RunningCopier(
            copier=twinlog, start=twinlog.start, stop=partial(twinlog.__aexit__, None, None, None)
        )
    try:
        yield running
    finally:
        await running.stop()


@asynccontextmanager
async def starting(copier: RunningCopier) -> AsyncIterator[None]:
    """Start it while the body runs, as it copies before it says that it is ready. Raises its failure."""
    try:
        async with asyncio.TaskGroup() as group:
            start = group.create_task(copier.start(), name="start the copier")
            yield
            start.cancel()
    except ExceptionGroup as failures:
        raise failures.exceptions[0] from None
