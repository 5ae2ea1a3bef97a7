"""Denies writes on the cluster that groups leave, and allows them again."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass

from twinlog.kafka.ports import AclAdmin, AclBinding
from twinlog.model import ClusterAlias, Flow
from twinlog.policy import ReplicationPolicy
from twinlog.write_blocks import fence_of


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


async def create_rules(cluster: AclAdmin, rules: Collection[AclBinding]) -> None:
    """Return when the cluster has stored the ACLs; its brokers apply them shortly after. Raises
    KafkaError."""
    results = await cluster.create_acls(rules) if rules else {}
    for error in results.values():
        if error is not None:
            raise error


async def delete_rules(cluster: AclAdmin, rules: Collection[AclBinding]) -> None:
    """Return when the cluster has none of the ACLs. Raises KafkaError."""
    if not rules or await cluster.describe_acls("TOPIC") is None:
        return  # Without an authorizer no ACL is in force.
    results = await cluster.delete_acls(rules)
    for error in results.values():
        if error is not None:
            raise error
