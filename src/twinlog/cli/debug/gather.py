"""Collects a bundle. Whatever does not answer, or is too slow or too large, is listed as missing; nothing is
raised for it.

The file of a bundle: entries of limited size, without secrets, in one tar.gz.
"""

import asyncio
import io
import json
import os
import platform
import sys
import tarfile
import urllib.request
from collections.abc import Awaitable, Mapping, Sequence
from contextlib import AsyncExitStack, suppress
from dataclasses import dataclass, field
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from twinlog import __version__
from twinlog.cli.common.call import Call
from twinlog.cli.common.fields import as_json
from twinlog.cli.common.location import required_config
from twinlog.cli.common.names import parse_flow
from twinlog.cli.common.private_file import read_file
from twinlog.cli.debug.secrets import (
    Blanker,
    is_secret_file,
    of_environment,
    of_secret_file,
    secrets_of,
    shown_value,
)
from twinlog.cli.source.client import every_partition
from twinlog.cli.source.partitions import partition_fields, worst_first
from twinlog.cli.status import view
from twinlog.config import ClientConfig, Configuration, FlowConfig, Service
from twinlog.config.values.providers import LocalFileSystem, configured_resolver
from twinlog.config.values.reader import ConfigFindings
from twinlog.errors import ConfigError, TwinlogError
from twinlog.kafka.cluster import open_cluster
from twinlog.kafka.ports import KafkaCluster, OffsetSpec
from twinlog.model import TopicPartition
from twinlog.policy import policy_from_config
from twinlog.policy.internal_topics import owners_group
from twinlog.preflight.facts import OwnTopic, own_topics
from twinlog.properties import Property, parse
from twinlog.supervisor.runs import LivingRun, living_runs

MOST_ENTRY_BYTES = 2 << 20
MOST_BYTES = 24 << 20
"""Size of all entries together, before they are compressed."""


@dataclass(slots=True, kw_only=True)
class Archive:
    """Call `add` for what was found and `miss` for what was not, then `content`."""

    blanked: Blanker
    at_seconds: int
    """When it is created, for the times of its entries."""
    entries: dict[str, bytes] = field(default_factory=dict)
    missing: list[dict[str, str]] = field(default_factory=list)
    _bytes: int = 0

    def add(self, name: str, text: str, *, keep_end: bool = False) -> None:
        """Add an entry. A text that is too long is cut to its beginning, or with `keep_end` to its end."""
        content = self.blanked(text).encode("utf-8", "replace")
        room = max(0, min(MOST_ENTRY_BYTES, MOST_BYTES - self._bytes))
        if len(content) > room:
            self.miss(name, "CUT", f"it has {len(content)} bytes; {room} are included")
            content = content[len(content) - room :] if keep_end else content[:room]
        self.entries[name] = content
        self._bytes += len(content)

    def add_json(self, name: str, document: Any) -> None:
        self.add(name, json.dumps(document, indent=1, ensure_ascii=False, default=str) + "\n")

    def miss(self, name: str, reason: str, message: str) -> None:
        """Record why something is missing or incomplete."""
        self.missing.append({"what": name, "reason": reason, "message": self.blanked(message)})

    def content(self, summary: dict[str, Any]) -> bytes:
        """The tar.gz; its first entry is `summary`, with what is missing."""
        first = json.dumps({**summary, "missing": self.missing}, indent=1, ensure_ascii=False, default=str)
        entries = {"summary.json": self.blanked(first).encode() + b"\n", **self.entries}
        whole = io.BytesIO()
        with tarfile.open(fileobj=whole, mode="w:gz") as archive:
            for name, content in entries.items():
                info = tarfile.TarInfo(f"twinlog-debug/{name}")
                info.size, info.mtime, info.mode = len(content), self.at_seconds, 0o600
                archive.addfile(info, io.BytesIO(content))
        return whole.getvalue()


# The start and end of a flow's internal topics, and the owner of the flow, for a bundle.


