"""A flow's names on its target other than topics: groups of elections, transactional ids. Rights are granted
and checked by these names."""

from twinlog.model import Flow


def lease_group(service: str, flow: Flow) -> str:
    """The group on the flow's target whose leader owns the flow. Needs the right to READ it."""
    return f"twinlog-{service}-{flow.source}-{flow.target}"


def transactional_id_prefix(flow: Flow) -> str:
    """The prefix of the transactional ids of the flow's tasks on its target."""
    return f"twinlog-{flow.source}-{flow.target}-"
