"""Runs configsync and source for one flow as child processes, until every partition has reached its end."""

import asyncio
import os
import subprocess
import sys
import tempfile
from collections.abc import Awaitable, Callable, Collection, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from twinlog.api.source.v1 import source_service_pb2 as pb2
from twinlog.cli.common.call import Call
from twinlog.cli.source.client import every_partition, list_flows
from twinlog.cli.source.partitions import is_troubled, state_name
from twinlog.config.flow.source_settings import until_json
from twinlog.errors import ConfigError, StateError, TwinlogError
from twinlog.kafka.errors import KAFKA_REASONS
from twinlog.model import Flow, TopicPartition
from twinlog.service.waiting import wait_or_stop
from twinlog.supervisor.children import ON_LINUX, end_with

_POLL_SECONDS = 0.5
_GONE_EVERY_SECONDS = 5.0
_START_SECONDS = 120.0
_STOP_SECONDS = 120.0
_FAULTED_SECONDS = 60.0
"""When all remaining partitions have been set aside for this long, only an operator can help."""
_REFUSALS = frozenset(each.name for each in KAFKA_REASONS.values() if not each.retriable) - {"TOPIC_UNKNOWN"}
"""Kafka's answers that stay the same until somebody acts. (An unknown topic may be about to be created.)"""
_MOST_ARGUMENT_BYTES = 100_000
_SHOWN_LINES = 15


@dataclass(frozen=True, slots=True, kw_only=True)
class CopyProgress:
    total_offsets: int
    done_offsets: int
    troubles: Mapping[str, str]
    """By partition: its problem."""


