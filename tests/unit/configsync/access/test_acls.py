"""ACLs: MM2's vectors, the other modes, removals, and the promise that nobody gains a right."""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from twinlog.kafka.ports import AclBinding
from twinlog.policy.replication import (
    DefaultReplicationPolicy,
    IdentityReplicationPolicy,
    ReplicationPolicy,
)
from twinlog.write_blocks import is_fence
from twinlog_checkpoint.moves.write_grants import write_grants
from twinlog_configsync.access.acl_plan import plan_acls
from twinlog_configsync.access.acl_rules import AclRules, AclSyncMode, translate_acls
from twinlog_configsync.model.actions import AclAction, CreateAcl, DeleteAcl, SkipAcl
from twinlog_configsync.model.observation import AclObservation
from unit.configsync.kafka_authorizer import is_authorized

DEFAULT = DefaultReplicationPolicy()
IDENTITY = IdentityReplicationPolicy(source_cluster_alias="A")
TOPICS = ("orders", "orders-eu", "payroll", "users")
"""All exist on the source; `payroll` is not replicated."""
REPLICATED = frozenset(TOPICS) - {"payroll"}
GROUPS = ("billing", "audit", "reports")
"""All exist on the source; `audit` is not selected."""
OWN_TOPICS = (
    *("A.checkpoints.internal", "mm2-offset-syncs.A.internal", "mm2-offsets.A.internal", "A.payroll"),
    *("mm2-configsync.A.internal", "mm2-failover.A.internal", "ledger", "A.ledger", "orders-own"),
)
"""On the target, and copies of nothing: the mirror's, and the target's own."""
OWN_GROUPS = ("ledger", "b-own", "twinlog-configsync-A-B", "audit")
OWN_IDS = ("twinlog-A-B-0-0", "tx-own")


def selects(name: str) -> bool:
    return name not in ("payroll", "checkpoints.internal")


def rules(mode: AclSyncMode = AclSyncMode.MM2, policy: ReplicationPolicy = DEFAULT) -> AclRules:
    return AclRules(
        mode=mode,
        source="A",
        policy=policy,
        selects_topic=selects,
        selects_group=lambda name: name != "audit",
    )


def acl(
    text: str, *, principal: str = "User:alice", host: str = "*", permission: str = "ALLOW"
) -> AclBinding:
    """`READ orders`, `READ orders*` (prefixed), `READ GROUP billing`."""
    operation, *middle, name = text.split()
    prefixed = name.endswith("*") and name != "*"
    return AclBinding(
        resource_type=middle[0] if middle else "TOPIC",
        resource_name=name.rstrip("*") if prefixed else name,
        pattern_type="PREFIXED" if prefixed else "LITERAL",
        principal=principal,
        host=host,
        operation=operation,
        permission=permission,
    )


def deny(text: str) -> AclBinding:
    return acl(text, permission="DENY")


def targets(
    bindings: Iterable[AclBinding], mode: AclSyncMode = AclSyncMode.MM2, policy: ReplicationPolicy = DEFAULT
) -> list[AclBinding]:
    translated = translate_acls(list(bindings), rules(mode, policy), topics=REPLICATED, groups=GROUPS)
    return [target for each in translated for target in each.targets]


def test_mm2_filtering_keeps_read_and_drops_write() -> None:
    assert targets([acl("READ orders")]) == [acl("READ A.orders")]
    assert targets([acl("WRITE orders")]) == []


def test_mm2_transformation_turns_all_into_read_but_only_when_it_allows() -> None:
    assert targets([acl("ALL orders")]) == [acl("READ A.orders")]
    assert targets([deny("ALL orders")]) == [deny("ALL A.orders")]
    assert targets([deny("WRITE orders")]) == [deny("WRITE A.orders")]


@pytest.mark.parametrize("operation", ["DESCRIBE", "CREATE", "DELETE", "ALTER", "ALTER_CONFIGS"])
def test_mm2_copies_any_other_single_operation(operation: str) -> None:
    assert targets([acl(f"{operation} orders")]) == [acl(f"{operation} A.orders")]


