"""Plans and ACLs come page by page, all pages of one answer from one look at the clusters."""

from contextlib import AsyncExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import pytest

from twinlog.api.common.v1 import types_pb2
from twinlog.api.configsync.v1 import configsync_service_pb2 as pb2
from twinlog.api.configsync.v1.configsync_service_pb2_grpc import ConfigSyncServiceStub
from twinlog.cli.common.call import called
from twinlog.errors import ConfigError
from twinlog.service.clusters import Clusters
from twinlog.service.feeds.pages import PAGED_ANSWERS
from twinlog.testing.fakes.cluster import Call, FakeCluster
from twinlog_configsync.api.servicer import ConfigSyncServicer, ServedFlow
from unit.configsync.configsync_rig import READ_ORDERS, ConfigSyncRig, make_flow

FLOW = types_pb2.Flow(source="A", target="B")
CONTEXT: Any = None


class Stub:
    """The service as a client calls it."""

    def __init__(self, flow: ConfigSyncRig) -> None:
        self.servicer = ConfigSyncServicer(
            {flow.config.flow: ServedFlow(sync=flow.sync, commands=flow.commands)},
            clusters=Clusters(
                {},
                open_cluster=lambda _config, _timeout: FakeCluster(),
                stack=AsyncExitStack(),
                clock=flow.clock,
            ),
            stop=flow.stop,
        )
        self.calls = 0

    async def PlanSync(  # noqa: N802
        self, request: pb2.PlanSyncRequest, *, timeout: float = 0
    ) -> pb2.PlanSyncResponse:
        self.calls += 1
        return await self.servicer.PlanSync(request, CONTEXT)

    async def ListAcls(  # noqa: N802
        self, request: pb2.ListAclsRequest, *, timeout: float = 0
    ) -> pb2.ListAclsResponse:
        self.calls += 1
        return await self.servicer.ListAcls(request, CONTEXT)

    @property
    def grpc(self) -> ConfigSyncServiceStub:
        return cast("ConfigSyncServiceStub", self)


def served(directory: Path, topics: int) -> tuple[ConfigSyncRig, Stub, list[Call]]:
    """And how often the source was looked at for topics or ACLs."""
    flow = make_flow(directory, {"sync.topic.acls.enabled": "true"})
    for number in range(topics):
        flow.source.add_topic(f"t{number:04}")
    looks: list[Call] = []
    for operation in ("list_topics", "describe_acls"):
        flow.source.intercept(operation, looks.append)
    return flow, Stub(flow), looks


async def test_a_plan_comes_in_pages_of_one_look(tmp_path: Path) -> None:
    _, stub, looks = served(tmp_path, 500)
    whole = (await stub.PlanSync(pb2.PlanSyncRequest(flow=FLOW, scopes=["topics"]))).plan
    looked = len(looks)
    assert whole.change_count == 500
    stub.calls = 0
    asked = pb2.PlanSyncRequest(flow=FLOW, scopes=["topics"], page_size=99)
    assert (await called(stub.grpc, "configsync").PlanSync(asked)).plan == whole
    assert stub.calls == 6
    assert len(looks) == 2 * looked


async def test_pages_of_a_plan_are_of_the_plan_that_was_made_then(tmp_path: Path) -> None:
    flow, stub, _ = served(tmp_path, 30)
    request = pb2.PlanSyncRequest(flow=FLOW, scopes=["topics"], page_size=20)
    first = await stub.PlanSync(request)
    flow.source.add_topic("another")
    other = await stub.PlanSync(pb2.PlanSyncRequest(flow=FLOW, scopes=["topics"]))
    request.page_token = first.next_page_token
    rest = await stub.PlanSync(request)
    assert other.plan.plan_id != first.plan.plan_id
    assert rest.plan.plan_id == first.plan.plan_id
    assert (len(rest.plan.actions), rest.plan.change_count, rest.next_page_token) == (10, 30, "")


async def test_acls_come_in_pages_of_one_look(tmp_path: Path) -> None:
    flow, stub, looks = served(tmp_path, 1)
    flow.target.acls = set()
    flow.source.acls = {replace(READ_ORDERS, resource_name=f"x{number}") for number in range(50)}
    whole = (await stub.ListAcls(pb2.ListAclsRequest(flow=FLOW))).entries
    looked = len(looks)
    assert len(whole) == 50
    asked = pb2.ListAclsRequest(flow=FLOW, page_size=20)
    assert list((await called(stub.grpc, "configsync").ListAcls(asked)).entries) == list(whole)
    assert len(looks) == 2 * looked


async def test_a_token_of_an_answer_that_is_not_kept_any_more_is_refused(tmp_path: Path) -> None:
    _, stub, _ = served(tmp_path, 3)
    request = pb2.PlanSyncRequest(flow=FLOW, scopes=["topics"], page_size=1)
    first = await stub.PlanSync(request)
    for _ in range(PAGED_ANSWERS):
        await stub.PlanSync(request)
    for token in (first.next_page_token, "x", "x:1", first.next_page_token + "9"):
        with pytest.raises(ConfigError) as refused:
            await stub.PlanSync(pb2.PlanSyncRequest(flow=FLOW, page_token=token))
        assert refused.value.reason == "INVALID_PAGE_TOKEN"
    with pytest.raises(ConfigError) as refused:
        await stub.PlanSync(pb2.PlanSyncRequest(flow=FLOW, page_size=-1))
    assert refused.value.reason == "INVALID_PAGE_SIZE"
