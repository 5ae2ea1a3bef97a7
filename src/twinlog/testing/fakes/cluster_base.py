"""The state of a fake cluster, which its admin calls, readers and writers share."""

import asyncio
import functools
import inspect
from collections import defaultdict
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Mapping
from dataclasses import dataclass
from itertools import count
from typing import Any, Concatenate, ParamSpec, Protocol, TypeVar

from twinlog.clock import Clock, SystemClock
from twinlog.errors import KafkaError
from twinlog.kafka.codes import ErrorCode
from twinlog.kafka.errors import UNAVAILABLE, from_code, from_reason
from twinlog.kafka.ports import AclBinding, QuotaEntity
from twinlog.local.broker import new_kafka_id
from twinlog.model import TopicPartition
from twinlog.testing.fakes.cluster_state import FakeGroup, FakeLog, FakeTopic

# Fault injection: a test's functions called before or after an operation of a fake cluster.


@dataclass(frozen=True, slots=True, kw_only=True)
class Call:
    """One call of an operation, for hooks."""

    operation: str
    """The port's method: "append", "fetch", "create_topics", …"""
    arguments: Mapping[str, Any]
    result: Any = None
    """The call's result; only for hooks that run after it."""


Hook = Callable[[Call], Awaitable[None] | None]
"""May raise (a KafkaError injects that fault), wait (a slow broker), change the cluster, or do nothing."""


class Hooks:
    def __init__(self, alias: str) -> None:
        self._alias = alias
        self._before: defaultdict[str, list[Hook]] = defaultdict(list)
        self._after: defaultdict[str, list[Hook]] = defaultdict(list)
        self.available = True

    def add(self, operation: str, hook: Hook, *, after: bool) -> Callable[[], None]:
        """Returns a function that removes the hook; calling that twice does nothing."""
        hooks = (self._after if after else self._before)[operation]
        hooks.append(hook)

        def remove() -> None:
            if hook in hooks:
                hooks.remove(hook)

        return remove

    def are_of(self, operation: str) -> bool:
        return bool(self._before.get(operation) or self._after.get(operation))

    async def before(self, operation: str, arguments: Mapping[str, Any]) -> None:
        await self._run(self._before[operation], Call(operation=operation, arguments=arguments))

    def check_available(self, operation: str) -> None:
        """Raises TransientKafkaError (KAFKA_UNAVAILABLE) during an outage."""
        if not self.available:
            raise from_reason(UNAVAILABLE, operation.replace("_", " "), alias=self._alias)

    async def after(self, operation: str, arguments: Mapping[str, Any], result: Any) -> None:
        await self._run(self._after[operation], Call(operation=operation, arguments=arguments, result=result))

    async def _run(self, hooks: list[Hook], call: Call) -> None:
        for hook in tuple(hooks):
            answer = hook(call)
            if inspect.isawaitable(answer):
                await answer


class Hooked(Protocol):
    """An object with operations that hooks can watch."""

    @property
    def hooks(self) -> Hooks: ...


Self = TypeVar("Self", bound=Hooked)
Parameters = ParamSpec("Parameters")
Result = TypeVar("Result")


def operation(
    method: Callable[Concatenate[Self, Parameters], Coroutine[Any, Any, Result]],
) -> Callable[Concatenate[Self, Parameters], Coroutine[Any, Any, Result]]:
    """Make a method of a fake an operation: hooks of its name (without a leading underscore) run before and
    after it."""
    signature, name = inspect.signature(method), method.__name__.removeprefix("_")

    @functools.wraps(method)
    async def hooked(self: Self, /, *args: Parameters.args, **kwargs: Parameters.kwargs) -> Result:
        def arguments() -> dict[str, Any]:
            bound = signature.bind(self, *args, **kwargs)
            bound.apply_defaults()
            return {name: value for name, value in bound.arguments.items() if name != "self"}

        hooks = self.hooks
        hooks.check_available(name)
        # Most operations have none, and their arguments take longer than all else.
        if hooks.are_of(name):
            await hooks.before(name, arguments())
        result = await method(self, *args, **kwargs)
        if hooks.are_of(name):
            await hooks.after(name, arguments(), result)
        return result

    return hooked


Thing = TypeVar("Thing")
Answer = TypeVar("Answer")


class FakeClusterBase:
    """Topics, groups and ACLs; waking of readers."""

    def __init__(
        self,
        alias: str = "fake",
        *,
        clock: Clock | None = None,
        broker_count: int = 1,
        cluster_id: str | None = None,
        authorizer: bool = True,
        broker_configs: Mapping[str, str] | None = None,
    ) -> None:
        """`authorizer` False: ACL calls answer as a cluster without one.

        `broker_configs` are static configs of every broker.
        """
        self.alias = alias
        self.clock: Clock = clock or SystemClock()
        self.hooks = Hooks(alias)
        self.topics: dict[str, FakeTopic] = {}
        self.groups: dict[str, FakeGroup] = {}
        self.acls: set[AclBinding] = set()
        self.quotas: dict[QuotaEntity, dict[str, float]] = {}
        self.users: dict[str, frozenset[str]] = {}
        self._cluster_id = cluster_id or new_kafka_id()
        self._broker_count = broker_count
        self.silent_brokers: set[int] = set()
        """Node ids of those that do not answer, of 1 to `broker_count`."""
        self._broker_configs = dict(broker_configs or {})
        self._authorizer = authorizer
        self._change: asyncio.Future[None] | None = None
        self._producers = count(1_000)

    def new_producer_id(self) -> int:
        return next(self._producers)

    def refusal(self, code: int, doing: str) -> KafkaError:
        return from_code(code, doing, alias=self.alias)

    def each(
        self, things: Iterable[Thing], answer: Callable[[Thing], Answer]
    ) -> dict[Thing, Answer | KafkaError]:
        """By thing the answer, or the error that it raises."""
        found: dict[Thing, Answer | KafkaError] = {}
        for thing in things:
            try:
                found[thing] = answer(thing)
            except KafkaError as error:
                found[thing] = error
        return found

    def topic(self, name: str, doing: str) -> FakeTopic:
        """Raises FatalKafkaError TOPIC_UNKNOWN."""
        if name not in self.topics:
            raise self.refusal(ErrorCode.unknown_topic_or_partition, doing)
        return self.topics[name]

    def log(self, partition: TopicPartition, doing: str) -> FakeLog:
        """A partition's log. Raises FatalKafkaError TOPIC_UNKNOWN."""
        logs = self.topic(partition.topic, doing).logs
        if not 0 <= partition.partition < len(logs):
            raise self.refusal(ErrorCode.unknown_topic_or_partition, doing)
        return logs[partition.partition]

    def changed(self) -> None:
        """Wake waiting readers."""
        change, self._change = self._change, None
        if change is not None and not change.done():
            change.set_result(None)

    def next_change(self) -> "asyncio.Future[None]":
        """Returns at the first change after this call."""
        if self._change is None:
            self._change = asyncio.get_running_loop().create_future()
        return self._change
