"""Names on a flow's target other than topics: groups of owners, transactional ids. Rights are granted and
checked by these names."""

from twinlog.model import ClusterAlias, Flow


def owners_group(service: str, target: ClusterAlias) -> str:
    """The group of the service's processes on a target, which own the flows to it. Needs the right to READ
    it.

    >>> owners_group("source", "B")
    'twinlog-source.B'
    """
    return f"twinlog-{service}.{target}"


def election_group(service: str, flow: Flow) -> str:
    """The group on the flow's target whose leader owns the flow, in releases before `owners_group`."""
    return f"twinlog-{service}-{flow.source}-{flow.target}"


def transactional_id_prefix(flow: Flow) -> str:
    """The prefix of the transactional ids of the flow's tasks on its target."""
    return f"twinlog-{flow.source}-{flow.target}-"
