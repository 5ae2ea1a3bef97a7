"""A test's functions, called before or after an operation of a fake."""

import functools
import inspect
from collections import defaultdict
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from dataclasses import dataclass
from typing import Any, Concatenate, ParamSpec, Protocol, TypeVar

from twinlog.kafka.errors import UNAVAILABLE, from_reason


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
        self._of: defaultdict[tuple[str, bool], list[Hook]] = defaultdict(list)
        self.available = True

    def add(self, operation: str, hook: Hook, *, after: bool) -> Callable[[], None]:
        """Returns a function that removes the hook; calling that twice does nothing."""
        hooks = self._of[operation, after]
        hooks.append(hook)

        def remove() -> None:
            if hook in hooks:
                hooks.remove(hook)

        return remove

    def are_of(self, operation: str, *, after: bool) -> bool:
        return bool(self._of.get((operation, after)))

    def check_available(self, operation: str) -> None:
        """Raises TransientKafkaError (KAFKA_UNAVAILABLE) during an outage."""
        if not self.available:
            raise from_reason(UNAVAILABLE, operation.replace("_", " "), alias=self._alias)

    async def run(self, call: Call, *, after: bool) -> None:
        for hook in tuple(self._of[call.operation, after]):
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
        async def tell(result: Any, *, after: bool) -> None:
            # Most operations have no hooks, and their arguments take longer than all else.
            if hooks.are_of(name, after=after):
                bound = signature.bind(self, *args, **kwargs)
                bound.apply_defaults()
                arguments = {name: value for name, value in bound.arguments.items() if name != "self"}
                await hooks.run(Call(operation=name, arguments=arguments, result=result), after=after)

        hooks = self.hooks
        hooks.check_available(name)
        await tell(None, after=False)
        result = await method(self, *args, **kwargs)
        await tell(result, after=True)
        return result

    return hooked
