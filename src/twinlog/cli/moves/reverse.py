"""`twinlog reverse`: the flow back takes over from a flow that keeps the names of topics.

Whatever a step does is stored by the service that does it: rules, a pause, the record of moves. So a command
that was interrupted leaves nothing to remember, and the next one finds out what is done. The command makes
the steps, because changing rules needs an administrator, and services are only viewers to each other.
"""

import asyncio
from collections.abc import AsyncIterable, AsyncIterator, Awaitable, Callable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field

import typer

from twinlog.api.checkpoint.v1 import checkpoint_service_pb2 as pb2
from twinlog.api.common.v1 import types_pb2
from twinlog.api.configsync.v1 import configsync_service_pb2 as rules_pb2
from twinlog.api.source.v1 import source_service_pb2 as source_pb2
from twinlog.cli.common.call import Call, Services, command
from twinlog.cli.common.failures import require_terminal
from twinlog.cli.common.fields import print_json_line
from twinlog.cli.common.names import counted, flow_name, flow_of, parse_flow, partition_name, shown_time
from twinlog.cli.common.options import argument, flag, option, together
from twinlog.cli.common.pasteable import say
from twinlog.cli.moves.calls import RUN_TIMEOUT_SECONDS
from twinlog.cli.moves.commands import Failover
from twinlog.cli.moves.moves import WAIT, YesOption, move_options, print_run
from twinlog.cli.moves.tail import BothClusters, LeftTail
from twinlog.cli.source.client import every_partition
from twinlog.cli.source.partitions import state_name
from twinlog.errors import ConfigError, NotFoundError, StateError
from twinlog.kafka.cluster import open_cluster
from twinlog.printable import printable
from twinlog.service.waiting import wait_or_stop

_KEY = "enabled"
_LOOK_SECONDS = 1.0
_STEP_SECONDS = 120.0
"""How long services may take to follow a rule or a pause."""
_CLUSTER_SECONDS = 30.0
_SHOWN = 10
_SHOWN_BYTES = 100


