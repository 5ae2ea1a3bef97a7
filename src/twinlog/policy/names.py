"""What a flow is called on its target beside its topics: groups of elections, transactional ids. The rights
on them are granted and checked by these names.
"""

from twinlog.model import Flow


def lease_group(service: str, flow: Flow) -> str:
    """The group on the flow's target whose leader is the owner; the right to READ it is needed."""
    return f"twinlog-{service}-{flow.source}-{flow.target}"


def transactional_id_prefix(flow: Flow) -> str:
    """What the transactional ids of the flow's tasks on its target begin with."""
    return f"twinlog-{flow.source}-{flow.target}-"
