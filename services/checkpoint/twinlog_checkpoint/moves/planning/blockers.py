"""The reasons why a move cannot run now."""

import shlex
from collections.abc import Callable

from twinlog.model import ClusterAlias
from twinlog.moves.record import MoveKind, Moves
from twinlog_checkpoint.moves.planning.plan import MoveOptions
from twinlog_checkpoint.moves.routes.route import Route
from twinlog_checkpoint.moves.write_block import WriteBlockScope, missing_fences


async def blockers_of(
    route: Route,
    options: MoveOptions,
    scope: WriteBlockScope,
    moves: Moves,
    *,
    no_answer: Callable[[ClusterAlias], str],
    from_reachable: bool,
    to_reachable: bool,
) -> list[str]:
    """Return each reason with its remedy. `no_answer` tells how a cluster is away. Raises KafkaError."""
    blockers: list[str] = []
    if not to_reachable:
        blockers.append(f"{no_answer(route.to_alias)}, and the groups would move there")
    if not from_reachable:
        away = no_answer(route.from_alias)
        return [*blockers, *await _when_away(route, options, away, to_reachable=to_reachable)]
    blocker = route.blocker(from_reachable=True)
    if blocker is not None:
        blockers.append(blocker)
    unknown = sorted(set(options.groups) - set(await route.groups(moves)))
    if unknown:
        blockers.append(
            f"groups that do not exist on {route.from_alias}, or that the filter excludes:"
            f" {', '.join(unknown)} (`twinlog explain group {shlex.quote(unknown[0])}`)"
        )
    if options.grant_write:
        blockers += await _against_granting(route, to_reachable=to_reachable)
    if not options.fence:
        return blockers
    if await missing_fences(route.from_cluster, scope.topics) is None:
        blockers.append(f"{route.from_alias} has no authorizer, so ACLs cannot fence its writers")
    if scope.conflicts:
        blockers.append(
            f"flow {route.home_flow} writes to {', '.join(scope.conflicts[:5])} on {route.from_alias}"
            " under the same names, so a fence would deny its writes as well: fence by hand"
        )
    return blockers


async def _against_granting(route: Route, *, to_reachable: bool) -> list[str]:
    if route.kind is MoveKind.FAILBACK:
        back = f"--grant-write is for a failover: on {route.to_alias} writers still have their rights"
        return [back]
    clusters = [(route.from_alias, route.from_cluster)]
    if to_reachable:
        clusters.append((route.to_alias, route.to_cluster))
    return [
        f"{alias} has no authorizer, so there are no rights to grant: omit --grant-write"
        for alias, cluster in clusters
        if await cluster.describe_acls("TOPIC") is None
    ]


async def _when_away(route: Route, options: MoveOptions, away: str, *, to_reachable: bool) -> list[str]:
    if route.kind is MoveKind.FAILBACK:
        # The groups' progress and the record of moves are on this cluster only.
        away = (
            f"{away}, so the groups' offsets are not known: wait for it. Only"
            f" if it is lost, start them on {route.to_alias} where they left it, and remove a fence there by"
            " hand (kafka-acls --remove)"
        )
        return [away]
    blocker = route.blocker(from_reachable=False)
    blockers = [] if blocker is None else [blocker]
    if not options.accept_loss:
        blockers.append(f"{away}: --accept-loss continues with what {route.to_alias} has")
    if options.fence:
        blockers.append(f"{away}, so its writers cannot be fenced")
    if options.grant_write:
        blockers.append(
            f"{away}, so it is not known who may write there: omit --grant-write,"
            f" and grant WRITE on {route.to_alias} with kafka-acls"
        )
    if options.groups and to_reachable and blocker is None:
        unknown = sorted(set(options.groups) - {place.group for place in await route.known_places()})
        if unknown:
            blockers.append(f"groups without a checkpoint on {route.to_alias}: {', '.join(unknown)}")
    return blockers
