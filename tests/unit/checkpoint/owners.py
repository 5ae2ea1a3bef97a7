"""Leases of tests."""

from collections.abc import Callable, Coroutine
from typing import Any, TypeVar, cast

from twinlog.errors import TwinlogError
from twinlog.service.owner.lease import FlowLease

T = TypeVar("T")


class AlwaysOwner:
    """For a service without other processes: it is always the owner."""

    def refusal(self) -> TwinlogError | None:
        return None

    async def require(self) -> None:
        return

    async def hold(self, step: Callable[[], Coroutine[Any, Any, T]], *, grace_seconds: float = 0.0) -> T:
        return await step()

    @property
    def lease(self) -> FlowLease:
        return cast("FlowLease", self)
