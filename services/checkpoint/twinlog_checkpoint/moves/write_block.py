"""Denies writes on the cluster that groups leave, and allows them again; grants them on the other one."""

from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from twinlog.acl_rights import ALL, ALLOW, DENY, LITERAL, WILDCARD, acl_text, covers, limits
from twinlog.errors import KafkaError
from twinlog.kafka.ports import AclAdmin, AclBinding
from twinlog.model import ClusterAlias, Flow
from twinlog.policy import ReplicationPolicy
from twinlog.write_blocks import fence_of, held_fences, holder_of, is_holder


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


async def fences_to_hold(
    cluster: AclAdmin, topics: Collection[str], recorded: Collection[AclBinding], holder: str
) -> Collection[AclBinding]:
    """Return the fences of the topics that a move may hold and does not hold yet: those that do not exist,
    those that other moves hold, and those of its record. An identical ACL of somebody else is not Twinlog's.
    Raises KafkaError."""
    present = frozenset(await cluster.describe_acls("TOPIC") or ())
    held = held_fences(present)
    free = [
        fence
        for fence in map(fence_of, sorted(topics))
        if fence not in present or fence in {*held, *recorded}
    ]
    settled = {fence for fence in present.intersection(recorded) if holder in held.get(fence, ())}
    return [fence for fence in free if fence not in settled]


async def hold_fences(cluster: AclAdmin, fences: Collection[AclBinding], holder: str) -> None:
    """Create the fences, also those that exist: another move may be about to release them. Holders of one
    that somebody has removed hold the new one no more. Raises KafkaError."""
    if not fences:
        return
    present = frozenset(await cluster.describe_acls("TOPIC") or ())
    void = [each for each in present if is_holder(each) and fence_of(each.resource_name) not in present]
    await _change_holders(
        cluster.delete_acls, [each for each in void if fence_of(each.resource_name) in fences]
    )
    holders = [holder_of(fence, holder) for fence in fences]
    results = await cluster.create_acls([*holders, *fences])
    _raise_first(results[fence] for fence in fences)
    _raise_retriable(results[each] for each in holders)


async def tend_fences(
    cluster: AclAdmin, recorded: Collection[AclBinding], holder: str
) -> Mapping[AclBinding, Collection[str]]:
    """Make the holders say what the record says: fences of earlier releases have none. Return the fences that
    moves with other records hold, with their holders; moves of this flow with a lost record are among these.
    Raises KafkaError."""
    present = frozenset(await cluster.describe_acls("TOPIC") or ())
    held = held_fences(present)
    unheld = [fence for fence in recorded if fence in present and holder not in held.get(fence, ())]
    await _change_holders(cluster.create_acls, [holder_of(fence, holder) for fence in unheld])
    void = [fence for fence in held.keys() - present if holder in held[fence]]
    await _change_holders(cluster.delete_acls, [holder_of(fence, holder) for fence in void])
    others = {
        fence: {name for name in held[fence] if name != holder or fence not in recorded}
        for fence in held.keys() & present
    }
    return {fence: names for fence, names in others.items() if names}


async def release_fences(
    cluster: AclAdmin, fences: Collection[AclBinding], holder: str
) -> Mapping[AclBinding, Collection[str]]:
    """Delete the fences that no other moves hold; return the others with their holders. Raises KafkaError."""
    if not fences:
        return {}  # The cluster may be away.
    present = await cluster.describe_acls("TOPIC")
    if present is None:
        return {}  # Without an authorizer no ACL is in force.
    before = _held_by_others(present, holder)
    alone = [fence for fence in fences if fence not in before]
    holders = [holder_of(fence, holder) for fence in fences]
    # In one request: without a holder, a fence that is still there would be somebody else's.
    results = await cluster.delete_acls([*alone, *holders])
    _raise_first(results[fence] for fence in alone)
    # Meanwhile another flow may have begun to hold one, or released it.
    present = await cluster.describe_acls("TOPIC") or ()
    after = _held_by_others(present, holder)
    kept = {fence: after[fence] for fence in fences if fence in after}
    await create_rules(cluster, kept)
    await delete_rules(cluster, [fence for fence in fences if fence in before and fence not in kept])
    # A cluster that refused a holder, because it does not know the user, may also refuse to delete it.
    errors = ((each, results[each]) for each in holders)
    _raise_first(error for each, error in errors if error and (error.retriable or each in present))
    return kept


def _held_by_others(present: Collection[AclBinding], holder: str) -> Mapping[AclBinding, Collection[str]]:
    # A broker may answer with the ACLs as they were a moment ago.
    held = held_fences(present).items()
    return {fence: others for fence, names in held if (others := set(names) - {holder})}


async def _change_holders(
    change: Callable[[Collection[AclBinding]], Awaitable[Mapping[AclBinding, KafkaError | None]]],
    holders: Collection[AclBinding],
) -> None:
    if holders:
        _raise_retriable((await change(holders)).values())


def _raise_retriable(results: Iterable[KafkaError | None]) -> None:
    """Some clusters refuse ACLs for users that they do not know. A fence is worth more than its holder."""
    _raise_first(error for error in results if error is not None and error.retriable)


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


# WRITE on the copies for principals that may write to the originals: granted by a failover on request,
# revoked by the failback.
#
# Invariant (a property test checks it against Kafka's rules of evaluation): a grant never gives a principal
# a right on a copy that it lacks on the original.
#
# An ALLOW is granted name by name, for copies that exist. If a DENY of the source may limit it, it is left
# out as a whole, because the copy would allow more than the original. A fence of this move does not count as
# such a DENY; an identical DENY that existed before does.


@dataclass(frozen=True, slots=True, kw_only=True)
class WriteGrants:
    missing: tuple[AclBinding, ...] = ()
    """The missing ACLs of the copies, sorted."""
    left_out: tuple[str, ...] = ()
    """Rights of the source that are not granted, and why."""


def write_grants(
    source: Collection[AclBinding], target: Collection[AclBinding], copies: Mapping[str, str]
) -> WriteGrants:
    """Pure. `source` are the ACLs without the fences of this move; `copies` maps each copied topic of the
    source to its name on the target."""
    denials = [each for each in source if each.permission == DENY]
    wanted: set[AclBinding] = set()
    left_out: list[str] = []
    for binding in sorted(source):
        given = replace(binding, operation="WRITE")
        names = _covered(binding, copies) if lets_write(binding) else []
        if not names:
            continue
        denial = next((each for each in denials if limits(each, given)), None)
        if denial is not None:
            left_out.append(f"{acl_text(binding)}: a DENY of the source may limit it ({acl_text(denial)})")
            continue
        wanted |= {replace(given, resource_name=name, pattern_type=LITERAL) for name in names}
    return WriteGrants(missing=tuple(sorted(wanted.difference(target))), left_out=tuple(left_out))


def _covered(binding: AclBinding, copies: Mapping[str, str]) -> list[str]:
    """The copies of the topics that the ACL applies to."""
    if binding.pattern_type == LITERAL and binding.resource_name != WILDCARD:
        # Most ACLs name one topic; comparing each of them with all topics takes minutes in a large flow.
        copy = copies.get(binding.resource_name)
        return [] if copy is None else [copy]
    return [copy for topic, copy in copies.items() if covers(binding, topic)]


def lets_write(binding: AclBinding) -> bool:
    """Whether an ACL of the source allows writing to topics."""
    return (binding.resource_type, binding.permission) == ("TOPIC", ALLOW) and binding.operation in (
        "WRITE",
        ALL,
    )
