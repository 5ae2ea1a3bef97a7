"""The one way of commands that ask services: options, channels, calls, and their answers.

Every call has a deadline, reads all pages of a list, takes what another process owns as that one tells it
(docs/adr/0013), and raises the service's own error.
"""

import asyncio
import inspect
from collections.abc import (
    AsyncIterable,
    AsyncIterator,
    Awaitable,
    Callable,
    Collection,
    Coroutine,
    Iterable,
    Iterator,
    Sequence,
)
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Generic, TypeVar, cast

from twinlog.api.common.v1 import types_pb2
from twinlog.cli.common.failures import EXIT_FAILED, RUN, exiting_with
from twinlog.cli.common.fields import Field, Output, OutputOption, as_json, print_json, print_rows
from twinlog.cli.common.location import (
    ConfigOption,
    EndpointOption,
    channels,
    load_config,
    required_config,
    service_channel,
    service_endpoints,
)
from twinlog.cli.common.names import flow_name, flow_of
from twinlog.cli.common.options import option
from twinlog.cli.common.pasteable import say
from twinlog.errors import ConfigError, TwinlogError
from twinlog.service.feeds.pages import every
from twinlog.service.waiting import wait_or_stop

if TYPE_CHECKING:
    import grpc

    from twinlog.api.checkpoint.v1.checkpoint_service_pb2_grpc import CheckpointServiceStub
    from twinlog.api.configsync.v1.configsync_service_pb2_grpc import ConfigSyncServiceStub
    from twinlog.api.heartbeat.v1.heartbeat_service_pb2_grpc import HeartbeatServiceStub
    from twinlog.api.source.v1.source_service_pb2_grpc import SourceServiceStub
    from twinlog.cli.status.rows import Status
    from twinlog.config import Configuration

T = TypeVar("T")
Stub = TypeVar("Stub")
Row = TypeVar("Row")


_PAGE = 5000
"""Rows of one page."""
_ROWS = {
    "ListPartitions": "partitions",
    "ListGaps": "gaps",
    "ListGroups": "groups",
    "ListTopics": "topics",
    "ListAcls": "entries",
    "PlanSync": "plan.actions",
}
"""Where the rows of a method's pages stand in its answer."""
_STREAMS = frozenset({"PlanMove", "RunFailback", "RunFailover", "WatchMove"})
_SECONDS = {"source": 30.0, "heartbeat": 30.0, "checkpoint": 60.0, "configsync": 90.0}
"""Unless the call says another time: translating reads logs, and a plan reads two clusters."""


@dataclass(slots=True, kw_only=True)
class Services:
    """The services of one command or page, until it is left."""

    open_to: "Callable[[str], grpc.aio.Channel]"
    """Opens a channel to a service. Raises ConfigError for a wrong file or option."""
    seconds: float | None = None
    """Of each call; None: as the service needs."""
    silent: dict[str, TwinlogError] | None = None
    """By flow, why its owner did not answer: such an owner is not asked again. None: all are always asked."""
    _open: dict[str, "grpc.aio.Channel"] = field(default_factory=dict)

    async def __aenter__(self) -> "Services":
        return self

    async def __aexit__(self, *_: object) -> None:
        for channel in self._open.values():
            await channel.close()

    def channel(self, service: str) -> "grpc.aio.Channel":
        if service not in self._open:
            self._open[service] = self.open_to(service)
        return self._open[service]

    @property
    def source(self) -> "SourceServiceStub":
        from twinlog.api.source.v1.source_service_pb2_grpc import SourceServiceStub

        return self.asked(SourceServiceStub, "source")

    @property
    def checkpoint(self) -> "CheckpointServiceStub":
        from twinlog.api.checkpoint.v1.checkpoint_service_pb2_grpc import CheckpointServiceStub

        return self.asked(CheckpointServiceStub, "checkpoint")

    @property
    def configsync(self) -> "ConfigSyncServiceStub":
        from twinlog.api.configsync.v1.configsync_service_pb2_grpc import ConfigSyncServiceStub

        return self.asked(ConfigSyncServiceStub, "configsync")

    @property
    def heartbeat(self) -> "HeartbeatServiceStub":
        from twinlog.api.heartbeat.v1.heartbeat_service_pb2_grpc import HeartbeatServiceStub

        return self.asked(HeartbeatServiceStub, "heartbeat")

    def asked(self, stub: "Callable[[grpc.aio.Channel], Stub]", service: str) -> Stub:
        return called(stub(self.channel(service)), service, self.seconds, self.silent)


def called(
    stub: Stub, service: str, seconds: float | None = None, silent: dict[str, TwinlogError] | None = None
) -> Stub:
    """The stub of a service, whose calls are as this module says."""
    return cast("Stub", _Asked(stub, service, seconds or _SECONDS[service], silent))