async def look_at_flow(archive: Archive, name: str, entry: FlowConfig, timeout_seconds: float) -> None:
    """One entry of the bundle. A cluster that does not answer is listed as missing."""
    document: dict[str, Any] = {"flow": str(entry.flow), "clusters": {}, "topics": {}, "owners": {}}
    topics = own_topics(entry, policy_from_config(entry.policy_config))
    for client in (entry.clients.source_admin, entry.clients.target_admin):
        try:
            async with AsyncExitStack() as stack:
                cluster = await stack.enter_async_context(_open(client, timeout_seconds))
                document["clusters"][client.alias] = {
                    "id": await cluster.cluster_id(),
                    "brokers": len(await cluster.brokers()),
                }
                here = [topic for topic in topics if topic.cluster == client.alias]
                document["topics"] |= await _topics(cluster, here)
                if client.alias == entry.flow.target:
                    document["owners"] = await _owners(cluster, entry)
        except TwinlogError as error:
            archive.miss(f"{name}: cluster {client.alias}", error.reason, str(error))
            document["clusters"][client.alias] = {"reason": error.reason, "message": str(error)}
    archive.add_json(name, document)


def _open(client: ClientConfig, timeout_seconds: float) -> KafkaCluster:
    return open_cluster(
        client.alias, client.properties, timeout_seconds=timeout_seconds, client_id_suffix="debug"
    )


async def _topics(cluster: KafkaCluster, topics: list[OwnTopic]) -> dict[str, Any]:
    names = [topic.name for topic in topics]
    described = await cluster.describe_topics(names)
    configs = await cluster.describe_topic_configs(names, keys=("cleanup.policy", "min.insync.replicas"))
    found: dict[str, Any] = {}
    for topic in topics:
        about, settings = described[topic.name], configs.get(topic.name, ())
        key = f"{topic.cluster}: {topic.name}"
        if isinstance(about, TwinlogError):
            found[key] = {"reason": about.reason, "message": str(about)}
            continue
        partitions = [TopicPartition(topic.name, number) for number in range(about.partition_count)]
        found[key] = {
            "id": about.topic_id,
            "partitions": about.partition_count,
            "replication_factor": about.replication_factor,
            "configs": {}
            if isinstance(settings, TwinlogError)
            else {setting.name: setting.value for setting in settings},
            "begins": _offsets(await cluster.list_offsets(OffsetSpec.EARLIEST, partitions)),
            "stable_to": _offsets(await cluster.list_offsets(OffsetSpec.LAST_STABLE, partitions)),
            "ends": _offsets(await cluster.list_offsets(OffsetSpec.LATEST, partitions)),
        }
    return found


async def _owners(cluster: KafkaCluster, entry: FlowConfig) -> dict[str, Any]:
    groups = {owners_group(str(service), entry.flow.target): str(service) for service in Service}
    return {
        groups[group]: {"reason": found.reason, "message": str(found)}
        if isinstance(found, TwinlogError)
        else {"group": group, "state": found.state, "members": found.member_count}
        for group, found in (await cluster.describe_groups(groups)).items()
    }


def _offsets(answers: Mapping[TopicPartition, Any]) -> list[Any]:
    return [
        answer.reason if isinstance(answer, TwinlogError) else answer for _, answer in sorted(answers.items())
    ]


STEP_SECONDS = 20.0
"""The time-out of each part; all parts are collected concurrently."""
MOST_PARTITIONS = 5_000
MOST_FLOWS = 20
_LOG_BYTES = 1 << 20
_SECRET_FILE_BYTES = 64 << 10
_NO_PROXY = urllib.request.build_opener(urllib.request.ProxyHandler({}))
"""Services are called directly: a proxy of the environment is for other networks."""
_PACKAGES = (
    "twinlog", "twinlog-core", "twinlog-service", "twinlog-source", "twinlog-checkpoint", "twinlog-heartbeat",
    "twinlog-configsync", "aiokafka", "kio", "grpcio", "protobuf", "pyspark", "typer", "aiohttp",
)  # fmt: skip


