"""The one way in which a service tells others what it remembers: they follow its tables.

The owner streams what it has read back from the topic of a table, and nothing else. While it is away, or has
not read it, a follower reads the topic itself: the same rows, into the same table, from the same revision on.
"""

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import grpc
import structlog

from twinlog.api.common.v1 import table_service_pb2 as pb
from twinlog.api.common.v1 import table_service_pb2_grpc as pb_grpc
from twinlog.backoff import Backoff, backoff_seconds
from twinlog.clock import Clock
from twinlog.errors import KafkaError, TwinlogError, WireFormatError
from twinlog.kafka.table import Revision, RowCodec, Table
from twinlog.service.errors_wire import PeerUnavailableError, error_from_rpc
from twinlog.service.grpc_server import Context
from twinlog.service.waiting import finish_or_cancel, wait_for_any, wait_or_stop
from twinlog.telemetry.logging import RepeatLimiter

_log = structlog.stdlib.get_logger(__name__)

Call = grpc.aio.UnaryStreamCall[pb.FollowRequest, pb.FollowResponse]

SIGN_OF_LIFE_SECONDS = 10.0
SILENT_SECONDS = 30.0
"""A stream that is silent for this long is dead."""
PATIENCE_SECONDS = 5.0
"""How long the owner of a table may say nothing before its topic is read."""
READ_SECONDS = 10.0
"""How often it is read then. Nobody else knows what has changed meanwhile."""
LONGEST_RETRY_SECONDS = 60.0
_START_SECONDS = 60.0
_READ_AT_ONCE = 4
_PART_BYTES = 256 << 10


class TableName(NamedTuple):
    cluster: str
    """The alias."""
    topic: str


@dataclass(frozen=True, slots=True, kw_only=True)
class _Shown:
    revision: Revision
    rows: Mapping[Any, Any]
    codec: RowCodec[Any, Any]


class ToldTables(pb_grpc.TableServiceServicer):
    """The owner's side, for all tables of a process. Use it from one event loop."""

    def __init__(self, stop: asyncio.Event) -> None:
        """Streams end at `stop`."""
        self._stop = stop
        self._shown: dict[TableName, _Shown] = {}
        self._changed = asyncio.Event()

    def show(self, name: TableName, table: Table[Any, Any], keys: Callable[[Any], bool]) -> None:
        """Tell followers these rows of the table, as it was loaded last."""
        if table.revision is None:
            self._shown.pop(name, None)
            return
        rows = {key: row for key, row in table.rows.items() if keys(key)}
        before = self._shown.get(name)
        if before is not None and (before.revision, before.rows) == (table.revision, rows):
            return
        self._shown[name] = _Shown(revision=table.revision, rows=rows, codec=table.codec)
        self._changed.set()
        self._changed = asyncio.Event()

    def rows(self, name: TableName) -> Mapping[Any, Any]:
        """What followers of the table are told."""
        shown = self._shown.get(name)
        return {} if shown is None else shown.rows

    async def Follow(  # noqa: N802
        self, request: pb.FollowRequest, context: Context
    ) -> AsyncIterator[pb.FollowResponse]:
        known = {
            TableName(each.name.cluster, each.name.topic): _revision_of(each.revision)
            if each.HasField("revision")
            else None
            for each in request.tables
        }
        told: dict[TableName, _Shown] = {}
        while not self._stop.is_set():
            changed, news = self._changed, False
            for name in known:
                shown, before = self._shown.get(name), told.get(name)
                if shown is None or shown is before:
                    continue
                if before is None and known[name] == shown.revision:
                    before = shown
                told[name], news = shown, True
                for part in _parts(name, shown, before):
                    yield part
            if not news and not await wait_for_any(changed, self._stop, seconds=SIGN_OF_LIFE_SECONDS):
                yield pb.FollowResponse()


