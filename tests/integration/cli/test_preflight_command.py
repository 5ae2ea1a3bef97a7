"""`twinlog preflight` against real clusters: it misses what is missing, and its commands grant enough."""

import asyncio
import json
import re
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from integration.conftest import MIRROR, PASSWORD, GuardedPair
from twinlog.kafka.cluster import open_cluster
from twinlog.kafka.ports import AclBinding, CommittedOffset, KafkaCluster, NewTopic
from twinlog.model import TopicPartition
from twinlog.properties_text import render_properties
from twinlog.testing.brokers import KafkaPair, eventually, retry_admin, unique_name

STAMPED = "LogAppendTime"


async def preflight(file: Path, *arguments: str) -> tuple[int, str]:
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-c", "from twinlog.cli import main; main()", "preflight", str(file), *arguments),
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )
    async with asyncio.timeout(120):
        out, _ = await process.communicate()
    assert process.returncode is not None
    return process.returncode, out.decode()


async def findings(file: Path) -> list[dict[str, Any]]:
    _, out = await preflight(file, "-o", "json")
    found: list[dict[str, Any]] = json.loads(out)
    return found


async def errors(file: Path) -> list[dict[str, Any]]:
    code, out = await preflight(file, "-o", "json")
    wrong = [finding for finding in json.loads(out) if finding["level"] == "error"]
    assert code == (1 if wrong else 0)
    return wrong


def write(directory: Path, a: Mapping[str, str], b: Mapping[str, str], **more: str) -> Path:
    settings = {
        "clusters": "A, B",
        **{f"A.{key}": value for key, value in a.items()},
        **{f"B.{key}": value for key, value in b.items()},
        "A->B.enabled": "true",
        "topics": "preflight-.*",
        **dict.fromkeys(
            (
                "replication.factor",
                "offset.storage.replication.factor",
                "offset-syncs.topic.replication.factor",
                "checkpoints.topic.replication.factor",
                "heartbeats.topic.replication.factor",
            ),
            "1",
        ),
        **more,
    }
    file = directory / "mm2.properties"
    file.write_text(render_properties(settings))
    return file


async def grant(cluster: KafkaCluster, command: str) -> None:
    """What kafka-acls would do for one of preflight's commands."""
    principal = re.search(r"--allow-principal '([^']+)'", command)
    resource = re.search(r"--(topic|group|transactional-id) '([^']+)'", command)
    assert principal is not None
    pattern = "PREFIXED" if "--resource-pattern-type prefixed" in command else "LITERAL"
    bindings = [
        AclBinding(
            resource_type=resource.group(1).upper().replace("-", "_") if resource else "CLUSTER",
            resource_name=resource.group(2) if resource else "kafka-cluster",
            pattern_type=pattern,
            principal=principal.group(1),
            host="*",
            operation=re.sub(r"(?<=[a-z])(?=[A-Z])", "_", operation).upper(),
            permission="ALLOW",
        )
        for operation in re.findall(r"--operation (\w+)", command)
    ]
    await retry_admin(lambda: cluster.create_acls(bindings))


async def test_its_commands_grant_what_it_misses(guarded: GuardedPair, tmp_path: Path) -> None:
    file = write(tmp_path, guarded.a.client_properties(MIRROR), guarded.b.client_properties(MIRROR))
    async with (
        open_cluster("A", guarded.a.client_properties()) as source,
        open_cluster("B", guarded.b.client_properties()) as target,
    ):
        topic = NewTopic(name="preflight-orders", partition_count=1, replication_factor=1)
        await retry_admin(lambda: source.create_topics([topic]))
        orders = TopicPartition("preflight-orders", 0)
        await retry_admin(
            lambda: source.alter_group_offsets("billing", {orders: CommittedOffset(next_offset=0)})
        )
        at_first = await findings(file)
        before = [finding for finding in at_first if finding["level"] == "error"]
        assert {finding["check"] for finding in before} == {"rights"}
        for missing in ("mm2-offsets.A.internal", "mm2-failover.A.internal", "--transactional-id"):
            assert any(missing in finding["message"] for finding in before), missing
        blind = [each["message"] for each in at_first if each["check"] == "not checked"]
        assert len(blind) == 1
        assert "A does not list them" in blind[0]

        code, out = await preflight(file, "--acls")
        assert code == 0
        assert PASSWORD not in out
        for command in (line for line in out.splitlines() if not line.startswith("#")):
            servers = guarded.a.bootstrap_servers if guarded.a.bootstrap_servers in command else ""
            await grant(source if servers else target, command)

        async def nothing_missing() -> bool:
            lacking = {"rights", "not checked"}
            return [each for each in await findings(file) if each["check"] in lacking] == [
                {
                    "level": "ok",
                    "about": "A->B",
                    "check": "rights",
                    "message": "both clusters grant the necessary rights on topics, groups, transactional ids"
                    " and clusters",
                    "remedy": "",
                }
            ]

        await eventually(nothing_missing)
        assert not {"A.preflight-orders", "mm2-failover.A.internal"} & set(await target.list_topics())

        taken = {"TRANSACTIONAL_ID", "GROUP"}
        granted = [each for each in await target.describe_acls() or () if each.resource_type in taken]
        await retry_admin(lambda: target.delete_acls(granted))
        lacks = {
            "WRITE on --transactional-id 'twinlog-A-B-' --resource-pattern-type prefixed",
            "READ on --group 'twinlog-' --resource-pattern-type prefixed",
            "READ on --group 'billing'",
        }

        async def all_missed() -> bool:
            messages = [each["message"] for each in await findings(file)]
            return all(any(f"lacks {lack} of B" in message for message in messages) for lack in lacks)

        await eventually(all_missed)


async def test_open_clusters_pass_and_one_cluster_twice_does_not(
    kafka_pair: KafkaPair, tmp_path: Path
) -> None:
    a, b = kafka_pair.a.client_properties(), kafka_pair.b.client_properties()
    name = unique_name("preflight-times")
    async with open_cluster("A", a) as source, open_cluster("B", b) as target:
        mine = NewTopic(
            name=name, partition_count=1, replication_factor=1, configs={"message.timestamp.type": STAMPED}
        )
        limits = {"message.timestamp.type": STAMPED, "message.timestamp.before.max.ms": "1000"}
        copy = NewTopic(name=f"A.{name}", partition_count=1, replication_factor=1, configs=limits)
        await retry_admin(lambda: source.create_topics([mine]))
        await retry_admin(lambda: target.create_topics([copy]))
    code, out = await preflight(write(tmp_path, a, b), "-o", "json")
    assert code == 0, "warnings are no errors"
    warnings = [found["message"] for found in json.loads(out) if found["about"] == f"A->B {name}"]
    assert len(warnings) == 3, warnings
    assert "the source stamps records itself" in warnings[0]
    assert "B stamps the copies itself" in warnings[1]
    assert "refuse records over 1000 ms older" in warnings[2]
    (finding,) = await errors(write(tmp_path, a, a))
    assert finding["check"] == "two clusters"


async def test_a_cluster_that_is_away_and_a_wrong_file(kafka_pair: KafkaPair, tmp_path: Path) -> None:
    away = {"bootstrap.servers": "127.0.0.1:1"}
    code, out = await preflight(
        write(tmp_path, kafka_pair.a.client_properties(), away), "-o", "json", "--timeout", "3"
    )
    assert code == 1
    assert [finding["about"] for finding in json.loads(out) if finding["level"] == "error"] == ["B"]
    code, out = await preflight(write(tmp_path, away, away, **{"replication.factor": "many"}))
    assert code == 2
    assert "replication.factor" in out
