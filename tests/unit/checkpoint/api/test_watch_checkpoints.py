"""WatchCheckpoints: cut off at any point and resumed, a watcher knows what an uninterrupted one knows."""

from collections.abc import AsyncGenerator, AsyncIterator, Callable
from contextlib import aclosing, asynccontextmanager
from dataclasses import dataclass, field
from typing import cast

import pytest

from twinlog.api.checkpoint.v1 import checkpoint_service_pb2 as pb2
from twinlog.api.common.v1 import types_pb2
from twinlog.cli.checkpoint.groups_watch import WatchedGroups, event_as_json
from twinlog.errors import ConfigError, NotFoundError, TransientKafkaError
from twinlog.model import TopicPartition
from twinlog.service.errors_wire import ResumeTokenExpiredError
from twinlog.service.feeds.client import Received, Restarted
from unit.checkpoint.checkpoint_rig import CheckpointFlowRig
from unit.checkpoint.service_rig import CONTEXT, CheckpointServiceRig

ORDERS = TopicPartition("orders", 0)
Response = pb2.WatchCheckpointsResponse


@asynccontextmanager
async def service() -> AsyncIterator[CheckpointServiceRig]:
    fakes = CheckpointFlowRig()
    fakes.source.add_topic("orders")
    fakes.target.add_topic("A.orders")
    await fakes.write_sync("orders", 0, 0)
    async with fakes.running() as parts:
        yield CheckpointServiceRig(fakes, parts)


@dataclass
class Watcher:
    """A client that is cut off after so many messages and comes back with its token."""

    service: CheckpointServiceRig
    group: str = ""
    seen: WatchedGroups = field(default_factory=WatchedGroups)
    token: bytes = b""

    async def take(self, most: int | None = None) -> list[Response]:
        """Up to `most` messages, or all that there are now."""
        taken: list[Response] = []
        if not self.token:
            self.seen.see(Restarted())
        request = pb2.WatchCheckpointsRequest(group=self.group, resume_token=self.token)
        async with aclosing(aiter_of(self.service, request)) as responses:
            while (most is None or len(taken) < most) and not self.is_up_to_date():
                response = await anext(responses)
                self.seen.see(Received(response))
                self.token = response.resume_token
                taken.append(response)
        return taken

    def is_up_to_date(self) -> bool:
        return self.token == self.service.board.token


def aiter_of(
    service: CheckpointServiceRig, request: pb2.WatchCheckpointsRequest
) -> AsyncGenerator[Response, None]:
    return cast("AsyncGenerator[Response, None]", service.servicer.WatchCheckpoints(request, CONTEXT))


Happening = Callable[[CheckpointServiceRig], None]


def commit(group: str, offset: int) -> Happening:
    return lambda service: service.fakes.source.set_group(group, {ORDERS: offset})


def disappear(group: str) -> Happening:
    def happen(service: CheckpointServiceRig) -> None:
        del service.fakes.source.groups[group]

    return happen


HISTORY = [
    commit("a", 1),
    commit("b", 2),
    commit("a", 3),
    disappear("b"),
    commit("c", 1),
    commit("b", 5),
    disappear("c"),
]


async def happen(service: CheckpointServiceRig, happening: Happening) -> None:
    happening(service)
    service.fakes.clock.advance(10)
    await service.pass_and_publish()


@pytest.mark.parametrize("messages_between_cuts", [0, 1, 2, 3, 4, 5])
async def test_cut_at_every_point_equals_uninterrupted(messages_between_cuts: int) -> None:
    async with service() as served:
        cut, whole = Watcher(served), Watcher(served)
        for happening in HISTORY:
            await happen(served, happening)
            await whole.take()
            await cut.take(messages_between_cuts)
        while not cut.is_up_to_date():
            await cut.take(max(messages_between_cuts, 4))
        listed = await served.list_groups()
    assert cut.seen.rows() == whole.seen.rows()
    assert cut.seen.flow_rows() == whole.seen.flow_rows()
    assert [(row.group, row.upstream_offset) for row in listed.groups] == [("a", 3), ("b", 5)]
    assert [(row.group, row.upstream_offset) for row in whole.seen.rows()] == [("a", 3), ("b", 5)]


