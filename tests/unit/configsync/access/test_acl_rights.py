"""Nobody gains a right by the ACLs of copies, whatever the source's are and in whatever order they change."""

from collections.abc import Collection, Mapping

from hypothesis import given
from hypothesis import strategies as st

from twinlog.config import AclSyncMode
from twinlog.kafka.ports import AclBinding
from twinlog.policy.replication import (
    ReplicationPolicy,
)
from twinlog.write_blocks import is_fence
from twinlog_checkpoint.moves.write_block import write_grants
from twinlog_configsync.access.acl_plan import plan_acls
from twinlog_configsync.access.acl_rules import translate_acls
from twinlog_configsync.model.actions import AclAction, CreateAcl
from twinlog_configsync.model.observation import AclObservation
from unit.configsync.access.acl_rig import (
    DEFAULT,
    GROUPS,
    IDENTITY,
    OWN_GROUPS,
    OWN_IDS,
    OWN_TOPICS,
    REPLICATED,
    changes,
    rules,
)
from unit.configsync.kafka_authorizer import is_authorized

# Few names and many equal ones, so that bindings meet.
operations = st.sampled_from(
    [
        "READ",
        "READ",
        "ALL",
        "ALL",
        "DESCRIBE",
        "WRITE",
        "DELETE",
        "ALTER",
        "ALTER_CONFIGS",
        "DESCRIBE_CONFIGS",
    ]
)
topic_patterns = st.sampled_from(
    [
        *(("LITERAL", name) for name in ("orders", "orders", "orders-eu", "payroll", "users", "*")),
        *(("LITERAL", name) for name in ("A.ledger", "checkpoints.internal", "ledger.copy")),
        *(("PREFIXED", prefix) for prefix in ("orders", "orders-", "p", "c", "A", "mm2", "*")),
    ]
)
group_patterns = st.sampled_from(
    [
        *(("LITERAL", name) for name in ("billing", "audit", "*", "twinlog-configsync-A-B")),
        *(("PREFIXED", prefix) for prefix in ("b", "bill", "twinlog-")),
    ]
)
id_patterns = st.sampled_from(
    [
        ("LITERAL", "tx"),
        ("LITERAL", "*"),
        ("PREFIXED", "tx"),
        ("LITERAL", "twinlog-A-B-0-0"),
        ("PREFIXED", "t"),
    ]
)
patterns = {"TOPIC": topic_patterns, "GROUP": group_patterns, "TRANSACTIONAL_ID": id_patterns}


@st.composite
def bindings(draw: st.DrawFn) -> AclBinding:
    resource_type = draw(st.sampled_from(["TOPIC", "TOPIC", "GROUP", "TRANSACTIONAL_ID"]))
    pattern_type, name = draw(patterns[resource_type])
    return AclBinding(
        resource_type=resource_type,
        resource_name=name,
        pattern_type=pattern_type,
        principal=draw(st.sampled_from(["User:alice", "User:alice", "User:bob", "User:*"])),
        host=draw(st.sampled_from(["*", "*", "10.0.0.1"])),
        operation=draw(operations),
        permission=draw(st.sampled_from(["ALLOW", "ALLOW", "DENY"])),
    )


sources = st.frozensets(bindings(), min_size=1, max_size=6)
policies = st.sampled_from([DEFAULT, IDENTITY])
ORIGINS = {
    "TOPIC": (*sorted(REPLICATED), "A.ledger", "ledger.copy"),
    "GROUP": ("billing", "reports"),
    "TRANSACTIONAL_ID": ("tx",),
}
"""On the source, by type; those that do not exist there are named by ACLs."""
OWN = {"TOPIC": OWN_TOPICS, "GROUP": OWN_GROUPS, "TRANSACTIONAL_ID": OWN_IDS}


def requests(names: Mapping[str, Collection[str]]) -> list[tuple[str, str, str, str, str]]:
    return [
        (principal, host, operation, resource_type, name)
        for principal in ("User:alice", "User:bob", "User:carol")
        for host in ("10.0.0.1", "10.0.0.2")
        for operation in (
            *("READ", "WRITE", "CREATE", "DESCRIBE", "DELETE", "ALTER"),
            *("ALTER_CONFIGS", "DESCRIBE_CONFIGS"),
        )
        for resource_type, of_type in names.items()
        for name in of_type
    ]


ABOUT_ORIGINS, ABOUT_OWN = requests(ORIGINS), requests(OWN)


