"""What each flow wants of the ACLs on its target, so that no flow takes away what another one needs."""

from collections.abc import Collection

from twinlog.kafka.ports import AclBinding
from twinlog.model import Flow


class AclClaims:
    """Shared by the flows of a process."""

    def __init__(self, flows: Collection[Flow]) -> None:
        """`flows`: those that sync ACLs."""
        self._wanted: dict[Flow, frozenset[AclBinding] | None] = dict.fromkeys(flows)

    def claim(self, flow: Flow, wanted: frozenset[AclBinding]) -> None:
        """This is now all that the flow wants on its target."""
        self._wanted[flow] = wanted

    def wanted_elsewhere(self, flow: Flow) -> frozenset[AclBinding] | None:
        """What other flows into the same target want; None as long as one of them has not said."""
        others = [
            wanted for other, wanted in self._wanted.items() if other != flow and other.target == flow.target
        ]
        known = [wanted for wanted in others if wanted is not None]
        return None if len(known) < len(others) else frozenset().union(*known)
