"""Which ACLs configsync copies between guarded clusters, in each of its modes."""

import json
from collections.abc import AsyncIterator, Collection
from dataclasses import replace
from pathlib import Path

import pytest

from integration.configsync.access_rig import AccessRig, access_rig, allow, text_of, twinlog
from integration.conftest import READER, GuardedPair
from twinlog.kafka.ports import AclBinding
from twinlog.testing.brokers import eventually, retry_admin
from twinlog.testing.service_process import run_service


@pytest.fixture
async def rig(guarded: GuardedPair) -> AsyncIterator[AccessRig]:
    async with access_rig(guarded, {"sync.topic.acls.interval.seconds": "0.5"}) as opened:
        yield opened


async def test_mode_mm2_copies_what_mm2_copies_and_never_deletes(rig: AccessRig, tmp_path: Path) -> None:
    orders = await rig.create("orders")
    read = allow("READ", name=orders, user="alice")
    bindings = [
        read,
        allow("WRITE", name=orders, user="alice"),
        allow("ALL", name=orders, user="bob"),
        replace(allow("READ", name=orders, user="eve"), permission="DENY"),
        replace(allow("READ", name=f"{rig.source_alias}-o", user="carol"), pattern_type="PREFIXED"),
        allow("READ", "GROUP", f"{rig.source_alias}-group", user="alice"),
    ]
    await rig.grant_on_source(*bindings)
    remote = rig.remote("orders")
    wanted = {
        allow("READ", name=remote, user="alice"),
        allow("READ", name=remote, user="bob"),
        replace(allow("READ", name=remote, user="eve"), permission="DENY"),
    }
    async with run_service("configsync", tmp_path, text_of(rig.properties)) as service:

        async def copied() -> bool:
            return await rig.copied_acls() == wanted

        await eventually(copied)
        await retry_admin(lambda: rig.source.delete_acls([read]))
        code, out, _ = await twinlog(
            service, "plan", f"{rig.source_alias}->{rig.target_alias}", "--scope", "acls", "-o", "json"
        )
        assert code == 0
        (plan,) = json.loads(out)
        assert plan["change_count"] == 0
        assert any("never deletes" in action["rule"] for action in plan["actions"])
        assert await rig.copied_acls() == wanted


async def test_mode_read_only_follows_removals_and_leaves_foreign_acls(
    rig: AccessRig, tmp_path: Path
) -> None:
    orders = await rig.create("orders")
    literal = allow("READ", name=orders, user="alice")
    prefixed = replace(allow("ALL", name=f"{rig.source_alias}-o", user="carol"), pattern_type="PREFIXED")
    group = allow("READ", "GROUP", f"{rig.source_alias}-group", user="alice")
    await rig.grant_on_source(literal, prefixed, group)
    foreign = allow("READ", name=rig.remote("orders"), user="operator")
    await retry_admin(lambda: rig.target.create_acls([foreign]))
    properties = {**rig.properties, "twinlog.sync.topic.acls.mode": "read-only"}
    copies = {
        allow("READ", name=rig.remote("orders"), user="alice"),
        allow("READ", name=rig.remote("orders"), user="carol"),
        group,
    }

    async def is_now(wanted: Collection[AclBinding]) -> bool:
        return await rig.copied_acls() == {*wanted, foreign}

    async with run_service("configsync", tmp_path, text_of(properties)) as service:
        await eventually(lambda: is_now(copies))
        code, out, err = await twinlog(service, "acls", f"{rig.source_alias}->{rig.target_alias}")
        assert code == 0, err
        (copied,) = [line for line in out.splitlines() if f"LITERAL TOPIC {orders} " in line]
        assert copied.startswith("IN_STEP")
        assert f"ALLOW User:alice READ on LITERAL TOPIC {rig.remote('orders')} from *  Twinlog" in copied
    await retry_admin(lambda: rig.source.delete_acls([literal, prefixed, group]))
    async with run_service("configsync", tmp_path, text_of(properties)) as service:
        await eventually(lambda: is_now([]))
        code, out, err = await twinlog(service, "acls", rig.target_alias, "-o", "json")
        assert code == 0, err
        about = [
            (entry["target"]["principal"], entry["state"], entry["made_by_twinlog"])
            for entry in json.loads(out)
            if entry["target"]["resource_name"] == rig.remote("orders")
            and READER not in entry["target"]["principal"]
        ]
        assert about == [("User:operator", "FOREIGN", False)]


async def test_mode_full_copies_writing_and_transactional_ids_and_says_what_it_leaves_out(
    rig: AccessRig, tmp_path: Path
) -> None:
    orders = await rig.create("orders")
    payments = await rig.create("payments")
    mark = rig.source_alias
    writing = allow("WRITE", name=orders, user="alice")
    everything = replace(allow("ALL", name=f"{mark}-pay", user="carol"), pattern_type="PREFIXED")
    denied = replace(allow("WRITE", name=payments, user="mallory"), permission="DENY")
    transactional = allow("WRITE", "TRANSACTIONAL_ID", f"{mark}-txn", user="alice")
    many_transactional = replace(
        allow("WRITE", "TRANSACTIONAL_ID", f"{mark}-many", user="alice"), pattern_type="PREFIXED"
    )
    group = allow("READ", "GROUP", f"{mark}-group", user="alice")
    of_cluster = allow("ALTER", "CLUSTER", user=f"{mark}-admin")
    granted = (writing, everything, denied, transactional, many_transactional, group, of_cluster)
    await rig.grant_on_source(*granted)
    properties = {**rig.properties, "twinlog.sync.topic.acls.mode": "full"}
    copies = {
        replace(writing, resource_name=rig.remote("orders")),
        allow("ALL", name=rig.remote("payments"), user="carol"),
        replace(denied, resource_name=rig.remote("payments")),
        transactional,
        group,
    }

    async def is_now(wanted: Collection[AclBinding]) -> bool:
        return await rig.copied_acls() == set(wanted)

    async with run_service("configsync", tmp_path, text_of(properties)) as service:
        await eventually(lambda: is_now(copies))
        flow = f"{rig.source_alias}->{rig.target_alias}"
        code, out, err = await twinlog(service, "acls", flow, "-o", "json")
        assert code == 0, err
        left_out = {
            (entry["source"]["resource_type"], entry["source"]["resource_name"]): entry["rule"]
            for entry in json.loads(out)
            if entry["state"] == "LEFT_OUT" and mark in str(entry["source"])
        }
        assert left_out[("CLUSTER", "kafka-cluster")] == "mode full does not copy ACLs of clusters"
        assert "grant it on the target" in left_out[("TRANSACTIONAL_ID", f"{mark}-many")]
        there = await rig.target.describe_acls()
        assert there is not None
        assert not [each for each in there if f"{mark}-admin" in each.principal], (
            "no right on the cluster itself"
        )
        await retry_admin(lambda: rig.source.delete_acls(granted))
        await eventually(lambda: is_now([]))
