"""Tells other flows into one target which ACLs and quotas a flow wants there."""

from collections.abc import Collection, Sequence
from dataclasses import replace

from twinlog.model import Flow
from twinlog_configsync.access.acl_plan import wanted_acls
from twinlog_configsync.access.acl_rules import Translation
from twinlog_configsync.access.quota_plan import wanted_quotas
from twinlog_configsync.model.memory import Memory
from twinlog_configsync.model.observation import AclObservation, Problem, QuotaObservation, World
from twinlog_configsync.model.reasons import Reason
from twinlog_configsync.model.schedule import Scope
from twinlog_configsync.model.wanted import acl_ids, quota_ids
from twinlog_configsync.planning.desired import DesiredBindings


def claimed(
    claims: DesiredBindings,
    flow: Flow,
    memory: Memory,
    acls: Sequence[Translation],
    world: World,
    *,
    scopes: Collection[Scope],
) -> Memory:
    """Tell the flows of this process what this flow wants, and return the memory that tells other processes:
    by the registry, in which the pass stores it. `scopes` are what the flow syncs."""
    wanted, quotas = memory.wanted_acls, memory.wanted_quotas
    if isinstance(world.acls, AclObservation):
        wanted = acl_ids(wanted_acls(acls))
        claims.claim_acls(flow, wanted)
    elif isinstance(world.acls, Problem) and world.acls.reason == Reason.NO_AUTHORIZER:
        wanted = frozenset()  # Such a cluster has no ACLs to sync.
        claims.claim_acls(flow, wanted)
    if isinstance(world.quotas, QuotaObservation):
        quotas = quota_ids(wanted_quotas(world.quotas))
        claims.claim_quotas(flow, quotas)
    # Stored only while somebody may need it.
    stores_acls = claims.shares_acls(flow) and Scope.ACLS in scopes
    stores_quotas = claims.shares_quotas(flow) and Scope.QUOTAS in scopes
    return replace(
        memory,
        wanted_acls=wanted if stores_acls else None,
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