@pytest.mark.parametrize("text", ["READ orders*", "READ GROUP billing", "READ payroll", "CREATE CLUSTER c"])
def test_mm2_leaves_out_prefixes_other_resources_and_what_is_not_selected(text: str) -> None:
    assert targets([acl(text)]) == []


def test_mm2_a_topic_need_not_exist_and_the_wildcard_is_a_name() -> None:
    assert targets([acl("READ not-there-yet"), acl("READ *")]) == [
        replace(acl("READ *"), resource_name="A.*"),
        acl("READ A.not-there-yet"),
    ]


def test_mm2_takes_only_topics_that_the_source_has_where_names_are_kept() -> None:
    """On the target `*`, or a name that the source does not have, would match topics of its own."""
    assert targets([acl("READ *")], policy=IDENTITY) == [acl(f"READ {name}") for name in sorted(REPLICATED)]
    assert targets([acl("READ not-there-yet")], policy=IDENTITY) == []


def test_read_only_takes_prefixes_wildcards_and_groups_and_only_reading_rights() -> None:
    source = [
        acl("ALL orders*"),
        acl("DESCRIBE *"),
        acl("ALL GROUP billing"),
        acl("READ GROUP audit"),
        acl("DELETE orders"),
        acl("WRITE orders"),
        acl("WRITE TRANSACTIONAL_ID tx"),
    ]
    assert sorted(targets(source, AclSyncMode.READ_ONLY)) == sorted(
        [
            *(acl(f"READ A.{name}") for name in ("orders", "orders-eu")),
            *(acl(f"DESCRIBE A.{name}") for name in REPLICATED),
            acl("READ GROUP billing"),
        ]
    )


def test_full_takes_every_right_on_topics_groups_and_transactional_ids() -> None:
    source = [
        acl("ALL orders*"),
        acl("WRITE orders"),
        acl("ALL GROUP billing"),
        acl("ALL TRANSACTIONAL_ID tx"),
    ]
    assert sorted(targets(source, AclSyncMode.FULL)) == sorted(
        [
            acl("ALL A.orders"),
            acl("ALL A.orders-eu"),
            acl("WRITE A.orders"),
            acl("ALL GROUP billing"),
            acl("ALL TRANSACTIONAL_ID tx"),
        ]
    )
    assert targets([acl("ALTER CLUSTER kafka-cluster")], AclSyncMode.FULL) == []


def test_patterns_are_written_out_for_replicated_topics_and_selected_groups() -> None:
    """On the target they would also match what is the target's own, and the mirror's."""
    assert sorted(targets([acl("READ orders*")], AclSyncMode.FULL, IDENTITY)) == [
        acl("READ orders"),
        acl("READ orders-eu"),
    ]
    assert targets([acl("ALL GROUP *")], AclSyncMode.FULL) == [
        acl("ALL GROUP billing"),
        acl("ALL GROUP reports"),
    ]
    assert targets([acl("READ GROUP rep*")], AclSyncMode.READ_ONLY) == [acl("READ GROUP reports")]


def test_a_pattern_of_transactional_ids_is_left_out_and_says_what_to_do() -> None:
    source = [acl("WRITE TRANSACTIONAL_ID *"), acl("WRITE TRANSACTIONAL_ID app-*")]
    for each in translate_acls(source, rules(AclSyncMode.FULL), topics=REPLICATED):
        assert each.targets == ()
        assert "name the ids in ACLs of the source" in each.rule
    assert acl("WRITE TRANSACTIONAL_ID app-1") in targets(
        [*source, acl("DESCRIBE TRANSACTIONAL_ID app-1")], AclSyncMode.FULL
    )


@pytest.mark.parametrize("text", ["GROUP twinlog-source-A-B", "TRANSACTIONAL_ID twinlog-A-B-0-0"])
@pytest.mark.parametrize("permission", ["ALLOW", "DENY"])
def test_acls_never_reach_the_groups_and_ids_of_twinlog_itself(text: str, permission: str) -> None:
    (left,) = translate_acls(
        [acl(f"READ {text}", permission=permission)], rules(AclSyncMode.FULL), topics=REPLICATED
    )
    assert left.targets == ()
    assert "Twinlog's own services" in left.rule


