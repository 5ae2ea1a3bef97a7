"""Lists as the owners of their flows tell them, whichever process is asked (docs/adr/0013)."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar, cast

from twinlog.api.common.v1 import types_pb2
from twinlog.cli.common.call import answer_of
from twinlog.errors import TwinlogError
from twinlog.service.feeds.pages import every
from twinlog.service.peers import CALL_TIMEOUT_SECONDS

T = TypeVar("T")


async def as_owners_tell(
    method: Callable[..., Awaitable[T]], request: Any, rows: str = "", **how: float
) -> T:
    """The answer with all its pages of `rows`; of flows that another process owns as that one tells it, if it
    answers. Raises the error of the process that is asked first."""
    whole: Any = await every(method, request, rows, **how)
    async with asyncio.TaskGroup() as group:
        asked = [
            group.create_task(_of_owner(method, request, rows, flow), name="ask owner")
            for flow in whole.owned_elsewhere
        ]
    for task in asked:
        if (told := task.result()) is not None:
            _replace(whole, told)
    return cast("T", whole)


async def _of_owner(
    method: Callable[..., Awaitable[T]], request: Any, rows: str, flow: types_pb2.Flow
) -> T | None:
    """None if the owner does not answer."""
    asked = type(request)()
    asked.CopyFrom(request)
    asked.from_owner_of.CopyFrom(flow)
    try:
        return await answer_of(every(method, asked, rows, timeout=CALL_TIMEOUT_SECONDS), "owner")
    except TwinlogError:
        return None


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
