"""Compares the deployments of two processes that serve one flow. Pure."""

import hashlib
import json

from twinlog.config import FlowConfig
from twinlog.errors import StateError
from twinlog.model import Flow
from twinlog.service.owner.name import OwnerReason


def are_twins(rules: str, others: str) -> bool:
    """Whether the fingerprints belong to two deployments. Owners of earlier releases send none (empty) and
    count as the same deployment."""
    return bool(rules and others) and rules != others


def twin_deployment(flow: Flow, owner: str) -> StateError:
    """The refusal of a process when the flow's owner has a file with another selection."""
    return StateError(
        f"{flow} is served by another deployment now, whose file selects other topics or groups ({owner}):"
        f" what only this file selects is not replicated. Put both selections into one file, or give"
        f" {flow.source} another alias in one of them, so that each has topics of its own on the target",
        reason=OwnerReason.TWIN_DEPLOYMENT,
        metadata={"flow": str(flow), "owner": owner},
    )


def selection_fingerprint(config: FlowConfig) -> str:
    """A fingerprint of the topics and groups that a deployment selects for one flow. Changed rules do not
    count: they belong to the flow, not to its owner."""
    selections = (config.configsync.topics, config.checkpoint.groups)
    text = json.dumps([[sorted(each.include), sorted(each.exclude)] for each in selections])
    return hashlib.sha256(text.encode()).hexdigest()[:12]