async def gather(call: Call, logs: Sequence[Path], environment: Mapping[str, str], now_ms: int) -> bytes:
    """The bundle. Raises ConfigError for a file that cannot be read."""
    config = required_config(call.config)
    written = _written(config)
    secrets = [*written, *_filled(config, environment, written), *of_environment(environment)]
    problem: ConfigError | None = None
    configuration: Configuration | None = None
    try:
        configuration = call.configuration
        secrets += _resolved(configuration)
    except ConfigError as error:
        problem = error
    secrets += _in_files(secrets)
    archive = Archive(blanked=Blanker(secrets_of(secrets)), at_seconds=now_ms // 1000)
    _add_configuration(archive, written, problem)
    run = next((each for each in living_runs() if each.is_of(config)), None)
    steps: dict[str, Awaitable[None]] = {
        "status.json": _status(archive, call),
        "metrics": _metrics(archive, configuration, run),
    }
    flows = () if configuration is None else configuration.enabled_flows
    for entry in flows[:MOST_FLOWS]:
        name = str(entry.flow).replace("->", "-to-").replace("/", "_")
        steps[f"internal-topics/{name}.json"] = look_at_flow(
            archive, f"internal-topics/{name}.json", entry, STEP_SECONDS / 2
        )
        steps[f"partitions/{name}.json"] = _partitions(
            archive, f"partitions/{name}.json", str(entry.flow), call, now_ms
        )
    if len(flows) > MOST_FLOWS:
        archive.miss(
            "flows", "CUT", f"{len(flows)} flows are configured; the first {MOST_FLOWS} are included"
        )
    async with asyncio.TaskGroup() as group:
        for name, step in steps.items():
            group.create_task(_bounded(archive, name, step), name=f"collect {name}")
    await asyncio.to_thread(_add_logs, archive, logs, run)
    return archive.content(
        {
            "twinlog": __version__,
            "made_at_ms": now_ms,
            "config": str(config),
            "runs_here": run is not None,
            "python": sys.version,
            "platform": platform.platform(),
            "packages": _packages(),
            "flows": [str(entry.flow) for entry in flows],
        }
    )


async def _bounded(archive: Archive, name: str, step: Awaitable[None]) -> None:
    try:
        async with asyncio.timeout(STEP_SECONDS):
            await step
    except TimeoutError:
        archive.miss(name, "KAFKA_TIMEOUT", f"not collected within {STEP_SECONDS:g} s")
    except TwinlogError as error:
        archive.miss(name, error.reason, str(error))


def _written(config: Path) -> list[tuple[str, str]]:
    """The properties of the file as written. Raises ConfigError."""
    entries = parse(read_file(config), file=str(config)).entries
    return [(key, entry.value.strip()) for key, entry in entries.items()]


def _filled(
    config: Path, environment: Mapping[str, str], written: list[tuple[str, str]]
) -> list[tuple[str, str]]:
    """The values of references, also in a file that does not load."""
    settings = {key: Property(key=key, value=value) for key, value in written}
    resolver = configured_resolver(
        settings,
        environ=environment,
        files=LocalFileSystem(),
        findings=ConfigFindings(file=str(config)),
    )
    return [
        (key, filled)
        for key, value in written
        if "${" in value and (filled := resolver.filled(value)) is not None
    ]


def _in_files(properties: list[tuple[str, str]]) -> list[tuple[str, str]]:
    """The secrets in files that properties name."""
    found: list[tuple[str, str]] = []
    for name in {value for key, value in properties if is_secret_file(key)}:
        with suppress(OSError, ValueError):
            file = Path(name)
            if file.is_file():
                with file.open("rb") as stream:
                    found += of_secret_file(stream.read(_SECRET_FILE_BYTES).decode("utf-8", "replace"))
    return found


def _resolved(configuration: Configuration) -> list[tuple[str, str]]:
    """The values of the references in the file."""
    found: list[tuple[str, str]] = list(configuration.spark.conf.items())
    for cluster in configuration.clusters.values():
        for client in (cluster.admin, cluster.consumer, cluster.producer):
            found += client.properties.items()
    for flow in configuration.flows:
        clients = flow.clients
        for client in (clients.source_consumer, clients.source_admin, clients.target_admin):
            found += client.properties.items()
        for client in (clients.data_producer, clients.target_consumer, clients.target_producer):
            found += client.properties.items()
    return found


def _add_configuration(archive: Archive, written: list[tuple[str, str]], problem: ConfigError | None) -> None:
    shown = [f"{key} = {shown_value(key, value)}\n" for key, value in written]
    archive.add("configuration.properties", "".join(shown))
    if problem is not None:
        archive.miss("configuration", problem.reason, str(problem))


async def _status(archive: Archive, call: Call) -> None:
    status = await call.status(STEP_SECONDS / 2)
    archive.add_json("status.json", view.as_json(status))
    for row in status.services:
        if row.reason:
            archive.miss(f"service {row.name}", row.reason, row.message)


async def _partitions(archive: Archive, name: str, flow: str, call: Call, now_ms: int) -> None:
    async with call.services() as at:
        found = await every_partition(at.source, parse_flow(flow), "")
    if len(found) > MOST_PARTITIONS:
        archive.miss(name, "CUT", f"{len(found)} partitions; {MOST_PARTITIONS} are included")
    fields = partition_fields(now_ms)
    archive.add_json(name, [as_json(fields, each) for each in worst_first(found)[:MOST_PARTITIONS]])


async def _metrics(archive: Archive, configuration: Configuration | None, run: LivingRun | None) -> None:
    addresses = {} if run is None else dict(run.metrics)
    if not addresses and configuration is not None:
        addresses = {
            str(service): str(entry.metrics_listen.dialled_from_here())
            for service, entry in configuration.endpoints.items()
            if entry.metrics_listen is not None
        }
    async with asyncio.TaskGroup() as group:
        for service, address in addresses.items():
            group.create_task(_scrape(archive, service, address), name=f"metrics of {service}")


async def _scrape(archive: Archive, service: str, address: str) -> None:
    name = f"metrics/{service}.txt"

    def read() -> bytes:
        with _NO_PROXY.open(f"http://{address}/metrics", timeout=STEP_SECONDS / 2) as answer:
            content: bytes = answer.read(MOST_ENTRY_BYTES + 1)
            return content

    try:
        archive.add(name, (await asyncio.to_thread(read)).decode("utf-8", "replace"))
    except (OSError, ValueError) as error:
        archive.miss(name, "PEER_UNAVAILABLE", f"http://{address}/metrics: {error}")


def _add_logs(archive: Archive, named: Sequence[Path], run: LivingRun | None) -> None:
    files = list(dict.fromkeys(file.absolute() for file in named))
    if run is not None:
        # `twinlog run` logs to where its caller redirected it: a file can be found, a terminal or a pipe
        # cannot.
        for number in (2, 1):
            with suppress(OSError):
                file = Path(f"/proc/{run.pid}/fd/{number}").readlink()
                if file.is_file() and file not in files:
                    files.append(file)
    if not files:
        archive.miss("logs", "NOT_FOUND", "name the services' logs with --log FILE")
    for index, file in enumerate(files):
        name = f"logs/{index}-{file.name}"
        if file.exists() and not file.is_file():
            archive.miss(name, "NOT_FOUND", f"{file}: not a file")  # Reading a pipe could take for ever.
            continue
        try:
            archive.add(name, _tail(file), keep_end=True)
        except OSError as error:
            archive.miss(name, "NOT_FOUND", f"{file}: {error.strerror or error}")


def _tail(file: Path) -> str:
    """The last megabyte, from the beginning of a line."""
    with file.open("rb") as stream:
        end = stream.seek(0, os.SEEK_END)
        stream.seek(max(0, end - _LOG_BYTES))
        content = stream.read(_LOG_BYTES)
    if end > _LOG_BYTES:
        content = content.partition(b"\n")[2]
    return content.decode("utf-8", "replace")


def _packages() -> dict[str, Any]:
    found: dict[str, Any] = {}
    for package in _PACKAGES:
        try:
            found[package] = version(package)
        except PackageNotFoundError:
            found[package] = None
    return found