@dataclass(frozen=True, slots=True, kw_only=True)
class Reversal:
    """One run of the command."""

    at: Services
    flow: types_pb2.Flow
    options: pb2.MoveOptions
    tail: LeftTail = LeftTail.REFUSE
    clusters: BothClusters | None = None
    """None without a file: then the offsets of a tail are told only."""
    tell: Callable[[str, str], None]
    """Takes the name of a step, and what it has done."""
    follow: Callable[[AsyncIterable[pb2.RunFailoverResponse]], Awaitable[None]]
    """Shows a failover; raises if it is not complete."""

    @property
    def back(self) -> types_pb2.Flow:
        return types_pb2.Flow(source=self.flow.target, target=self.flow.source)

    async def run(self) -> None:
        """Raises the services' errors, and StateError if the flow cannot stop. It may be run again."""
        rule, rule_back = await self.rule(self.flow), await self.rule(self.back)
        if _runs(rule):
            if _runs(rule_back):
                await self.stop(self.back)
            await self.move()
            await self.pause()
            await self.stop(self.flow)
        elif not _runs(rule_back):
            await self.require_drained(rule)
        await self.resume()
        await self.unfence()
        await self.start_back()

    async def plan(self) -> bool:
        """Tell what `run` would do; whether no failover has moved the groups yet. Raises as `run`."""
        name, back = flow_name(self.flow), flow_name(self.back)
        rule, rule_back = await self.rule(self.flow), await self.rule(self.back)
        if _runs(rule):
            if _runs(rule_back):
                self.tell("STOP", f"a rule will stop {back}")
            fence = f", behind a fence on {self.flow.source}" if self.options.fence else ""
            self.tell("FAILOVER", f"of {name}, until everything is copied{fence}")
            self.tell("STOP", f"a rule will stop {name}")
        elif not _runs(rule_back):
            await self.require_drained(rule)
        else:
            self.tell("DONE", f"{back} copies, and {name} is stopped")
        if not _runs(rule_back) or _runs(rule):
            self.tell("START", f"{back} will copy")
        self._tell_file()
        return _runs(rule) and await self.moved() is None

    async def rule(self, flow: types_pb2.Flow) -> rules_pb2.Rule:
        """Whether a rule stops the flow. Raises ConfigError for one that the file does not run, StateError
        while the rules are not known."""
        try:
            rules = (await self.at.configsync.GetRules(rules_pb2.GetRulesRequest(flow=flow))).rules
        except NotFoundError:
            raise ConfigError(
                f"no flow {flow_name(flow)} runs: write `{flow_name(flow)}.enabled = true` into the file and"
                " start with it. It copies what applications write on its source, and copies no copy back",
                metadata={"flow": flow_name(flow)},
            ) from None
        if rules.problem:
            raise StateError(f"{flow_name(flow)}: {rules.problem}", reason="RULES_UNKNOWN")
        return next(each for each in rules.rules if each.key == _KEY)

    async def stop(self, flow: types_pb2.Flow) -> None:
        """Returns when the source service has let the flow's partitions go."""
        await self._change(flow, "false")
        patience = _Patience(f"the stop of {flow_name(flow)}")
        while partitions := await self._partitions(flow):
            await patience.wait(partitions)
        name = flow_name(flow)
        self.tell("STOP", f"a rule has stopped {name}; `twinlog rules reset '{name}' {_KEY}` starts it again")

    async def move(self) -> None:
        """A fence is refused until also the checkpoint service knows that the flow back is stopped."""
        run = pb2.RunFailoverRequest(flow=self.flow, options=self.options)
        patience = _Patience("the failover", seconds=10.0)
        while True:
            try:
                await self.follow(self.at.checkpoint.RunFailover(run, timeout=RUN_TIMEOUT_SECONDS))
                return
            except StateError as error:
                if error.reason != "MOVE_BLOCKED" or not self.options.fence or patience.is_over:
                    raise
            await patience.wait()

    async def require_drained(self, rule: rules_pb2.Rule) -> None:
        """A flow that somebody else has stopped may not have copied everything. Raises StateError."""
        last = await self.moved()
        if last is None or rule.changed_at.ToMilliseconds() < last.ended.ToMilliseconds():
            name = flow_name(self.flow)
            raise StateError(
                f"{name} was stopped, and not by this command: it may not have copied everything."
                f" `twinlog rules reset '{name}' {_KEY}` starts it; then run this again",
                reason="NOT_DRAINED",
            )

    async def moved(self) -> pb2.LastMove | None:
        """The last move, if it is a failover that left nothing behind."""
        last = (await self.at.checkpoint.GetMove(pb2.GetMoveRequest(flow=self.flow))).last
        is_whole = last.kind == "failover" and last.finished and not last.aborted and not last.left_behind
        return last if is_whole else None

    async def pause(self) -> None:
        """Hold the flow, and look what it has not copied: no writer may have come in after the drain. Raises
        StateError for a tail that may not stay behind."""
        scope = source_pb2.Scope(flow=self.flow)
        pausing = source_pb2.PauseReplicationRequest(scope=scope, by=self.options.by)
        pauses = (await self.at.source.PauseReplication(pausing)).pauses
        since = max(each.since.ToMilliseconds() for each in pauses if each.scope == scope)
        patience = _Patience(f"the pause of {flow_name(self.flow)}")
        while waiting := [
            each
            for each in await self._partitions(self.flow)
            if each.state != source_pb2.PARTITION_STATE_PAUSED
            or not each.HasField("lag_records")
            or each.source_end_as_of.ToMilliseconds() <= since
        ]:
            await patience.wait(waiting)
        behind = [each for each in await self._partitions(self.flow) if each.lag_records]
        tail = [each for each in behind if await self._shows(each)]
        if not tail:
            self.tell("PAUSE", f"{flow_name(self.flow)} has copied everything, and is paused")
            return
        if self.tail is LeftTail.REFUSE:
            await self.resume()
            raise StateError(
                f"{_named(tail)}: {self.flow.source} has records that are not copied."
                f" {flow_name(self.flow)} goes on to copy them: stop who writes (or --fence), and run it"
                " again. Or decide what becomes of them: --tail gap, --tail topic",
                reason="BACKLOG_NOT_COPIED",
            )
        if self.tail is LeftTail.TOPIC:
            if self.clusters is None:
                raise ConfigError("--tail topic needs --config FILE", key="--tail")
            suffix = f".tail-of-{self.flow.source}"
            count = await self.clusters.copy(tail, suffix, self.at.source)
            self.tell("TAIL", f"copied {count} records to topics *{suffix} of {self.flow.target}")
        for each in tail:
            place = source_pb2.Scope(
                flow=self.flow, source_topic=each.source.topic, partition=each.source.partition
            )
            request = source_pb2.SetPositionsRequest(
                scope=place,
                target=source_pb2.PositionTarget(offset=each.source_end_offset),
                by=self.options.by,
            )
            (moved,) = (await self.at.source.SetPositions(request)).changes
            if moved.reason:
                raise StateError(
                    f"{partition_name(each.source)}: {moved.message}; run it again", reason=moved.reason
                )
        self.tell("TAIL", f"left behind: `twinlog gaps '{flow_name(self.flow)}'` lists the offsets")

    async def _shows(self, each: source_pb2.PartitionStatus) -> bool:
        """Tell what a partition has that is not copied, record by record; whether it has any that did not
        come from the target."""
        where = f"{partition_name(each.source)}: from offset {each.position} to {each.source_end_offset}"
        if self.clusters is None:
            self.tell("TAIL", f"{where}; --config FILE shows the records")
            return True
        count = 0
        async for record in self.clusters.records(each, self.at.source):
            count += 1
            key, value, at = _shown(record.key), _shown(record.value), shown_time(record.timestamp_ms)
            self.tell("TAIL", f"{partition_name(each.source)} offset {record.offset} at {at} {key}: {value}")
        if count:
            self.tell("TAIL", f"{where}: {count} records")
        return count > 0

    async def resume(self) -> None:
        """A pause that stayed would hold the flow when it is started again."""
        request = source_pb2.ResumeReplicationRequest(
            scope=source_pb2.Scope(flow=self.flow), by=self.options.by
        )
        try:
            await self.at.source.ResumeReplication(request)
        except NotFoundError:
            return  # It is not paused.

    async def unfence(self) -> None:
        """The fence denies the writes of the flow back, too: it falls before that flow starts, and after the
        flow has stopped whose records it guarded."""
        request = pb2.AbortMoveRequest(flow=self.flow, kind=pb2.MOVE_KIND_FAILOVER, by=self.options.by)
        patience = _Patience(f"the end of the fence on {self.flow.source}")
        while (await self.at.checkpoint.GetMove(pb2.GetMoveRequest(flow=self.flow))).last.fenced_where_left:
            try:
                topics = (await self.at.checkpoint.AbortMove(request)).unfenced_topics
                self.tell("UNFENCE", f"removed the fence on {self.flow.source} from {', '.join(topics)}")
            except StateError as error:
                if error.reason != "NOTHING_TO_ABORT":
                    raise
                await patience.wait()

    async def start_back(self) -> None:
        await self._change(self.back, "true")
        patience = _Patience(f"the start of {flow_name(self.back)}")
        while not (found := await self._partitions(self.back)) or _waiting(found):
            await patience.wait(_waiting(found))
        running = sum(state_name(each) == "RUNNING" for each in found)
        self.tell("START", f"{flow_name(self.back)} copies {running} of {counted(len(found), 'partition')}")
        self._tell_file()

    def _tell_file(self) -> None:
        self.tell("FILE", f"to say the same without a rule: {flow_name(self.flow)}.enabled = false")

    async def _change(self, flow: types_pb2.Flow, value: str) -> None:
        change = rules_pb2.RuleChange(key=_KEY, operation=rules_pb2.RULE_OPERATION_SET, value=value)
        request = rules_pb2.UpdateRulesRequest(flow=flow, changes=[change], by=self.options.by)
        await self.at.configsync.UpdateRules(request)

    async def _partitions(self, flow: types_pb2.Flow) -> list[source_pb2.PartitionStatus]:
        """But for heartbeats, which a stopped flow copies, too."""
        found = await every_partition(self.at.source, flow, "", from_owner=True)
        return [each for each in found if not each.is_heartbeats]


