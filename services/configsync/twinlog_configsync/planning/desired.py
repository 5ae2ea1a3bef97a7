"""The ACLs and quotas that each flow wants on its target, so that flows into one target do not undo each
other's changes."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field

from twinlog.model import Flow
from twinlog_configsync.access.quota_plan import QuotaKey
from twinlog_configsync.model.memory import quota_id


@dataclass(slots=True)
class DesiredBindings:
    """Shared by the flows of a process. ACLs and quotas are named by the ids of `model.wanted`."""

    acl_flows: set[Flow]
    """Flows that sync ACLs."""
    quota_flows: set[Flow]
    """Flows that sync quotas."""
    _acls: dict[Flow, frozenset[str]] = field(default_factory=dict)
    _quotas: dict[Flow, frozenset[str]] = field(default_factory=dict)
    _some_quotas: dict[Flow, frozenset[str]] = field(default_factory=dict)
    """Of flows that may want others as well."""

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
            self._some_quotas.pop(flow, None)

    def as_of_now(self) -> "DesiredBindings":
        """A copy that other flows do not change."""
        return DesiredBindings(
            set(self.acl_flows),
            set(self.quota_flows),
            dict(self._acls),
            dict(self._quotas),
            dict(self._some_quotas),
        )

    def shares_acls(self, flow: Flow) -> bool:
        """Whether other flows into the same target sync ACLs, too."""
        return bool(_others(flow, self.acl_flows))

    def shares_quotas(self, flow: Flow) -> bool:
        """As `shares_acls`."""
        return bool(_others(flow, self.quota_flows))

    def claim_acls(self, flow: Flow, wanted: frozenset[str]) -> None:
        """Set all ACLs that the flow wants on its target."""
        self._acls[flow] = wanted

    def doubt_acls(self, flow: Flow) -> None:
        """It is not known which ACLs the flow wants."""
        self._acls.pop(flow, None)

    def acls_wanted_elsewhere(self, flow: Flow) -> frozenset[str] | None:
        """ACLs that other flows into the same target want; None as long as this is not known of one of
        them."""
        return _wanted_elsewhere(flow, self.acl_flows, self._acls)

    def claim_quotas(self, flow: Flow, wanted: frozenset[str]) -> None:
        """Set all quotas that the flow wants on its target."""
        self._quotas[flow] = wanted
        self._some_quotas.pop(flow, None)

    def doubt_quotas(self, flow: Flow, some: frozenset[str] | None = None) -> None:
        """It is not known which quotas the flow wants besides `some`; None = those that were known."""
        known = self._quotas.pop(flow, None) or self._some_quotas.get(flow, frozenset())
        self._some_quotas[flow] = known if some is None else some

    def quotas_wanted_elsewhere(self, flow: Flow) -> frozenset[str] | None:
        """As `acls_wanted_elsewhere`."""
        return _wanted_elsewhere(flow, self.quota_flows, self._quotas)

    def quota_owner(self, flow: Flow, quota: QuotaKey) -> Flow | None:
        """The flow into the same target that sets this quota instead of `flow`; None when there is none."""
        known = {**self._some_quotas, **self._quotas}
        first = [other for other in known if other < flow and other.target == flow.target]
        if not first:
            return None
        wanted = quota_id(*quota)
        return min((other for other in first if wanted in known[other]), default=None)


def _others(flow: Flow, flows: Collection[Flow]) -> list[Flow]:
    return [other for other in flows if other != flow and other.target == flow.target]


def _wanted_elsewhere(
    flow: Flow, flows: Collection[Flow], wanted: Mapping[Flow, frozenset[str]]
) -> frozenset[str] | None:
    others = _others(flow, flows)
    if any(other not in wanted for other in others):
        return None
    return frozenset().union(*(wanted[other] for other in others))
