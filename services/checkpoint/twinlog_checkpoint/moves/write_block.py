"""Denies writes on the cluster that groups leave, and allows them again."""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass

from twinlog.errors import KafkaError
from twinlog.kafka.ports import AclAdmin, AclBinding
from twinlog.model import ClusterAlias, Flow
from twinlog.policy import ReplicationPolicy
from twinlog.write_blocks import fence_of, held_fences, holder_of


@dataclass(frozen=True, slots=True, kw_only=True)
class WriteBlockScope:
    """The topics of a fence."""

    topics: Sequence[str] = ()
    """Topics that applications write to."""
    conflicts: Sequence[str] = ()
    """Topics that a flow of Twinlog writes to under the same name; a fence would deny its writes."""


def fence_scope(
    topics: Collection[str],
    *,
    here: ClusterAlias,
    others: Collection[ClusterAlias],
    policy: ReplicationPolicy,
    reverse: Flow | None,
) -> WriteBlockScope:
    """Select the flow's topics at `here`. Pure. `reverse` is the flow that copies to `here`, if there is one.

    Copies of another cluster's topics are left out, because only Twinlog writes to them. `others` are the
    clusters that exist, since an own topic of `here` may have a name that looks like a copy's.
    """
    copied_from = set(others) - {here}
    written = sorted(topic for topic in topics if policy.topic_source(topic) not in copied_from)
    if reverse is not None and not policy.tracks_topic_sources:
        return WriteBlockScope(conflicts=written)
    return WriteBlockScope(topics=written)


async def missing_fences(cluster: AclAdmin, topics: Collection[str]) -> tuple[AclBinding, ...] | None:
    """Return the fences that do not exist yet; None when the cluster has no authorizer. Raises KafkaError."""
    present = await cluster.describe_acls("TOPIC")
    if present is None:
        return None
    there = frozenset(present)
    return tuple(fence for fence in map(fence_of, sorted(topics)) if fence not in there)


async def free_fences(cluster: AclAdmin, topics: Collection[str]) -> tuple[AclBinding, ...]:
    """Return the fences that a move may hold: those that do not exist yet, and those that moves hold already.
    An identical ACL of somebody else is not Twinlog's. Raises KafkaError."""
    present = frozenset(await cluster.describe_acls("TOPIC") or ())
    held = held_fences(present)
    return tuple(fence for fence in map(fence_of, sorted(topics)) if fence not in present or fence in held)


async def hold_fences(cluster: AclAdmin, fences: Collection[AclBinding], flow: Flow) -> None:
    """Create the fences, also those that exist: another flow may be about to release them. Raises
    KafkaError."""
    holders = [holder_of(fence, flow) for fence in fences]
    results = await cluster.create_acls([*holders, *fences]) if fences else {}
    # Some clusters refuse ACLs for users that they do not know. The fence is worth more than its holder.
    _raise_first(results[fence] for fence in fences)


async def release_fences(
    cluster: AclAdmin, fences: Collection[AclBinding], flow: Flow
) -> Mapping[AclBinding, Collection[str]]:
    """Delete the fences that no other flow holds; return the others with these flows. Raises KafkaError."""
    if not fences:
        return {}  # The cluster may be away.
    present = await cluster.describe_acls("TOPIC")
    if present is None:
        return {}  # Without an authorizer no ACL is in force.
    before = _held_by_others(present, flow)
    alone = [fence for fence in fences if fence not in before]
    holders = [holder_of(fence, flow) for fence in fences]
    # In one request: without a holder, a fence that is still there would be somebody else's.
    results = await cluster.delete_acls([*alone, *holders])
    _raise_first(results[fence] for fence in alone)
    # Meanwhile another flow may have begun to hold one, or released it.
    present = await cluster.describe_acls("TOPIC") or ()
    after = _held_by_others(present, flow)
    kept = {fence: after[fence] for fence in fences if fence in after}
    await create_rules(cluster, kept)
    await delete_rules(cluster, [fence for fence in fences if fence in before and fence not in kept])
    # A cluster that refused a holder, because it does not know the user, may also refuse to delete it.
    errors = ((holder, results[holder]) for holder in holders)
    _raise_first(error for holder, error in errors if error and (error.retriable or holder in present))
    return kept


def _held_by_others(present: Collection[AclBinding], flow: Flow) -> Mapping[AclBinding, Collection[str]]:
    # A broker may answer with the ACLs as they were a moment ago.
    held = held_fences(present).items()
    return {fence: others for fence, flows in held if (others := set(flows) - {str(flow)})}


async def create_rules(cluster: AclAdmin, rules: Collection[AclBinding]) -> None:
    """Return when the cluster has stored the ACLs; its brokers apply them shortly after. Raises
    KafkaError."""
    _raise_first((await cluster.create_acls(rules) if rules else {}).values())


async def delete_rules(cluster: AclAdmin, rules: Collection[AclBinding]) -> None:
    """Return when the cluster has none of the ACLs. Raises KafkaError."""
    if not rules or await cluster.describe_acls("TOPIC") is None:
        return  # Without an authorizer no ACL is in force.
    _raise_first((await cluster.delete_acls(rules)).values())


def _raise_first(results: Iterable[KafkaError | None]) -> None:
    for error in results:
        if error is not None:
            raise error