@dataclass(slots=True, kw_only=True)
class Arrivals:
    """The progress of the partitions. Pure: takes the service's answers with monotonic seconds."""

    starts: Mapping[TopicPartition, int]
    ends: Mapping[TopicPartition, int]
    """The ends of partitions with something to copy, or without a copy yet."""
    without_copy: frozenset[TopicPartition] = frozenset()
    """Their copies have to be created, even if there is nothing to copy."""
    gone: frozenset[str] = frozenset()
    """Topics that can no longer be copied."""
    _flow_trouble: tuple[str, str] = ("", "")
    """Reason and message of a flow that as a whole does not copy."""
    _flow_troubled_since: float | None = None
    _positions: dict[TopicPartition, int] = field(default_factory=dict)
    _troubles: dict[TopicPartition, tuple[str, str]] = field(default_factory=dict)
    _faulted_since: float | None = None

    def observe(self, statuses: Collection[pb2.PartitionStatus], now: float) -> None:
        """An empty answer means nothing: the service is being restarted, or topics are not known yet."""
        for each in statuses:
            partition = TopicPartition(each.source.topic, each.source.partition)
            self._positions[partition] = each.position
            if each.target_topic_id:
                self.without_copy -= {partition}
            words = f"{each.reason} {each.message}".strip()
            self._troubles.pop(partition, None)
            if is_troubled(each):
                self._troubles[partition] = state_name(each), words
        left = self.left
        is_faulted = bool(left) and all(self._troubles.get(each, ("", ""))[0] == "FAULTED" for each in left)
        if not is_faulted:
            self._faulted_since = None
        elif self._faulted_since is None:
            self._faulted_since = now

    def observe_flow(self, reason: str, message: str, now: float) -> None:
        """Why the flow, or a part of it, does not copy; empty: it copies."""
        if reason != self._flow_trouble[0]:
            self._flow_troubled_since = now
        self._flow_trouble = reason, message

    @property
    def left(self) -> list[TopicPartition]:
        """Partitions that have not reached their end, and still may."""
        return [
            partition
            for partition, end in self.ends.items()
            if partition.topic not in self.gone
            and (partition in self.without_copy or self._positions.get(partition, -1) < end)
        ]

    def is_over(self, now: float) -> bool:
        """Whether everything is copied, or the rest needs an operator."""
        if not self.left:
            return True
        since = self._flow_troubled_since if self._has_not_begun else None
        if self._faulted_since is not None:
            since = self._faulted_since
        return since is not None and now - since >= _FAULTED_SECONDS

    @property
    def _has_not_begun(self) -> bool:
        """Whether Kafka refuses what the flow needs before it can copy anything."""
        return self._flow_trouble[0] in _REFUSALS and not any(each in self._positions for each in self.left)

    @property
    def blockers(self) -> list[tuple[str | None, str, str]]:
        """Topic, reason and message of everything that kept the copy from its end; no topic = the whole
        flow."""
        found: list[tuple[str | None, str, str]] = []
        if self._has_not_begun:
            found.append((None, *self._flow_trouble))
        for partition in self.left:
            state, words = self._troubles.get(partition, ("", ""))
            if state == "FAULTED":
                reason, _, message = words.partition(" ")
                found.append((partition.topic, reason or "NOT_COPIED", f"{partition}: {message}"))
        return found

    @property
    def progress(self) -> CopyProgress:
        troubles = {str(each): " ".join(self._troubles[each]) for each in self.left if each in self._troubles}
        words = " ".join(self._flow_trouble).strip()
        if words and not troubles:
            troubles = {"the flow": words}
        done = 0
        for partition, end in self.ends.items():
            start = self.starts[partition]
            done += min(max(self._positions.get(partition, start), start), end) - start
        return CopyProgress(
            total_offsets=sum(end - self.starts[partition] for partition, end in self.ends.items()),
            done_offsets=done,
            troubles=troubles,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class FiniteCopy:
    config: Path
    flow: Flow
    ends: Mapping[TopicPartition, int]
    arrivals: Arrivals
    gone: Callable[[], Awaitable[frozenset[str]]]
    """Topics that no longer exist on the source."""
    on_progress: Callable[[CopyProgress], None]
    timeout_seconds: float
    """0 = none."""

    async def run(self) -> None:
        """Returns when everything possible is copied, or the time is over. The services have ended then; they
        also end when this process is killed. Raises StateError when they do not start, or end early;
        ConfigError."""
        until = until_json(self.ends)
        if len(until.encode()) > _MOST_ARGUMENT_BYTES:
            raise ConfigError(
                "too many partitions for one command: name some of the topics with --topic", key="--topic"
            )
        with tempfile.TemporaryDirectory() as directory:
            told, log = Path(directory, "stdout"), Path(directory, "stderr")
            process = self._start(until, told, log)
            try:
                endpoint = await self._endpoint(process, told, log)
                await self._arrive(process, endpoint, log)
            finally:
                await asyncio.to_thread(_stop, process)

    def _start(self, until: str, told: Path, log: Path) -> subprocess.Popen[bytes]:
        with told.open("wb") as stdout, log.open("wb") as stderr:
            return subprocess.Popen(
                [*self._command(until)],
                stdin=subprocess.DEVNULL,
                stdout=stdout,
                stderr=stderr,
                start_new_session=True,
                preexec_fn=partial(end_with, os.getpid()) if ON_LINUX else None,
            )

    def _command(self, until: str) -> Iterator[str]:
        yield from (sys.executable, "-m", "twinlog", "run", str(self.config), "--flows", str(self.flow))
        yield from ("--service", "configsync", "--service", "source")
        for key, value in (
            ("twinlog.copy.until", until),
            ("twinlog.delay.seconds", "0"),
            ("twinlog.drain.seconds", "0"),
            ("twinlog.source.listen", "127.0.0.1:0"),
            ("twinlog.configsync.listen", "127.0.0.1:0"),
        ):
            yield from ("--set", f"{key}={value}")

    async def _endpoint(self, process: subprocess.Popen[bytes], told: Path, log: Path) -> str:
        """The address of the source service, once it serves."""
        loop = asyncio.get_running_loop()
        give_up_at = loop.time() + _START_SECONDS
        while loop.time() < give_up_at and process.poll() is None:
            if endpoint := _source_endpoint(told):
                return endpoint
            await wait_or_stop(asyncio.Event(), _POLL_SECONDS)
        raise _not_running("did not start in time", log)

    async def _arrive(self, process: subprocess.Popen[bytes], endpoint: str, log: Path) -> None:
        loop = asyncio.get_running_loop()
        give_up_at = loop.time() + self.timeout_seconds if self.timeout_seconds else float("inf")
        look_at = loop.time()
        async with Call(endpoint=[f"source={endpoint}"]).services() as at:
            while loop.time() < give_up_at:
                if process.poll() is not None:
                    raise _not_running("have ended unexpectedly", log)
                with suppress(TwinlogError):  # It is being restarted.
                    self.arrivals.observe(await every_partition(at.source, None, ""), loop.time())
                    for flow in await list_flows(at.source, None):
                        self.arrivals.observe_flow(flow.reason, flow.message, loop.time())
                if loop.time() >= look_at:
                    self.arrivals.gone |= await self.gone()
                    look_at = loop.time() + _GONE_EVERY_SECONDS
                self.on_progress(self.arrivals.progress)
                if self.arrivals.is_over(loop.time()):
                    return
                await wait_or_stop(asyncio.Event(), _POLL_SECONDS)


def _stop(process: subprocess.Popen[bytes]) -> None:
    process.terminate()
    try:
        process.wait(_STOP_SECONDS)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def _source_endpoint(told: Path) -> str:
    """Return the address in `twinlog run`'s ready line; empty before that line."""
    for line in told.read_text(errors="replace").splitlines(keepends=True):
        if line.startswith("ready") and line.endswith("\n"):
            found = [word for word in line.split() if word.startswith("source=")]
            return found[0].partition("=")[2] if found else ""
    return ""


def _not_running(what: str, log: Path) -> StateError:
    lines = log.read_text(errors="replace").splitlines(keepends=True)
    last = "".join(lines[-_SHOWN_LINES:]).strip()
    return StateError(f"the services of the copy {what}; the end of their log:\n{last}", reason="NOT_RUNNING")
