"""configsync between clusters with StandardAuthorizer: SASL/PLAIN on one, SCRAM on the other, rights that
are few.

The service's own users (READER on the source, WRITER on the target: ACLs of users are copied by name) hold
what `twinlog preflight --acls` asks for and no more; not even the right to elect an owner of the flow.
"""

import asyncio
import sys
from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass

from integration.conftest import READER, WRITER, GuardedPair
from twinlog.api.common.v1 import types_pb2
from twinlog.kafka.cluster import open_cluster
from twinlog.kafka.ports import AclBinding, KafkaCluster, NewTopic
from twinlog.testing.brokers import retry_admin, unique_name
from twinlog.testing.service_process import ServiceProcess


def allow(operation: str, resource_type: str = "TOPIC", name: str = "*", *, user: str = READER) -> AclBinding:
    return AclBinding(
        resource_type=resource_type,
        resource_name="kafka-cluster" if resource_type == "CLUSTER" else name,
        pattern_type="LITERAL",
        principal=f"User:{user}",
        host="*",
        operation=operation,
        permission="ALLOW",
    )


SOURCE_RIGHTS = [
    allow("DESCRIBE"),
    allow("DESCRIBE_CONFIGS"),
    allow("DESCRIBE", "CLUSTER"),
]
TARGET_RIGHTS = [
    *(
        allow(operation, user=WRITER)
        for operation in ("CREATE", "DESCRIBE", "ALTER", "DESCRIBE_CONFIGS", "ALTER_CONFIGS", "READ", "WRITE")
    ),
    *(
        allow(operation, "CLUSTER", user=WRITER)
        for operation in ("DESCRIBE", "ALTER", "DESCRIBE_CONFIGS", "IDEMPOTENT_WRITE")
    ),
]


@dataclass(frozen=True, slots=True, kw_only=True)
class AccessRig:
    """Two guarded clusters under aliases of this test alone; `source` and `target` are super users'
    connections.
    """

    source: KafkaCluster
    target: KafkaCluster
    properties: Mapping[str, str]
    source_alias: str
    target_alias: str

    @property
    def flow(self) -> types_pb2.Flow:
        return types_pb2.Flow(source=self.source_alias, target=self.target_alias)

    def topic(self, name: str) -> str:
        return f"{self.source_alias}-{name}"

    def remote(self, name: str) -> str:
        return f"{self.source_alias}.{self.topic(name)}"

    async def create(self, name: str, configs: Mapping[str, str] | None = None) -> str:
        topic = NewTopic(
            name=self.topic(name), partition_count=1, replication_factor=1, configs=dict(configs or {})
        )
        await retry_admin(lambda: self.source.create_topics([topic]))
        return topic.name

    async def grant_on_source(self, *bindings: AclBinding) -> None:
        await retry_admin(lambda: self.source.create_acls(bindings))

    async def copied_acls(self) -> set[AclBinding]:
        """Bindings on the target that are about this test's flow, those of the service's own user left
        out.
        """
        bindings = await self.target.describe_acls()
        assert bindings is not None
        return {
            binding
            for binding in bindings
            if self.topic("") in binding.resource_name and READER not in binding.principal
        }


@asynccontextmanager
async def access_rig(guarded: GuardedPair, settings: Mapping[str, str]) -> AsyncIterator[AccessRig]:
    """`settings`: what a test file adds to the properties."""
    source_alias, target_alias = unique_name("east"), unique_name("west")
    properties = {
        "clusters": f"{source_alias}, {target_alias}",
        **{f"{source_alias}.{key}": value for key, value in guarded.a.client_properties(READER).items()},
        **{f"{target_alias}.{key}": value for key, value in guarded.b.client_properties(WRITER).items()},
        f"{source_alias}->{target_alias}.enabled": "true",
        f"{target_alias}->{source_alias}.emit.heartbeats.enabled": "false",
        "topics": f"{source_alias}-.*, {source_alias}-hidden",
        "replication.factor": "1",
        "offset.storage.replication.factor": "1",
        "refresh.topics.interval.seconds": "0.5",
        "sync.topic.configs.interval.seconds": "0.5",
        "heartbeats.replication.enabled": "false",
        "twinlog.drain.seconds": "0",
        **settings,
    }
    async with AsyncExitStack() as stack:
        source = await stack.enter_async_context(open_cluster("A", guarded.a.client_properties()))
        target = await stack.enter_async_context(open_cluster("B", guarded.b.client_properties()))
        await retry_admin(lambda: source.create_acls(SOURCE_RIGHTS))
        await retry_admin(lambda: target.create_acls(TARGET_RIGHTS))
        yield AccessRig(
            source=source,
            target=target,
            properties=properties,
            source_alias=source_alias,
            target_alias=target_alias,
        )


def text_of(properties: Mapping[str, str]) -> str:
    return "".join(f"{key} = {value}\n" for key, value in properties.items())


async def twinlog(service: ServiceProcess, *arguments: str) -> tuple[int, str, str]:
    """Run the command against the service: exit code, stdout, stderr."""
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-c", "from twinlog.cli import main; main()", *arguments),
        *("--endpoint", f"configsync={service.endpoint}"),
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    async with asyncio.timeout(60):
        out, err = await process.communicate()
    assert process.returncode is not None
    return process.returncode, out.decode(), err.decode()
