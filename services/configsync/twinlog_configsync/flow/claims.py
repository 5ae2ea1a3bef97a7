"""Tells other flows into one target which ACLs and quotas a flow wants there."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace

from twinlog.model import Flow
from twinlog_configsync.access.acl_plan import wanted_acls
from twinlog_configsync.access.acl_rules import TranslatedAcl
from twinlog_configsync.access.quota_plan import wanted_quotas
from twinlog_configsync.model.memory import Memory, acl_ids, quota_ids
from twinlog_configsync.model.observation import AclObservation, Problem, QuotaObservation, World
from twinlog_configsync.model.reasons import SyncReason
from twinlog_configsync.model.schedule import Scope
from twinlog_configsync.planning.desired import DesiredBindings


@dataclass(frozen=True, slots=True, kw_only=True)
class WantedRights:
    """What a flow wants on its target, as ids; None = not known now."""

    acls: frozenset[str] | None = None
    quotas: frozenset[str] | None = None


def wanted_now(acls: Sequence[TranslatedAcl], world: World) -> WantedRights:
    """What this observation tells. Takes long with many thousands of ACLs."""
    acls_read = isinstance(world.acls, AclObservation)
    if isinstance(world.acls, Problem) and world.acls.reason == SyncReason.NO_AUTHORIZER:
        acls, acls_read = (), True  # Such a cluster has no ACLs to sync.
    return WantedRights(
        acls=acl_ids(wanted_acls(acls)) if acls_read else None,
        quotas=quota_ids(wanted_quotas(world.quotas)) if isinstance(world.quotas, QuotaObservation) else None,
    )


def claimed(
    claims: DesiredBindings, flow: Flow, memory: Memory, wanted: WantedRights, *, scopes: Collection[Scope]
) -> Memory:
    """Tell the flows of this process what this flow wants, and return the memory that tells other processes:
    by the registry, in which the pass stores it. `scopes` are what the flow syncs."""
    if wanted.acls is not None:
        claims.claim_acls(flow, wanted.acls)
    if wanted.quotas is not None:
        claims.claim_quotas(flow, wanted.quotas)
    # Stored only while somebody may need it.
    stores_acls = claims.shares_acls(flow) and Scope.ACLS in scopes
    stores_quotas = claims.shares_quotas(flow) and Scope.QUOTAS in scopes
    acls = memory.wanted_acls if wanted.acls is None else wanted.acls
    quotas = memory.wanted_quotas if wanted.quotas is None else wanted.quotas
    return replace(
        memory,
        wanted_acls=acls if stores_acls else None,
        wanted_quotas=quotas if stores_quotas else None,
    )


def claim_as_stored(
    claims: DesiredBindings, flow: Flow, memory: Memory, *, scopes: Collection[Scope]
) -> None:
    """Tell this process's flows what the owner of another process's flow wants. An owner of an earlier
    release has not stored it; what it made is part of it."""
    if Scope.ACLS in scopes:
        if memory.wanted_acls is None:
            claims.doubt_acls(flow)
        else:
            claims.claim_acls(flow, memory.wanted_acls)
    if Scope.QUOTAS in scopes:
        if memory.wanted_quotas is None:
            made = ((entity, key) for entity, values in memory.made_quotas.items() for key in values)
            claims.doubt_quotas(flow, quota_ids(made))
        else:
            claims.claim_quotas(flow, memory.wanted_quotas)