def _parts(name: TableName, shown: _Shown, before: _Shown | None) -> Iterator[pb.FollowResponse]:
    rows = {} if before is None else before.rows
    news = [
        (key, row) for key, row in shown.rows.items() if (known := rows.get(key)) is not row and known != row
    ]
    gone = [(key, None) for key in rows if key not in shown.rows]
    part, size = _part(name, before), 0
    for key, row in (*news, *gone):
        raw, value = shown.codec.encode(key, row)
        part.rows.add(key=raw, value=value)
        size += len(raw) + len(value or b"")
        if size >= _PART_BYTES:
            yield part
            part, size = _part(name, before), 0
    part.revision.CopyFrom(pb.TableRevision(**shown.revision._asdict()))
    yield part


def _part(name: TableName, before: _Shown | None) -> pb.FollowResponse:
    return pb.FollowResponse(name=_name(name), is_whole=before is None)


def _name(name: TableName) -> pb.TableName:
    return pb.TableName(cluster=name.cluster, topic=name.topic)


def _revision_of(revision: pb.TableRevision) -> Revision:
    return Revision(revision.topic_id, revision.leader_epoch, revision.next_offset)


@dataclass(slots=True)
class _Followed:
    table: Table[Any, Any]
    untold: asyncio.Event = field(default_factory=asyncio.Event)
    """Set while the owner does not tell the table."""
    parts: dict[bytes, bytes | None] = field(default_factory=dict)
    """What was told since the last revision."""
    problem: TwinlogError | None = None
    """Why the topic could not be read."""