async def test_a_list_says_from_where_to_watch() -> None:
    async with service() as served:
        await happen(served, commit("a", 1))
        listed = await served.list_groups()
        await happen(served, commit("a", 2))
        watcher = Watcher(served, token=listed.resume_token)
        taken = await watcher.take()
    (changed,) = [response.changed.group for response in taken if response.changed.HasField("group")]
    assert (changed.group, changed.upstream_offset) == ("a", 2)
    assert not any(response.HasField("snapshot_item") for response in taken)


async def test_a_pass_that_found_nothing_new_tells_only_that_it_was_done() -> None:
    async with service() as served:
        await happen(served, commit("a", 1))
        watcher = Watcher(served)
        await watcher.take()
        before = watcher.seen.flow_rows()[0].confirmed.ToMilliseconds()
        await happen(served, commit("a", 1))
        taken = await watcher.take()
    assert [response.changed.WhichOneof("item") for response in taken] == ["flow"]
    assert watcher.seen.flow_rows()[0].confirmed.ToMilliseconds() > before


async def test_only_one_group_is_watched_when_asked() -> None:
    async with service() as served:
        watcher = Watcher(served, group="b")
        for happening in (commit("a", 1), commit("b", 2)):
            await happen(served, happening)
        await watcher.take()
    assert [row.group for row in watcher.seen.rows()] == ["b"]
    assert len(watcher.seen.flow_rows()) == 1


async def test_the_cluster_that_is_away_is_told() -> None:
    async with service() as served:
        await happen(served, commit("a", 1))
        watcher = Watcher(served)
        table = served.parts.checkpointer.table
        verdicts = []
        for cluster in ("A", "B"):
            away = TransientKafkaError(f"cluster {cluster}: no broker", metadata={"cluster": cluster})
            table.on_all_unreadable(away)
            served.board.publish()
            await watcher.take()
            verdicts.append((watcher.seen.rows()[0].verdict, watcher.seen.flow_rows()[0].obstacle))
        await happen(served, commit("a", 1))
        await watcher.take()
    assert verdicts == [
        (pb2.VERDICT_SOURCE_UNREADABLE, "cluster A: no broker"),
        (pb2.VERDICT_TARGET_UNREADABLE, "cluster B: no broker"),
    ]
    assert watcher.seen.rows()[0].verdict == pb2.VERDICT_FLOOR
    assert watcher.seen.flow_rows()[0].obstacle == ""


async def test_tokens_of_another_life_and_no_tokens_at_all_are_refused() -> None:
    async with service() as served:
        await happen(served, commit("a", 1))
        restarted = CheckpointServiceRig(served.fakes, served.parts, history_id="two")
        token = served.board.token
        with pytest.raises(ResumeTokenExpiredError):
            await anext(aiter_of(restarted, pb2.WatchCheckpointsRequest(resume_token=token)))
        with pytest.raises(ConfigError, match="resume_token"):
            await anext(aiter_of(served, pb2.WatchCheckpointsRequest(resume_token=b"?")))
        flow = types_pb2.Flow(source="x", target="y")
        with pytest.raises(NotFoundError, match="A->B"):
            await anext(aiter_of(served, pb2.WatchCheckpointsRequest(flow=flow)))


async def test_a_watch_ends_when_the_service_stops() -> None:
    async with service() as served:
        await happen(served, commit("a", 1))
        served.stop.set()
        request = pb2.WatchCheckpointsRequest()
        told = [response async for response in aiter_of(served, request)]
    assert told[-1].WhichOneof("event") == "snapshot_end"


async def test_programs_get_a_line_for_each_change() -> None:
    async with service() as served:
        await happen(served, commit("a", 1))
        watcher = Watcher(served)
        taken = await watcher.take()
        await happen(served, disappear("a"))
        taken += await watcher.take()
    lines = [event_as_json(Received(response)) for response in taken]
    told = [(line["event"], line.get("kind"), line.get("group")) for line in lines if line is not None]
    assert told == [
        ("CHANGED", "flow", None),
        ("CHANGED", "group", "a"),
        ("SNAPSHOT_END", None, None),
        ("REMOVED", "group", "a"),
        ("CHANGED", "flow", None),
    ]
