"""SourceService over gRPC: converts requests, asks the drivers, converts the answers."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType

from twinlog.api.common.v1 import types_pb2
from twinlog.api.source.v1 import source_service_pb2 as pb
from twinlog.api.source.v1 import source_service_pb2_grpc as pb_grpc
from twinlog.errors import ConfigError, TwinlogError
from twinlog.kafka.ports import OffsetSpec
from twinlog.model import Flow, TopicPartition
from twinlog.service.access.audit import NOT_KNOWN, changed
from twinlog.service.access.gate import caller_name
from twinlog.service.api_values import flow_message, flow_of, named
from twinlog.service.clusters import Clusters
from twinlog.service.feeds.pages import checked_page_size, key_of, page_behind
from twinlog.service.grpc_server import Context
from twinlog.service.owner.name import one_of_each_owner
from twinlog_source.api.messages import (
    change_message,
    copied_back_message,
    flow_status,
    foreign_message,
    gap_message,
    partition_status,
    pauses,
    throttles,
    tried_records,
)
from twinlog_source.driver import calibration
from twinlog_source.driver.commands import FlowOperations
from twinlog_source.driver.moves import Destination, PositionMoves
from twinlog_source.driver.stream.lending import Borrower
from twinlog_source.driver.subjects import Subject, refusal_on_standby, refuse_on_standby, require_owned
from twinlog_source.log.gaps import Gap
from twinlog_source.partitions.rows import PartitionRow
from twinlog_source.partitions.standing import standing_of
from twinlog_source.records.trial import TransformTrial
from twinlog_source.topics.flow_back import FlowBack

MOST_TRIED = 1_000
MOST_SHOWN = 10
"""Most gaps in one line of the audit log; the line also has their total number."""


class SourceServicer(pb_grpc.SourceServiceServicer):
    def __init__(
        self,
        flows: Mapping[Flow, FlowOperations],
        *,
        moves: Mapping[Flow, PositionMoves],
        trials: Mapping[Flow, TransformTrial],
        clusters: Clusters,
        back: Mapping[Flow, FlowBack] = MappingProxyType({}),
        borrower: Borrower | None = None,
        lent_workers: Callable[[Flow], Mapping[str, int]] = lambda _: {},
        calibrate: Callable[..., Awaitable[calibration.Calibration]] = calibration.calibrate,
    ) -> None:
        """`back`: flows that other files may have. `lent_workers`: how many copy for a flow on cores of other
        processes, by their names."""
        self._operations, self._moves = flows, moves
        self._borrower, self._lent_workers = borrower, lent_workers
        self._drivers = {flow: operations.driver for flow, operations in flows.items()}
        self._trials, self._calibrate, self._back = trials, calibrate, back
        self._clusters = clusters

    async def ListFlows(  # noqa: N802
        self, request: pb.ListFlowsRequest, context: Context
    ) -> pb.ListFlowsResponse:
        flows = self._told_here(sorted(self._drivers), request)
        return pb.ListFlowsResponse(
            flows=[
                flow_status(
                    self._drivers[flow],
                    self._clusters.statuses((flow.source, flow.target)),
                    lent_workers=self._lent_workers(flow),
                )
                for flow in flows
            ],
            owned_elsewhere=self._elsewhere(flows),
        )

    def _asked(self, request: pb.ListPartitionsRequest | pb.ListGapsRequest) -> list[Flow]:
        return (
            [named(self._drivers, request.flow).flow] if request.HasField("flow") else sorted(self._drivers)
        )

    def _told_here(
        self, flows: list[Flow], request: pb.ListFlowsRequest | pb.ListPartitionsRequest
    ) -> list[Flow]:
        """Raises StateError (OWNED_ELSEWHERE) if another process is asked for."""
        if not request.HasField("from_owner_of"):
            return flows
        refuse_on_standby(named(self._drivers, request.from_owner_of))
        return [flow for flow in flows if self._drivers[flow].owned]

    def _elsewhere(self, flows: Sequence[Flow]) -> Iterator[types_pb2.Flow]:
        refusals = {flow: refusal_on_standby(self._drivers[flow]) for flow in flows}
        return map(flow_message, one_of_each_owner(refusals))

    def _topic(self, flow: Flow, name: str) -> str:
        """The flow's topic that a caller names, perhaps as its copy is called; empty: all."""
        return name and self._drivers[flow].state.flow.selector.topic_named(name)

    def _subject(self, scope: pb.Scope) -> Subject:
        if scope.HasField("partition") and not scope.source_topic:
            raise ConfigError("a partition needs its source_topic", reason="INVALID_SCOPE")
        flow = named(self._drivers, scope.flow).flow
        return Subject(
            topic=self._topic(flow, scope.source_topic) or None,
            partition=scope.partition if scope.HasField("partition") else None,
        )

    async def LendCores(  # type: ignore[override]  # noqa: N802  # writes through the context
        self, request_iterator: AsyncIterator[pb.LentCores], context: Context
    ) -> None:
        assert self._borrower is not None
        await self._borrower.serve(aiter(request_iterator), context)

    async def ListPartitions(  # noqa: N802
        self, request: pb.ListPartitionsRequest, context: Context
    ) -> pb.ListPartitionsResponse:
        if request.HasField("flow") and (flow := flow_of(request.flow)) in self._back:
            return await self._copied_back(flow, request)
        if request.from_owner:
            refuse_on_standby(named(self._drivers, request.flow))
        flows = self._told_here(self._asked(request), request)
        after, size = key_of(request.page_token, _PARTITION), checked_page_size(request.page_size)
        facts = {flow: self._drivers[flow].facts() for flow in flows}
        topics = {flow: self._topic(flow, request.source_topic) for flow in flows}
        rows = (
            (flow, row)
            for flow in flows
            for _, row in sorted(self._drivers[flow].state.table.rows.items())
            if topics[flow] in ("", row.partition.topic)
        )

        def message(each: tuple[Flow, PartitionRow]) -> pb.PartitionStatus:
            flow, row = each
            return partition_status(self._drivers[flow], row, standing_of(row, facts[flow]), facts[flow])

        answer = pb.ListPartitionsResponse(owned_elsewhere=self._elsewhere(flows))
        page, answer.next_page_token = page_behind(
            rows,
            after,
            key=lambda each: _key(each[0], *each[1].partition),
            message=message,
            size=size,
            beside_bytes=answer.ByteSize(),
        )
        answer.partitions.extend(page)
        return answer

    async def _copied_back(self, flow: Flow, request: pb.ListPartitionsRequest) -> pb.ListPartitionsResponse:
        """Of a flow of another file, by its log: all that others count on, and nothing that only its owner
        knows."""
        after, size = key_of(request.page_token, _PARTITION), checked_page_size(request.page_size)
        rows = (each for each in await self._back[flow].told() if request.source_topic in ("", each[0].topic))
        page, token = page_behind(
            rows,
            after,
            key=lambda each: _key(flow, *each.partition),
            message=lambda each: copied_back_message(flow, each),
            size=size,
        )
        return pb.ListPartitionsResponse(partitions=page, next_page_token=token)

    async def PauseReplication(  # noqa: N802
        self, request: pb.PauseReplicationRequest, context: Context
    ) -> pb.PauseReplicationResponse:
        operations = named(self._operations, request.scope.flow)
        before = list(pauses(operations.driver))
        await operations.pause(self._subject(request.scope), by=caller_name(request.by, context))
        answer = pb.PauseReplicationResponse(pauses=pauses(operations.driver))
        changed(before=before, after=answer)
        return answer

    async def ResumeReplication(  # noqa: N802
        self, request: pb.ResumeReplicationRequest, context: Context
    ) -> pb.ResumeReplicationResponse:
        operations = named(self._operations, request.scope.flow)
        by = caller_name(request.by, context)
        before = list(pauses(operations.driver))
        try:
            if request.all:
                await operations.resume_all(by=by)
            else:
                await operations.resume(self._subject(request.scope), by=by)
        finally:
            # If one of several pauses cannot be ended, the others may already be.
            answer = pb.ResumeReplicationResponse(pauses=pauses(operations.driver))
            changed(before=before, after=answer)
        return answer

    async def SetThrottle(  # noqa: N802
        self, request: pb.SetThrottleRequest, context: Context
    ) -> pb.SetThrottleResponse:
        operations = named(self._operations, request.scope.flow)
        by = caller_name(request.by, context)
        before = list(throttles(operations.driver))
        await operations.throttle(self._subject(request.scope), request.bytes_per_second, by=by)
        answer = pb.SetThrottleResponse(throttles=throttles(operations.driver))
        changed(before=before, after=answer)
        return answer

    async def SetPositions(  # noqa: N802
        self, request: pb.SetPositionsRequest, context: Context
    ) -> pb.SetPositionsResponse:
        positions = named(self._moves, request.scope.flow)
        moves = await positions.plan(self._subject(request.scope), _destination(request.target))
        if not request.dry_run:
            before = {str(move.partition): move.from_offset for move in moves}
            changed(before=before, after=NOT_KNOWN)
            moves = await positions.carry_out(moves, by=caller_name(request.by, context))
            changed(
                before=before,
                after={str(move.partition): move.to_offset for move in moves if move.applied},
            )
        return pb.SetPositionsResponse(
            changes=map(change_message, moves), applied=any(move.applied for move in moves)
        )

    async def ListGaps(  # noqa: N802
        self, request: pb.ListGapsRequest, context: Context
    ) -> pb.ListGapsResponse:
        flows = self._asked(request)
        after, size = key_of(request.page_token, _GAP), checked_page_size(request.page_size)
        response = pb.ListGapsResponse()
        # Concurrently, because each of them may have to wait for its own target.
        async with asyncio.TaskGroup() as group:
            asked = {flow: group.create_task(self._gaps(flow), name=f"gaps {flow}") for flow in flows}
        rows: list[tuple[Flow, Gap]] = []
        for flow, task in asked.items():
            answer = task.result()
            if not isinstance(answer, TwinlogError):
                topic = self._topic(flow, request.source_topic)
                rows += [(flow, gap) for gap in answer if topic in ("", gap.partition.topic)]
            elif after is None:
                response.unknown.add(flow=flow_message(flow), reason=answer.reason, message=str(answer))
            else:
                # Send the token with the first page: with fewer gaps a client would take the list for
                # complete.
                raise answer
        page, response.next_page_token = page_behind(
            rows,
            after,
            key=lambda each: _key(each[0], *each[1].partition, each[1].from_offset, each[1].reason),
            message=lambda each: gap_message(*each),
            size=size,
            beside_bytes=response.ByteSize(),
        )
        response.gaps.extend(page)
        return response

    async def _gaps(self, flow: Flow) -> list[Gap] | TwinlogError:
        try:
            return await self._operations[flow].gaps()
        except TwinlogError as error:
            return error

    async def AcknowledgeGaps(  # noqa: N802
        self, request: pb.AcknowledgeGapsRequest, context: Context
    ) -> pb.AcknowledgeGapsResponse:
        operations = named(self._operations, request.scope.flow)
        gaps = await operations.acknowledge_gaps(
            self._subject(request.scope),
            from_offset=request.from_offset if request.HasField("from_offset") else None,
            found_until_ms=request.found_until.ToMilliseconds() if request.HasField("found_until") else None,
            by=caller_name(request.by, context),
        )
        flow = operations.driver.flow
        answer = pb.AcknowledgeGapsResponse(gaps=[gap_message(flow, gap) for gap in gaps])
        unknown_before = [replace(gap, acknowledged_by="", acknowledged_at_ms=0) for gap in gaps[:MOST_SHOWN]]
        changed(
            before={"gaps": len(gaps), "first": [gap_message(flow, gap) for gap in unknown_before]},
            after={"gaps": len(gaps), "first": list(answer.gaps[:MOST_SHOWN])},
        )
        return answer

    async def ListEchoes(  # noqa: N802
        self, request: pb.ListEchoesRequest, context: Context
    ) -> pb.ListEchoesResponse:
        driver = named(self._drivers, request.flow)
        require_owned(driver)
        state = driver.state
        asked = {TopicPartition(request.partition.topic, request.partition.partition): request.producer_ids}
        found = await state.origins.judge(asked, state.topics)
        answer = pb.ListEchoesResponse()
        for (_, producer_id), (begin, end) in sorted(found.items()):
            if begin < end:
                answer.echoes.add(producer_id=producer_id, from_offset=begin, to_offset=end)
        return answer

    async def TryTransform(  # noqa: N802
        self, request: pb.TryTransformRequest, context: Context
    ) -> pb.TryTransformResponse:
        flow = named(self._drivers, request.flow).flow
        trial = self._trials.get(flow)
        if trial is None:
            raise ConfigError(f"{flow} has no twinlog.transform.topics: its records are copied as they are")
        last = min(max(request.last, 1), MOST_TRIED)
        partition = request.partition if request.HasField("partition") else None
        tried = await trial.try_last(self._topic(flow, request.source_topic), partition, last)
        answer = pb.TryTransformResponse(records=[each for one in tried for each in tried_records(one)])
        # It changes nothing; who has read records is written all the same.
        changed(before={"shown": 0}, after={"shown": len(answer.records)})
        return answer

    async def Calibrate(  # noqa: N802
        self, request: pb.CalibrateRequest, context: Context
    ) -> pb.CalibrateResponse:
        driver = named(self._drivers, request.flow)
        require_owned(driver)
        seconds = min(max(request.seconds or calibration.USUAL_SECONDS, 1), calibration.LONGEST_SECONDS)
        state = driver.state
        topic = calibration.name_of_topic(state.flow)
        most_bytes = max(request.most_bytes or calibration.MOST_BYTES, calibration.LEAST_BYTES)
        answer = pb.CalibrateResponse(topic=topic, most_bytes=most_bytes, seconds=seconds)
        if request.dry_run:
            return answer
        changed(before={"topic": topic}, after=NOT_KNOWN)
        found = await self._calibrate(
            state.flow,
            topic,
            source=state.source,
            target=state.target,
            clock=driver.state.clock,
            seconds=seconds,
            most_bytes=most_bytes,
        )
        answer.source_round_trip_ms = found.source_seconds * 1000
        answer.target_round_trip_ms = found.target_seconds * 1000
        for slots, speed in found.bytes_per_second:
            answer.speeds.add(slots=slots, bytes_per_second=round(speed))
        answer.max_slots, _ = found.best
        changed(before={"topic": topic}, after=answer)
        return answer

    async def AcknowledgeForeignWrites(  # noqa: N802
        self, request: pb.AcknowledgeForeignWritesRequest, context: Context
    ) -> pb.AcknowledgeForeignWritesResponse:
        operations = named(self._operations, request.scope.flow)
        rows = operations.acknowledge_foreign_writes(
            self._subject(request.scope), by=caller_name(request.by, context), dry_run=request.dry_run
        )
        answer = pb.AcknowledgeForeignWritesResponse(copies=map(foreign_message, rows))
        if not request.dry_run:
            first = list(answer.copies[:MOST_SHOWN])
            changed(before={"copies": len(rows), "first": first}, after={"copies": 0})
        return answer


def _key(flow: Flow, *parts: str | int) -> tuple[str | int, ...]:
    return flow.source, flow.target, *parts


_PARTITION = (str, str, str, int)
"""The kinds of the parts of a partition's key in a token: flow, topic and number."""
_GAP = (*_PARTITION, int, str)
"""With the first offset and the reason."""


def _destination(target: pb.PositionTarget) -> Destination:
    match target.WhichOneof("to"):
        case "offset":
            return Destination(offset=target.offset)
        case "earliest":
            return Destination(spec=OffsetSpec.EARLIEST)
        case "latest":
            return Destination(spec=OffsetSpec.LATEST)
        case "timestamp":
            return Destination(timestamp_ms=target.timestamp.ToMilliseconds())
        case _:
            return Destination()
