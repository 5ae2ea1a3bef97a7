"""Reads the recorded moves before a move begins: the flow's last one, and the last one of the reverse flow.

A recorded fence is used only if its topic belongs to the flow. A fence of another topic that exists on the
cluster is refused (FENCE_NOT_OURS), and an operator has to look at it. One that does not exist is dropped.
"""

from collections.abc import Collection
from dataclasses import replace

from twinlog.errors import KafkaError, StateError, WireFormatError
from twinlog.kafka.ports import AclBinding, KafkaCluster
from twinlog.model import ClusterAlias
from twinlog.moves.record import MoveKind, Moves
from twinlog.write_blocks import fence_of, holder_of
from twinlog_checkpoint.journal import MoveJournal
from twinlog_checkpoint.moves.planning.planner import NOTHING_DUE, Due, MovePlanner
from twinlog_checkpoint.moves.routes.route import Route


async def recorded_moves(journal: MoveJournal, route: Route) -> Moves:
    """Return what is recorded. Raises KafkaError, WireFormatError, or StateError (FENCE_NOT_OURS)."""
    moves = await journal.load()
    fences = {
        cluster: {fence.resource_name: topics[fence.resource_name] for fence in ours}
        for cluster, topics in moves.fences.items()
        if (ours := await _ours(journal, route, moves.fenced(cluster), here=cluster == route.from_alias))
    }
    return replace(moves, fences=fences)


async def _ours(
    journal: MoveJournal, route: Route, fences: Collection[AclBinding], *, here: bool
) -> tuple[AclBinding, ...]:
    """Keep the fences that this flow may have created, on the cluster that groups leave (`here`) or on the
    other one."""
    alias, cluster = (route.from_alias, route.from_cluster) if here else (route.to_alias, route.to_cluster)
    foreign = {fence for fence in fences if not route.may_be_fenced(fence.resource_name, here=here)}
    if not foreign:
        return tuple(fences)
    in_force = await _in_force(cluster)
    if in_force is None:
        # The cluster does not answer, so its ACLs are unknown: keep all of them.
        return tuple(fences)
    for fence in sorted(foreign.intersection(in_force)):
        raise _not_ours(journal, alias, fence.resource_name, await route.holder())
    return tuple(fence for fence in fences if fence not in foreign)


async def _in_force(cluster: KafkaCluster) -> Collection[AclBinding] | None:
    try:
        return await cluster.describe_acls("TOPIC") or ()
    except KafkaError:
        return None


def _not_ours(journal: MoveJournal, alias: ClusterAlias, topic: str, name: str) -> StateError:
    holder = holder_of(fence_of(topic), name).principal
    remedy = (
        f"kafka-acls --remove --deny-principal 'User:*' --deny-principal '{holder}' --operation Write"
        f" --topic {topic}"
    )
    return StateError(
        f"{journal.topic} on {journal.flow.target} names a fence on topic {topic!r} of {alias}, but the"
        f" rules of flow {journal.flow} do not select this topic, so Twinlog does not touch the fence. If the"
        f" flow had the topic before, remove the fence on {alias} (`{remedy}`); otherwise find out who wrote"
        " the record",
        reason="FENCE_NOT_OURS",
        metadata={"flow": str(journal.flow), "topic": topic, "cluster": alias},
    )


async def failback_due(reverse: MoveJournal, planner: MovePlanner) -> Due:
    """Whether the groups came here by a failover of the reverse flow; then its failback moves them back.

    A fence of that failover blocks this move, because only the failback removes it.
    """
    route = planner.route
    if route.kind is not MoveKind.FAILOVER or planner.away(route.from_alias):
        return NOTHING_DUE
    try:
        moves = await reverse.load()
    except (KafkaError, WireFormatError) as error:
        return Due(notes=[f"the last move of {reverse.flow} cannot be read: {error}"])
    other, fences = moves.run, moves.fenced(reverse.flow.source)
    if other is None or other.kind is not MoveKind.FAILOVER or (other.aborted and not fences):
        return NOTHING_DUE
    remedy = f"`twinlog failback run '{reverse.flow}'` moves them back"
    what = f"groups came from {route.to_alias} by failover run {other.run_id} of {reverse.flow}"
    if moves.interrupted:
        what = f"failover run {other.run_id} of {reverse.flow} was interrupted"
        remedy = f"`twinlog failback run '{reverse.flow}'` undoes it"
    if fences:
        return Due(blockers=[f"{what}, with a fence on {len(fences)} topics there: {remedy} and removes it"])
    return Due(notes=[f"{what}: {remedy}"])