@dataclass(slots=True)
class _Patience:
    """Raises StateError when a step takes too long; what it did stays."""

    what: str
    seconds: float = _STEP_SECONDS
    began: float = field(default_factory=lambda: asyncio.get_running_loop().time())

    @property
    def is_over(self) -> bool:
        return asyncio.get_running_loop().time() - self.began > self.seconds

    async def wait(self, about: Sequence[source_pb2.PartitionStatus] = ()) -> None:
        if self.is_over:
            about_them = f": {_named(about)}" if about else ""
            raise StateError(
                f"{self.what} did not happen within {self.seconds:g} s{about_them}; run it again to continue",
                reason="NOT_FOLLOWED",
            )
        await wait_or_stop(asyncio.Event(), _LOOK_SECONDS)


def _waiting(partitions: Sequence[source_pb2.PartitionStatus]) -> list[source_pb2.PartitionStatus]:
    return [each for each in partitions if state_name(each) == "WAITING"]


def _runs(rule: rules_pb2.Rule) -> bool:
    return rule.value == "true"


def _named(partitions: Sequence[source_pb2.PartitionStatus]) -> str:
    more = f" and {len(partitions) - _SHOWN} more" if len(partitions) > _SHOWN else ""
    return ", ".join(partition_name(each.source) for each in partitions[:_SHOWN]) + more


