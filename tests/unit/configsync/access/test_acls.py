"""Which ACLs the copies get: MM2's vectors, and the other modes."""

from collections.abc import Collection, Iterable
from dataclasses import replace

import pytest

from twinlog.config import AclSyncMode
from twinlog.kafka.ports import AclBinding
from twinlog.policy.replication import (
    ReplicationPolicy,
)
from twinlog.write_blocks import holder_of
from twinlog_configsync.access.acl_plan import plan_acls
from twinlog_configsync.access.acl_rules import translate_acls
from twinlog_configsync.model.actions import AclAction, CreateAcl, DeleteAcl, SkipAcl
from twinlog_configsync.model.memory import acl_ids
from twinlog_configsync.model.observation import AclObservation
from unit.cases import about
from unit.configsync.access.acl_rig import (
    DEFAULT,
    GROUPS,
    IDENTITY,
    REPLICATED,
    TOPICS,
    acl,
    changes,
    deny,
    rules,
)


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
    assert "would allow more" in allowance.rule


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
        wanted_elsewhere=acl_ids(wanted_elsewhere),
    )


def test_only_differences_are_sent() -> None:
    assert changes(plan([acl("READ orders")], [acl("READ A.orders")])) == []


def test_removals_are_followed_for_what_was_made_and_foreign_acls_stay() -> None:
    made, foreign = acl("READ A.orders"), acl("READ A.users")
    assert changes(plan([], [made, foreign], made=[made])) == [
        DeleteAcl(binding=made, rule="created by Twinlog, and the source no longer has it (mode read-only)")
    ]
    assert changes(plan([], [made, foreign], made=[made], mode=AclSyncMode.MM2)) == []
    assert changes(plan([], [made, foreign], made=[made], wanted_elsewhere=[made])) == []


def test_what_somebody_removed_is_made_again_and_is_drift() -> None:
    (action,) = changes(plan([acl("READ orders")], [], made=[acl("READ A.orders")]))
    assert isinstance(action, CreateAcl)
    assert action.drift


def test_a_fence_stays_on_its_own_cluster_and_one_of_somebody_else_limits_what_is_copied() -> None:
    """A fence that a move of another flow holds is none of somebody else."""
    for mode in AclSyncMode:
        for policy in [DEFAULT, IDENTITY]:
            for name, by in [
                ("orders", "flow"),
                ("orders", "other flow"),
                ("orders", ""),
                ("*", ""),
                ("ord*", ""),
            ]:
                is_own = bool(by)
                with about(mode, policy, name, by):
                    fence = acl(f"WRITE {name}", principal="User:*", permission="DENY")
                    holders = [holder_of(fence, "A->C id")] if by == "other flow" else []
                    read, write = acl("READ orders"), acl("WRITE orders")
                    copies = {
                        each.source: each.targets
                        for each in translate_acls(
                            [fence, *holders, read, write],
                            rules(mode, policy),
                            topics=TOPICS,
                            fences=[fence] if by == "flow" else [],
                        )
                    }
                    assert not any(copies[each] for each in (fence, *holders))
                    assert len(copies[read]) == 1
                    assert len(copies[write]) == (mode is AclSyncMode.FULL and is_own)