@dataclass(frozen=True, slots=True)
class _Asked:
    stub: Any
    service: str
    seconds: float
    silent: dict[str, TwinlogError] | None

    def __getattr__(self, name: str) -> Callable[..., Any]:
        method, rows = getattr(self.stub, name), _ROWS.get(name, "")

        def call(request: Any, timeout: float = self.seconds) -> Any:
            if name in _STREAMS:
                return _answers(method(request, timeout=timeout), self.service)
            if rows and not request.page_size:
                request.page_size = _PAGE
            return _as_owners_tell(method, request, rows, self, timeout)

        return call


async def _answers(call: AsyncIterable[T], service: str) -> AsyncIterator[T]:
    with told_by(service):
        async for each in call:
            yield each


@contextmanager
def told_by(service: str) -> Iterator[None]:
    """Raises errors of its calls as the service told them."""
    import grpc

    from twinlog.service.errors_wire import error_from_rpc

    try:
        yield
    except grpc.aio.AioRpcError as error:
        raise error_from_rpc(error, peer=service) from error


async def _as_owners_tell(method: Any, request: Any, rows: str, stub: _Asked, timeout: float) -> Any:
    """The answer with all its pages of `rows`; of flows that another process owns as that one tells it, if it
    answers. Raises the error of the process that is asked first."""
    from twinlog.service.peers import CALL_TIMEOUT_SECONDS

    async def of_owner(flow: types_pb2.Flow) -> Any:
        """None if the owner does not answer."""
        asked = type(request)()
        asked.CopyFrom(request)
        asked.from_owner_of.CopyFrom(flow)
        try:
            with told_by("owner"):
                return await every(method, asked, rows, timeout=CALL_TIMEOUT_SECONDS)
        except TwinlogError as error:
            if stub.silent is not None:
                stub.silent[flow_name(flow)] = error
            return None

    with told_by(stub.service):
        whole = await every(method, request, rows, timeout=timeout)
    elsewhere = [
        flow for flow in getattr(whole, "owned_elsewhere", ()) if flow_name(flow) not in (stub.silent or {})
    ]
    async with asyncio.TaskGroup() as group:
        asked = [group.create_task(of_owner(flow), name="ask owner") for flow in elsewhere]
    for task in asked:
        if (told := task.result()) is not None:
            _replace(whole, told)
    return whole


def _replace(whole: Any, told: Any) -> None:
    """Put what is `told` of flows in the place of what the whole says of them."""
    lists = [each.name for each in whole.DESCRIPTOR.fields if _is_of_flows(each.message_type)]
    flows = {_flow_of(row) for name in lists for row in getattr(told, name)}
    for name in lists:
        rows = getattr(whole, name)
        kept = [row for row in rows if _flow_of(row) not in flows]
        merged = sorted([*kept, *getattr(told, name)], key=_flow_of)
        del rows[:]
        rows.extend(merged)


def _is_of_flows(kind: Any) -> bool:
    return kind is not None and (kind is types_pb2.Flow.DESCRIPTOR or "flow" in kind.fields_by_name)


def _flow_of(row: Any) -> tuple[str, str]:
    flow = getattr(row, "flow", row)
    return flow.source, flow.target


def pause_seconds(seconds: float, *, took: float) -> float:
    """How long to wait before asking again: a service that has much to tell spends at most a fifth of its
    time on it."""
    return max(seconds, 4 * took)


async def looks(ask: Callable[[], Awaitable[T]], *, seconds: float) -> AsyncIterator[T | TwinlogError]:
    """The answers, every `seconds`, and why there is none now. Raises the error of the first call, and one
    that no repetition mends."""
    now, never, answered = asyncio.get_running_loop().time, asyncio.Event(), False
    while True:
        began = now()
        try:
            look: T | TwinlogError = await ask()
            answered = True
        except TwinlogError as error:
            if not answered or not error.retriable:
                raise
            look = error
        yield look
        await wait_or_stop(never, pause_seconds(seconds, took=now() - began))


@dataclass(slots=True)
class Differences(Generic[Row]):
    """Which rows differ from those of the look before. Pure."""

    key: Callable[[Row], Any]
    shape: Callable[[Row], Any]
    """What counts as a difference."""
    rows: dict[Any, Row] | None = None
    """None before the first look."""

    def take(self, rows: Iterable[Row]) -> tuple[list[Row], list[Row]] | None:
        """Those that are new or differ, and those that are gone; None = no news."""
        before, self.rows = self.rows, {self.key(row): row for row in rows}
        known = before or {}
        changed = [
            row
            for key, row in self.rows.items()
            if key not in known or self.shape(known[key]) != self.shape(row)
        ]
        gone = [row for key, row in known.items() if key not in self.rows]
        return (changed, gone) if changed or gone or before is None else None