def _shown(content: bytes | None) -> str:
    return "null" if content is None else printable(content[:_SHOWN_BYTES].decode(errors="replace"))


@command
def reverse_command(
    call: Call,
    flow: str = argument("A->B", "The flow that stops."),
    options: pb2.MoveOptions = together(move_options),
    wait: float = WAIT,
    tail: LeftTail = option("--tail", "What becomes of records that A->B has not copied.", LeftTail.REFUSE),
    execute: bool = flag("--execute", "Do it."),
    yes: YesOption = False,
) -> None:
    """Let the flow back take over: A->B stops, and B->A copies.

    For topics with the same names on both sides; the file runs both flows. Without --execute it shows what
    it would do, and changes nothing. A rule stops B->A; a failover of A->B waits until everything is copied
    and moves the groups; a rule stops A->B; the fence falls; B->A starts. Each step is stored: run an
    interrupted command again to continue it.

    Records that A->B has not copied when it stops are shown one by one, without B's own. --tail says what
    becomes of them: refuse (A->B goes on), gap (they stay on A, and `twinlog gaps` lists them), or topic
    (they are also copied to a topic orders.tail-of-A on B).
    """
    options.wait.FromMilliseconds(round(wait * 1000))
    parsed = parse_flow(flow)

    def tell(step: str, message: str) -> None:
        if call.in_json:
            print_json_line({"step": step, "message": message})
        else:
            say(f"{step:<8} {message}")

    async def follow(events: AsyncIterable[pb2.RunFailoverResponse]) -> None:
        await print_run(events, call.output)

    @asynccontextmanager
    async def reversal(at: Services) -> AsyncIterator[Reversal]:
        async with AsyncExitStack() as stack:
            clusters = None
            if call.config is not None:
                clients = call.configuration.flow(flow_of(flow)).clients
                source, target = [
                    await stack.enter_async_context(
                        open_cluster(each.alias, each.properties, timeout_seconds=_CLUSTER_SECONDS)
                    )
                    for each in (clients.source_consumer, clients.target_admin)
                ]
                clusters = BothClusters(source=source, target=target)
            yield Reversal(
                at=at, flow=parsed, options=options, tail=tail, clusters=clusters, tell=tell, follow=follow
            )

    async def planned(at: Services) -> bool:
        async with reversal(at) as each:
            return await each.plan()

    async def reversed_flow(at: Services) -> None:
        async with reversal(at) as each:
            await each.run()

    moves_groups = call.ask(planned)
    move = Failover(flow=parsed, call=call)
    if not execute:
        if moves_groups:
            options.fence = False  # The flow back still runs: its rule comes before the fence.
            move.plan(options)
        return
    if not yes:
        require_terminal()
        typer.confirm(f"Reverse {flow}?", abort=True, err=True)
    if moves_groups:
        move.warn(options)
    call.ask(reversed_flow)