@pytest.mark.parametrize("text", ["ALL orders*", "READ *", "DESCRIBE orders*"])
def test_mm2_leaves_out_an_allowance_whose_denial_it_cannot_copy(text: str) -> None:
    (allowance, *_) = [
        each
        for each in translate_acls([acl("READ orders"), deny(text)], rules(), topics=REPLICATED)
        if each.source.permission == "ALLOW"
    ]
    assert allowance.targets == ()
    assert "would give more" in allowance.rule


def test_a_denial_of_something_else_takes_nothing_away() -> None:
    others = [replace(deny("READ orders*"), principal="User:bob"), deny("WRITE orders*"), deny("READ pay*")]
    assert acl("READ A.orders") in targets([acl("READ orders"), *others])


@pytest.mark.parametrize("text", ["DELETE *", "WRITE orders*", "ALTER_CONFIGS *"])
def test_a_denial_of_what_the_copy_does_not_give_leaves_mm2s_reading_right(text: str) -> None:
    """ALL becomes READ: that nobody may delete topics on the source takes nothing from that."""
    denial = replace(deny(text), principal="User:*")
    assert acl("READ A.orders") in targets([acl("ALL orders"), denial])


def test_a_denial_of_a_topic_that_is_not_replicated_need_not_be_copied_beside_a_pattern() -> None:
    source = [acl("READ *"), deny("READ payroll")]
    assert targets(source, AclSyncMode.READ_ONLY) == [acl(f"READ A.{name}") for name in sorted(REPLICATED)]
    assert targets(source, AclSyncMode.READ_ONLY, IDENTITY) == [
        acl(f"READ {name}") for name in sorted(REPLICATED)
    ]


def plan(
    source: Collection[AclBinding],
    target: Collection[AclBinding],
    *,
    mode: AclSyncMode = AclSyncMode.READ_ONLY,
    made: Collection[AclBinding] = (),
    wanted_elsewhere: Collection[AclBinding] = (),
) -> list[AclAction | SkipAcl]:
    return plan_acls(
        AclObservation(source=frozenset(source), target=frozenset(target)),
        translate_acls(source, rules(mode), topics=REPLICATED, groups=GROUPS),
        rules(mode),
        made=made,
        wanted_elsewhere=wanted_elsewhere,
    )


def changes(actions: Iterable[AclAction | SkipAcl]) -> list[AclAction]:
    return [action for action in actions if not isinstance(action, SkipAcl)]


def test_only_differences_are_sent() -> None:
    assert changes(plan([acl("READ orders")], [acl("READ A.orders")])) == []


def test_removals_are_followed_for_what_was_made_and_foreign_acls_stay() -> None:
    made, foreign = acl("READ A.orders"), acl("READ A.users")
    assert changes(plan([], [made, foreign], made=[made])) == [
        DeleteAcl(binding=made, rule="made by Twinlog, nothing on the source asks for it (mode read-only)")
    ]
    assert changes(plan([], [made, foreign], made=[made], mode=AclSyncMode.MM2)) == []
    assert changes(plan([], [made, foreign], made=[made], wanted_elsewhere=[made])) == []


def test_what_somebody_removed_is_made_again_and_is_drift() -> None:
    (action,) = changes(plan([acl("READ orders")], [], made=[acl("READ A.orders")]))
    assert isinstance(action, CreateAcl)
    assert action.drift


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


@pytest.mark.parametrize("mode", AclSyncMode)
@pytest.mark.parametrize("policy", [DEFAULT, IDENTITY])
def test_a_fence_stays_on_its_own_cluster_and_takes_nothing_away(
    mode: AclSyncMode, policy: ReplicationPolicy
) -> None:
    fence = acl("WRITE orders", principal="User:*", permission="DENY")
    read = acl("ALL orders")
    copies = {
        each.source: each.targets
        for each in translate_acls([fence, read], rules(mode, policy), topics=TOPICS)
    }
    assert copies[fence] == ()
    assert len(copies[read]) == 1