class TableFollower:
    """The tables of another service, from it or from their topics. Run `run` as a loop; all else may be
    called at any time from the same event loop. What is known of a table stays until there is news.
    """

    def __init__(
        self,
        channel: grpc.aio.Channel,
        *,
        peer: str,
        clock: Clock,
        backoff: Backoff,
        on_change: Callable[[TableName], None],
        patience_seconds: float = PATIENCE_SECONDS,
        read_seconds: float = READ_SECONDS,
    ) -> None:
        """`on_change` is called when a table was told or read, also without news."""
        self._stub = pb_grpc.TableServiceStub(channel)
        self._peer = peer
        self._clock = clock
        self._backoff = backoff
        self._on_change = on_change
        self._patience_seconds = patience_seconds
        self._read_seconds = read_seconds
        self._tables: dict[TableName, _Followed] = {}
        self._limiter = RepeatLimiter(interval_seconds=60.0)
        self._reads: dict[str, asyncio.Semaphore] = {}
        """By cluster: one that is away holds up the tables of no other."""
        self.connected = False
        """Whether the owner's stream is open and has delivered something."""
        self._starts_until = clock.monotonic() + _START_SECONDS
        """Services start together, in any order: an owner that is not there before is no trouble."""

    def add(self, name: TableName, table: Table[Any, Any]) -> None:
        """Follow this table, too. Before `run`."""
        if name not in self._tables:
            self._tables[name] = _Followed(table)
            self._tables[name].untold.set()

    def is_told(self, name: TableName) -> bool:
        """Whether the owner tells the table now."""
        return not self._tables[name].untold.is_set()

    async def know(self, name: TableName) -> None:
        """Read the table's topic now, unless the owner tells it. Raises as `Table.load`."""
        followed = self._tables[name]
        if not followed.untold.is_set():
            return
        try:
            async with self._reads.setdefault(name.cluster, asyncio.Semaphore(_READ_AT_ONCE)):
                await followed.table.load()
        except (KafkaError, WireFormatError) as error:
            followed.problem = error
            self._say("table_not_read", error, cluster=name.cluster, topic=name.topic)
            raise
        followed.problem = None
        self._on_change(name)

    def problem(self, name: TableName) -> TwinlogError | None:
        """Why the table's topic could not be read when it was tried last."""
        return self._tables[name].problem

    async def run(self, stop: asyncio.Event) -> None:
        """Loop: follow the owner until `stop`, and the topics through every absence of it."""
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(self._follow(stop), name=f"follow {self._peer}")]
            for name, followed in self._tables.items():
                read = self._read(name, followed, stop)
                tasks.append(group.create_task(read, name=f"read {name.topic} on {name.cluster}"))
            await stop.wait()
            for task in tasks:
                task.cancel()

    async def _follow(self, stop: asyncio.Event) -> None:
        while not stop.is_set():
            error = await self._told_until_lost()
            self.connected = False
            for followed in self._tables.values():
                followed.parts = {}
                followed.untold.set()
            self._say("tables_not_told", error, peer=self._peer)
            await wait_or_stop(stop, self._backoff.next())

    async def _told_until_lost(self) -> TwinlogError:
        call = self._stub.Follow(pb.FollowRequest(tables=[_request(*each) for each in self._tables.items()]))
        try:
            async for response in _until_silent(call, self._peer):
                if response.HasField("name"):
                    await self._take(response)
                if not self.connected:
                    self.connected, self._starts_until = True, 0.0
                    _log.info("tables_told", peer=self._peer)
                # Not before it was taken: a table that cannot be read is not asked for without a pause.
                self._backoff.reset()
        except grpc.RpcError as failure:
            return error_from_rpc(failure, peer=self._peer)
        except (PeerUnavailableError, WireFormatError) as error:
            return error
        finally:
            call.cancel()
        return PeerUnavailableError(f"{self._peer} ended the stream", reason="WATCH_ENDED")

    async def _take(self, response: pb.FollowResponse) -> None:
        name = TableName(response.name.cluster, response.name.topic)
        followed = self._tables.get(name)
        if followed is None:
            return
        followed.parts |= {row.key: row.value if row.HasField("value") else None for row in response.rows}
        if response.HasField("revision"):
            parts, followed.parts = followed.parts, {}
            await followed.table.take(parts, _revision_of(response.revision), is_whole=response.is_whole)
            followed.untold.clear()
            followed.problem = None
            self._on_change(name)

    async def _read(self, name: TableName, followed: _Followed, stop: asyncio.Event) -> None:
        failures, seconds = 0, self._patience_seconds
        while not stop.is_set():
            await wait_for_any(stop, followed.untold)
            if await wait_or_stop(stop, seconds):
                return
            failures, seconds = failures + 1, self._patience_seconds
            if not followed.untold.is_set():
                failures = 0
                continue
            try:
                await finish_or_cancel(self.know(name), stop=stop)
            except (KafkaError, WireFormatError):
                seconds = backoff_seconds(
                    failures, first=self._patience_seconds, longest=LONGEST_RETRY_SECONDS
                )
            else:
                failures, seconds = 0, self._read_seconds

    def _say(self, event: str, error: TwinlogError, **about: str) -> None:
        now = self._clock.monotonic()
        left_out = self._limiter.admit(f"{event} {error.reason}", now=now)
        if left_out is not None:
            starts = error.reason == PeerUnavailableError.default_reason and now < self._starts_until
            (_log.info if starts else _log.warning)(
                event, **about, reason=error.reason, message=str(error), left_out=left_out
            )


def _request(name: TableName, followed: _Followed) -> pb.FollowedTable:
    if followed.table.revision is None:
        return pb.FollowedTable(name=_name(name))
    revision = pb.TableRevision(**followed.table.revision._asdict())
    return pb.FollowedTable(name=_name(name), revision=revision)


async def _until_silent(call: Call, peer: str) -> AsyncIterator[pb.FollowResponse]:
    responses = aiter(call)
    while True:
        try:
            async with asyncio.timeout(SILENT_SECONDS):
                response = await anext(responses)
        except StopAsyncIteration:
            return
        except TimeoutError:
            raise PeerUnavailableError(
                f"{peer} said nothing for {SILENT_SECONDS:g} s",
                reason="WATCH_SILENT",
                metadata={"peer": peer},
            ) from None
        yield response