@dataclass(frozen=True, slots=True, kw_only=True)
class Call:
    """One call of a command: the services that it asks, and how it answers."""

    config: Path | None = None
    endpoint: list[str] | None = None
    output: Output = Output.TABLE

    @property
    def configuration(self) -> "Configuration":
        """Of the properties file. Raises ConfigError, also when none is named."""
        return load_config(required_config(self.config))

    @property
    def in_json(self) -> bool:
        return self.output is Output.JSON

    def services(self) -> Services:
        return Services(open_to=partial(service_channel, self.config, self.endpoint))

    async def status(self, timeout_seconds: float, *services: str) -> "Status":
        """What all services tell, or these. Raises ConfigError."""
        from twinlog.cli.status.query import query_status

        endpoints, open_to = service_endpoints(self.config, self.endpoint), channels(self.config)
        asked = {name: endpoints[name] for name in services or endpoints}
        return await query_status(asked, open_to, timeout_seconds=timeout_seconds)

    def ask(self, work: Callable[[Services], Awaitable[T]]) -> T:
        """Ask services. What is asked of the user is asked outside: in an event loop Ctrl-C would wait for
        the answer."""

        async def asked() -> T:
            async with self.services() as services:
                return await work(services)

        return self.run(asked())

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        return cast("T", RUN.get()(work))

    def tell(self, document: Any, text: Callable[[], object], *, fails: bool = False) -> None:
        """Print an answer, and end with 1 if it `fails`."""
        with exiting_with(EXIT_FAILED if fails else 0):
            if self.in_json:
                print_json(document)
            else:
                text()

    def tell_rows(
        self,
        fields: Sequence[Field[Row]],
        rows: Collection[Row],
        *,
        title: str = "",
        empty: str = "",
        lines: Iterable[str] = (),
    ) -> None:
        """Print a list of rows; below a table also `lines`."""

        def text() -> None:
            print_rows(fields, rows, title=title, empty=empty)
            for line in lines:
                say(line)

        self.tell([as_json(fields, row) for row in rows], text)


def _common(
    config: ConfigOption = None, endpoint: EndpointOption = None, output: OutputOption = Output.TABLE
) -> None: ...


_COMMON = inspect.signature(_common).parameters
_FLOW = inspect.Parameter(
    "flow_option",
    inspect.Parameter.KEYWORD_ONLY,
    default=option("--flow A->B", "The same as the argument.", None, hidden=True),
    annotation=str | None,
)


def command(work: Callable[..., None], *, takes: Iterable[str] = _COMMON) -> Callable[..., None]:
    """A function of a Call and of options of its own, as typer takes it: with --config, --endpoint and -o
    behind them, or those that it `takes`. Whose first argument may be a flow, takes that as --flow, too."""
    own: list[inspect.Parameter] = []
    makers: dict[str, Callable[..., Any]] = {}
    for each in [*inspect.signature(work, eval_str=True).parameters.values()][1:]:
        if inspect.isfunction(each.default):
            makers[each.name] = each.default
        own += inspect.signature(each.default).parameters.values() if each.name in makers else [each]
    first = own[0] if own and "[A->B]" in _metavar(own[0]) else None
    parameters = [*own, *(_COMMON[name] for name in takes), *([_FLOW] if first else [])]

    def run(**given: Any) -> None:
        call = Call(**{name: given.pop(name) for name in takes})
        flow = given.pop("flow_option", None)
        if first is not None and flow is not None:
            is_list = "list" in str(first.annotation)
            given[first.name] = _with_flow((given[first.name] or []) if is_list else given[first.name], flow)
        made = {
            name: maker(**{each: given.pop(each) for each in inspect.signature(maker).parameters})
            for name, maker in makers.items()
        }
        work(call, **given, **made)

    run.__signature__ = inspect.Signature(  # type: ignore[attr-defined]
        [each.replace(kind=inspect.Parameter.KEYWORD_ONLY) for each in parameters]
    )
    run.__annotations__ = {}
    run.__doc__, run.__name__ = work.__doc__, work.__name__
    return run


def _metavar(parameter: inspect.Parameter) -> str:
    shown = (parameter.default, *getattr(parameter.annotation, "__metadata__", ()))
    return next((str(each.metavar) for each in shown if hasattr(each, "metavar")), "")


def _with_flow(argument: Any, flow: str) -> Any:
    """What the first argument is with --flow. Raises ConfigError for two flows, and for what is none."""
    if isinstance(argument, list):
        return [*argument, str(flow_of(flow))]  # Or its name would be one of a group.
    if argument not in (None, flow):
        raise ConfigError(f"two flows are named: {argument} and --flow {flow}: name one", key="--flow")
    return flow


reading_clusters = partial(command, takes=("config", "output"))
"""For commands that ask no service."""
printing = partial(command, takes=("output",))
