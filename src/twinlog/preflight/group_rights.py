"""Checks rights on groups: the applications' groups on both ends, and those that elect owners. Pure.

A group that a principal may not DESCRIBE is not listed to it unless it may DESCRIBE the cluster; findings
mention that.
"""

from collections.abc import Iterator, Mapping
from typing import Final

from twinlog.errors import KafkaError
from twinlog.preflight.facts import FlowFacts, Operations
from twinlog.preflight.findings import Finding
from twinlog.preflight.right import ELECTIONS, EVERY_GROUP, Right, group_resource, right_of
from twinlog.preflight.unchecked import not_checked

FAILING_OVER: Final = "needed only for failover, which commits offsets of groups there"
FAILING_BACK: Final = "needed only for failback, which commits offsets of groups there"
ELECTING: Final = "without it a second process with this flow cannot stand by"
_NAMED: Final = 5
"""Most groups named one by one; above that, the command covers all groups."""
_FORBIDDEN: Final = "GROUP_UNAUTHORIZED"


def missing_group_rights(flow: FlowFacts) -> Iterator[Right]:
    """Needed rights on groups that are missing."""
    source, target = flow.flow.source, flow.flow.target
    if any(_lacks(operations, "READ") for operations in flow.groups.elections.values()):
        yield right_of(target, flow.target_principal, ELECTIONS, "READ", ELECTING)
    settings = flow.config.checkpoint
    if not settings.enabled:
        return
    for operation, purpose in (("DESCRIBE", ""), ("READ", FAILING_BACK)):
        for resource in _lacking(flow.groups.on_source, operation):
            yield right_of(source, flow.source_principal, resource, operation, purpose)
    needed = {"READ": "" if settings.sync_group_offsets_enabled else FAILING_OVER}
    if settings.sync_group_deletes_enabled:
        needed["DELETE"] = ""
    for operation, purpose in needed.items():
        for resource in _lacking(flow.groups.on_target, operation):
            yield right_of(target, flow.target_principal, resource, operation, purpose)


def unchecked_groups(flow: FlowFacts) -> Iterator[Finding]:
    """Rights on groups that are not known."""
    groups, source = flow.groups, flow.flow.source
    if groups.unlisted is not None:
        yield not_checked(flow, f"rights on groups: the groups of {source} cannot be listed", groups.unlisted)
    elif not groups.sees_all:
        yield not_checked(
            flow,
            f"groups of {source} on which {flow.source_principal or 'the principal'} has no right",
            f"{source} does not list them, so they are not translated; {len(groups.on_source)} groups that"
            " the rules take can be seen",
            "grant DESCRIBE on all groups to translate, or on their prefixes",
        )
    if groups.not_asked:
        yield not_checked(
            flow,
            f"rights on {groups.not_asked} more groups",
            f"only the first {len(groups.on_source)} were asked about",
        )
    for alias, answers in (
        (source, groups.on_source),
        (flow.flow.target, {**groups.elections, **groups.on_target}),
    ):
        unknown = {
            name: answer
            for name, answer in answers.items()
            if isinstance(answer, KafkaError) and answer.reason != _FORBIDDEN
        }
        if unknown:
            first, answer = next(iter(unknown.items()))
            more = f" and {len(unknown) - 1} more" if len(unknown) > 1 else ""
            yield not_checked(flow, f"rights on group {first}{more} of {alias}", answer)


def _lacking(groups: Mapping[str, Operations], operation: str) -> list[str]:
    """The resources that lack a right: the groups themselves, or all groups when they are many."""
    names = [name for name, operations in groups.items() if _lacks(operations, operation)]
    return [group_resource(name) for name in names] if len(names) <= _NAMED else [EVERY_GROUP]


def _lacks(operations: Operations, operation: str) -> bool:
    if isinstance(operations, KafkaError):
        return operations.reason == _FORBIDDEN
    return operation not in operations
