"""The checkpoint service asks the source service which records copies have lost."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import cast

import grpc

from twinlog.api.source.v1 import source_service_pb2 as pb2
from twinlog.model import Flow, TopicPartition
from twinlog_checkpoint.app import SourceCopyStates
from twinlog_checkpoint.moves.planning.decision import LostRange

A_TO_B = Flow("A", "B")


@dataclass(slots=True, kw_only=True)
class Channel:
    """A source service that runs everything, and has these pages of gaps."""

    pages: list[pb2.ListGapsResponse]
    tokens: list[str] = field(default_factory=list)

    def unary_unary(self, path: str, *_: object, **__: object) -> Callable[..., Awaitable[object]]:
        async def call(request: pb2.ListGapsRequest, *, timeout: float) -> object:
            if not path.endswith("/ListGaps"):
                return pb2.ListPartitionsResponse()
            self.tokens.append(request.page_token)
            return self.pages[len(self.tokens) - 1]

        return call

    unary_stream = stream_unary = stream_stream = unary_unary

    def states(self) -> SourceCopyStates:
        return SourceCopyStates(cast("grpc.aio.Channel", self), endpoint="source:1")


def page(*reasons: str, token: str = "", by: str = "") -> pb2.ListGapsResponse:
    answer = pb2.ListGapsResponse(next_page_token=token)
    for reason in reasons:
        gap = answer.gaps.add(reason=reason, from_offset=3, to_offset=7, acknowledged_by=by)
        gap.partition.topic = "orders"
    return answer


async def test_only_what_a_copy_had_and_nobody_acknowledged_is_lost() -> None:
    channel = Channel(
        pages=[
            page("RETENTION", "TRUNCATION", "TARGET_TRUNCATED", token="more"),
            page("TARGET_TRUNCATED", by="ann", token="last"),
            page("TARGET_RECREATED", "TOPIC_RECREATED", "SKIPPED_BY_OPERATOR"),
        ]
    )
    report = await channel.states().of(A_TO_B, with_losses=True)
    lost = [LostRange(3, 7, "TARGET_TRUNCATED"), LostRange(3, 7, "TARGET_RECREATED")]
    assert (report.away, report.lost) == ("", {TopicPartition("orders", 0): lost})
    assert channel.tokens == ["", "more", "last"]


async def test_the_positions_are_not_believed_where_the_gaps_are_not_known() -> None:
    unknown = pb2.ListGapsResponse()
    unknown.unknown.add(message="B does not answer")
    channel = Channel(pages=[unknown])
    report = await channel.states().of(A_TO_B, with_losses=True)
    assert report.away == "the gaps of A->B cannot be read: B does not answer"


async def test_gaps_are_read_only_for_a_move() -> None:
    channel = Channel(pages=[])
    assert (await channel.states().of(A_TO_B)).lost == {}
    assert channel.tokens == []