def rights(
    bindings: Collection[AclBinding],
    policy: ReplicationPolicy | None,
    asked: Collection[tuple[str, str, str, str, str]] = ABOUT_ORIGINS,
) -> frozenset[object]:
    """The requests that are authorised; with a policy, asked about the copies on the target."""

    def place(resource_type: str, name: str) -> str:
        return policy.format_remote_topic("A", name) if policy and resource_type == "TOPIC" else name

    return frozenset(
        (principal, host, operation, resource_type, name)
        for principal, host, operation, resource_type, name in asked
        if is_authorized(
            bindings,
            principal=principal,
            host=host,
            operation=operation,
            resource_type=resource_type,
            name=place(resource_type, name),
        )
    )


def planned(
    source: frozenset[AclBinding],
    target: frozenset[AclBinding],
    made: frozenset[AclBinding],
    *,
    mode: AclSyncMode,
    policy: ReplicationPolicy,
) -> list[AclAction]:
    observation = AclObservation(source=source, target=target)
    translations = translate_acls(source, rules(mode, policy), topics=REPLICATED, groups=GROUPS)
    return changes(plan_acls(observation, translations, rules(mode, policy), made=made))


def applied(target: frozenset[AclBinding], action: AclAction) -> frozenset[AclBinding]:
    return target | {action.binding} if isinstance(action, CreateAcl) else target - {action.binding}


@given(source=sources, mode=st.sampled_from(AclSyncMode), policy=policies)
def test_who_may_do_something_on_the_target_may_do_it_to_the_origin_on_the_source(
    source: frozenset[AclBinding], mode: AclSyncMode, policy: ReplicationPolicy
) -> None:
    target: frozenset[AclBinding] = frozenset()
    owned = rights(source, None)
    for action in planned(source, target, frozenset(), mode=mode, policy=policy):
        target = applied(target, action)
        assert rights(target, policy) <= owned
        assert not rights(target, None, ABOUT_OWN), "the target's own, and the mirror's"
    assert planned(source, target, target, mode=mode, policy=policy) == []


@given(source=sources, mode=st.sampled_from(AclSyncMode), policy=policies)
def test_nobody_gains_a_right_by_what_a_failover_grants_beside(
    source: frozenset[AclBinding], mode: AclSyncMode, policy: ReplicationPolicy
) -> None:
    copies = {name: policy.format_remote_topic("A", name) for name in sorted(REPLICATED)}
    target = frozenset(write_grants(source, (), copies).missing)
    assert rights(target, policy) <= rights(source, None), "a rule that looks like a fence counts"
    lasting = frozenset(each for each in source if not is_fence(each))
    for action in planned(lasting, target, frozenset(), mode=mode, policy=policy):
        target = applied(target, action)
        assert rights(target, policy) <= rights(lasting, None)
        assert not rights(target, None, ABOUT_OWN), "the target's own, and the mirror's"


@given(
    before=sources,
    after=sources,
    mode=st.sampled_from([AclSyncMode.READ_ONLY, AclSyncMode.FULL]),
    policy=policies,
)
def test_a_change_is_followed_and_no_step_of_it_gives_more_than_before_or_after(
    before: frozenset[AclBinding], after: frozenset[AclBinding], mode: AclSyncMode, policy: ReplicationPolicy
) -> None:
    target: frozenset[AclBinding] = frozenset()
    for action in planned(before, target, frozenset(), mode=mode, policy=policy):
        target = applied(target, action)
    made, first = target, rights(target, policy)
    steps = []
    for action in planned(after, target, made, mode=mode, policy=policy):
        target = applied(target, action)
        steps.append(rights(target, policy))
    assert rights(target, policy) <= rights(after, None)
    assert all(step <= first | rights(target, policy) for step in steps)
    fresh: frozenset[AclBinding] = frozenset()
    for action in planned(after, fresh, fresh, mode=mode, policy=policy):
        fresh = applied(fresh, action)
    assert target == fresh


@given(source=st.lists(bindings(), max_size=6, unique=True), seed=st.randoms(use_true_random=False))
def test_the_order_in_which_acls_are_seen_never_matters(source: list[AclBinding], seed: object) -> None:
    shuffled = list(source)
    seed.shuffle(shuffled)  # type: ignore[attr-defined]
    assert translate_acls(source, rules(AclSyncMode.FULL), topics=["users", "orders"]) == translate_acls(
        shuffled, rules(AclSyncMode.FULL), topics=["orders", "users"]
    )
