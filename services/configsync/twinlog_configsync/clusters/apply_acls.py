"""Carries out the ACL part of a plan. A refused DENY holds back every ALLOW that it limits."""

from collections.abc import Sequence
from itertools import groupby

from twinlog.acl_rights import DENY, limits
from twinlog.errors import KafkaError
from twinlog.kafka.ports import AclAdmin, AclBinding
from twinlog_configsync.model.actions import AclAction, CreateAcl


async def apply_acls(target: AclAdmin, actions: Sequence[AclAction]) -> list[tuple[AclAction, KafkaError]]:
    """Create and delete in the plan's order; return what was refused or held back.

    Raises KafkaError when the target as a whole does not answer.
    """
    refused: list[tuple[AclAction, KafkaError]] = []
    for (creates, denies), run in groupby(actions, key=_phase):
        batch: list[AclAction] = []
        for action in run:
            blocker = _blocker(action.binding, refused) if creates != denies else None
            if blocker is None:
                batch.append(action)
            else:
                refused.append((action, blocker))
        bindings = [action.binding for action in batch]
        answers = await (target.create_acls(bindings) if creates else target.delete_acls(bindings))
        for action in batch:
            error = answers[action.binding]
            if error is not None:
                refused.append((action, error))
    return refused


def _phase(action: AclAction) -> tuple[bool, bool]:
    """Whether the action creates, and whether it is about a DENY: creating ALLOW and deleting DENY widen
    rights."""
    return isinstance(action, CreateAcl), action.binding.permission == DENY


def _blocker(binding: AclBinding, refused: Sequence[tuple[AclAction, KafkaError]]) -> KafkaError | None:
    """The refusal because of which this ACL must not widen rights."""
    for action, error in refused:
        other = action.binding
        denial, allowance = (other, binding) if other.permission == DENY else (binding, other)
        if denial.permission != allowance.permission and limits(denial, allowance):
            return error
    return None
