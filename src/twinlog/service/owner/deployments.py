"""Whether two processes that serve one flow belong to the same deployment. Pure."""

import hashlib
import json

from twinlog.config import FlowConfig
from twinlog.errors import StateError
from twinlog.model import Flow
from twinlog.service.owner.name import OwnerReason


def are_twins(rules: str, others: str) -> bool:
    """Whether the fingerprints are of two deployments. Owners of earlier releases do not tell theirs (empty):
    they count as of this deployment."""
    return bool(rules and others) and rules != others


def twin_deployment(flow: Flow, owner: str) -> StateError:
    """Why a process must not work at a flow whose owner's file selects something else."""
    return StateError(
        f"{flow} is served by another deployment now, whose file selects other topics or groups ({owner}):"
        f" what only this file selects is not replicated. Put both selections into one file, or give"
        f" {flow.source} another alias in one of them, so that each has topics of its own on the target",
        reason=OwnerReason.TWIN_DEPLOYMENT,
        metadata={"flow": str(flow), "owner": owner},
    )


def selection_fingerprint(config: FlowConfig) -> str:
    """Tells deployments apart whose files select other topics or groups for one flow. Changed rules do not
    count: they are the flow's, not its owner's.
    """
    selections = (config.configsync.topics, config.checkpoint.groups)
    text = json.dumps([[sorted(each.include), sorted(each.exclude)] for each in selections])
    return hashlib.sha256(text.encode()).hexdigest()[:12]
