"""configsync with few rights: what it may not do is said of the one topic."""

import json
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path

import pytest

from integration.configsync.access_rig import AccessRig, access_rig, allow, states, text_of, twinlog
from integration.conftest import PASSWORD, WRITER, GuardedPair
from twinlog.api.configsync.v1 import configsync_service_pb2 as pb2
from twinlog.api.configsync.v1.configsync_service_pb2_grpc import ConfigSyncServiceStub
from twinlog.kafka.ports import ConfigChange
from twinlog.testing.brokers import eventually, retry_admin
from twinlog.testing.service_process import CALL_SECONDS, run_service


@pytest.fixture
async def rig(guarded: GuardedPair) -> AsyncIterator[AccessRig]:
    async with access_rig(guarded, {}) as opened:
        yield opened


async def test_an_unauthorised_topic_is_the_only_one_reported_and_heals(
    rig: AccessRig, tmp_path: Path
) -> None:
    orders, hidden = await rig.create("orders"), await rig.create("hidden")
    denial = replace(allow("DESCRIBE", name=hidden), permission="DENY")
    await rig.grant_on_source(denial)
    async with run_service("configsync", tmp_path, text_of(rig.properties)) as service:

        async def reported() -> bool:
            return await states(service) == {
                orders: (pb2.TOPIC_STATE_READY, ""),
                hidden: (pb2.TOPIC_STATE_WAITING, "TOPIC_UNAUTHORIZED"),
            }

        await eventually(reported)
        code, out, _ = await twinlog(service, "explain", "topic", hidden, "-o", "json")
        assert code == 0
        assert [answer["verdict"] for answer in json.loads(out)] == ["TOPIC_UNAUTHORIZED"]

        await retry_admin(lambda: rig.source.delete_acls([denial]))

        async def healed() -> bool:
            return (await states(service))[hidden] == (pb2.TOPIC_STATE_READY, "")

        await eventually(healed)
        assert PASSWORD not in service.log()
        assert '"works_on_alone": true' in service.log()


async def test_a_config_that_the_target_refuses_holds_nothing_else_back(
    rig: AccessRig, tmp_path: Path
) -> None:
    orders, users = await rig.create("orders"), await rig.create("users")
    refused = replace(allow("ALTER_CONFIGS", name=rig.remote("orders"), user=WRITER), permission="DENY")
    async with run_service("configsync", tmp_path, text_of(rig.properties)) as service:

        async def ready() -> bool:
            return await states(service) == dict.fromkeys((orders, users), (pb2.TOPIC_STATE_READY, ""))

        async def configs_reason() -> str:
            stub = ConfigSyncServiceStub(service.channel)
            (flow,) = (await stub.ListFlows(pb2.ListFlowsRequest(), timeout=CALL_SECONDS)).flows
            return next(scope.reason for scope in flow.scopes if scope.scope == "configs")

        async def retention() -> list[str]:
            remotes = [rig.remote("orders"), rig.remote("users")]
            entries = await rig.target.describe_topic_configs(remotes)
            return [
                next(entry.value or "" for entry in found if entry.name == "retention.ms")
                for name in remotes
                if not isinstance(found := entries[name], Exception)
            ]

        await eventually(ready)
        await retry_admin(lambda: rig.target.create_acls([refused]))
        shorter = [ConfigChange(name="retention.ms", value="3600000")]
        altered = await rig.source.alter_topic_configs({orders: shorter, users: shorter})
        assert set(altered.values()) == {None}

        async def only_one() -> bool:
            assert await states(service) == {
                orders: (pb2.TOPIC_STATE_READY, "TOPIC_UNAUTHORIZED"),
                users: (pb2.TOPIC_STATE_READY, ""),
            }
            return (
                await retention() == ["604800000", "3600000"] and await configs_reason() == "CHANGES_REFUSED"
            )

        await eventually(only_one)
        await retry_admin(lambda: rig.target.delete_acls([refused]))

        async def healed() -> bool:
            return await retention() == ["3600000"] * 2 and not await configs_reason()

        await eventually(healed)
