"""The ACLs and quotas that each flow wants on its target, so that flows into one target do not undo each
other's changes."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import TypeVar

from twinlog.kafka.ports import AclBinding
from twinlog.model import Flow
from twinlog_configsync.access.quota_plan import QuotaKey

Wanted = TypeVar("Wanted")


@dataclass(slots=True)
class DesiredBindings:
    """Shared by the flows of a process."""

    acl_flows: set[Flow]
    """Flows that sync ACLs."""
    quota_flows: set[Flow]
    """Flows that sync quotas."""
    _acls: dict[Flow, frozenset[AclBinding]] = field(default_factory=dict)
    _quotas: dict[Flow, frozenset[QuotaKey]] = field(default_factory=dict)

    def follow(self, flow: Flow, *, acls: bool, quotas: bool) -> None:
        """Set the parts that the flow syncs; it wants nothing of the others."""
        if acls:
            self.acl_flows.add(flow)
        else:
            self.acl_flows.discard(flow)
            self._acls.pop(flow, None)
        if quotas:
            self.quota_flows.add(flow)
        else:
            self.quota_flows.discard(flow)
            self._quotas.pop(flow, None)

    def as_of_now(self) -> "DesiredBindings":
        """A copy that other flows do not change."""
        return DesiredBindings(
            set(self.acl_flows), set(self.quota_flows), dict(self._acls), dict(self._quotas)
        )

    def claim_acls(self, flow: Flow, wanted: frozenset[AclBinding]) -> None:
        """Set all ACLs that the flow wants on its target."""
        self._acls[flow] = wanted

    def acls_wanted_elsewhere(self, flow: Flow) -> frozenset[AclBinding] | None:
        """ACLs that other flows into the same target want; None as long as one of them has not reported."""
        return _wanted_elsewhere(flow, self.acl_flows, self._acls)

    def claim_quotas(self, flow: Flow, wanted: frozenset[QuotaKey]) -> None:
        """Set all quotas that the flow wants on its target."""
        self._quotas[flow] = wanted

    def quotas_wanted_elsewhere(self, flow: Flow) -> frozenset[QuotaKey] | None:
        """As `acls_wanted_elsewhere`."""
        return _wanted_elsewhere(flow, self.quota_flows, self._quotas)

    def quota_owner(self, flow: Flow, quota: QuotaKey) -> Flow | None:
        """The flow into the same target that sets this quota instead of `flow`; None when there is none."""
        return min(
            (
                other
                for other, wanted in self._quotas.items()
                if other < flow and other.target == flow.target and quota in wanted
            ),
            default=None,
        )


def _wanted_elsewhere(
    flow: Flow, flows: Collection[Flow], wanted: Mapping[Flow, frozenset[Wanted]]
) -> frozenset[Wanted] | None:
    others = [other for other in flows if other != flow and other.target == flow.target]
    if any(other not in wanted for other in others):
        return None
    return frozenset().union(*(wanted[other] for other in others))
