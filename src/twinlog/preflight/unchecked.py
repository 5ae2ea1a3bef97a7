"""Reports what preflight could not check. Pure."""

from twinlog.preflight.facts import FlowFacts
from twinlog.preflight.findings import Finding, warning


def not_checked(flow: FlowFacts, what: str, why: object, remedy: str = "") -> Finding:
    """A warning that nothing is known of `what`."""
    return warning(str(flow.flow), "not checked", f"{what}: {why}", remedy)
