"""`twinlog decode`: the content of an internal topic in the output format of MM2's formatters."""

import asyncio
from collections.abc import Callable
from pathlib import Path

import typer

from twinlog.cli.common.call import Call, reading_clusters
from twinlog.cli.common.failures import tell
from twinlog.cli.common.fields import print_json_line
from twinlog.cli.common.options import argument, flag, option
from twinlog.cli.common.private_file import read_file
from twinlog.cli.decoding import TopicKind, decode, kind_of
from twinlog.config import Configuration
from twinlog.errors import ConfigError, NotFoundError, TwinlogError, WireFormatError
from twinlog.kafka.cluster import open_cluster
from twinlog.kafka.ports import KafkaCluster, ManagedReader, OffsetSpec
from twinlog.kafka.reasons import KafkaReason
from twinlog.kafka.whole_logs import known_offsets, records_to
from twinlog.model import Record, TopicPartition
from twinlog.policy import ReplicationPolicy, policy_from_config
from twinlog.printable import printable
from twinlog.properties import parse
from twinlog.service.waiting import wait_or_stop

_TIMEOUT_SECONDS = 10.0


@reading_clusters
def decode_command(
    call: Call,
    topic: str = argument("TOPIC", "The topic's name on its cluster."),
    cluster: str | None = option("--cluster ALIAS", "The alias of the cluster that holds the topic.", None),
    bootstrap_server: str | None = option(
        "--bootstrap-server HOST:PORT,…", "The brokers, if you give no --config.", None
    ),
    command_config: Path | None = option(
        "--command-config FILE",
        "Its client properties: security.protocol, sasl.*, ssl.*",
        None,
    ),
    kind: TopicKind | None = option("--kind", "What the topic holds, if its name does not show it.", None),
    follow: bool = flag("--follow -f", "Wait for more records, until Ctrl-C."),
    from_beginning: bool = option(
        "--from-beginning/--from-end", "Begin at the first record, or at the end of the log.", True
    ),
) -> None:
    """Print the records of an internal topic: offset syncs, checkpoints, heartbeats, positions, and what
    configsync and failovers record.

    The lines are those of MM2's formatters, so scripts that read them keep working. Say where the topic is
    with --config and --cluster, or with --bootstrap-server (and --command-config when the cluster is
    secured).

    -o json prints one document per line (for `jq`, or `python -m json.tool --json-lines`).

    A record that cannot be read is reported on stderr with its offset; the others are printed.
    """
    configuration = None if call.config is None or bootstrap_server is not None else call.configuration
    alias, properties = _cluster_properties(configuration, cluster, bootstrap_server, command_config)
    wanted = kind if kind is not None else kind_of(topic, _policies(configuration))

    def print_record(partition: TopicPartition, record: Record) -> None:
        place = {name: getattr(record, name) for name in ("offset", "timestamp_ms")}
        document = {"record": {"partition": partition.partition, **place}, "kind": str(wanted)}
        try:
            decoded = decode(wanted, record)
        except WireFormatError as error:
            where = {"topic": topic, "partition": str(partition.partition), "offset": str(record.offset)}
            told = f"{partition} offset {record.offset}: unreadable: {error}"
            tell(WireFormatError(told, reason=error.reason, metadata={**error.metadata, **where}), told)
            if call.in_json:
                print_json_line({**document, "error": str(error)})
            return
        if call.in_json:
            print_json_line({**document, "value": decoded.fields})
        else:
            typer.echo(printable(decoded.line))

    async def read() -> None:
        async with open_cluster(alias, properties, timeout_seconds=_TIMEOUT_SECONDS) as opened:
            await read_topic(opened, topic, print_record, from_beginning=from_beginning, follow=follow)

    call.run(read())


def _cluster_properties(
    configuration: "Configuration | None",
    alias: str | None,
    bootstrap_server: str | None,
    command_config: Path | None,
) -> tuple[str, dict[str, str]]:
    if bootstrap_server is not None:
        security = {} if command_config is None else _read_properties(command_config)
        return alias or bootstrap_server, {**security, "bootstrap.servers": bootstrap_server}
    if configuration is None:
        raise ConfigError("name the cluster: --config FILE with --cluster ALIAS, or --bootstrap-server")
    known = ", ".join(configuration.clusters)
    if alias is None:
        raise ConfigError(f"say which cluster holds the topic with --cluster; there are {known}")
    if alias not in configuration.clusters:
        raise ConfigError(
            f"{configuration.file}: there is no cluster {alias}; there are {known}",
            metadata={"cluster": alias},
        )
    return alias, dict(configuration.clusters[alias].consumer.properties)


def _read_properties(path: Path) -> dict[str, str]:

    entries = parse(read_file(path), file=str(path)).entries
    return {key: each.value.strip() for key, each in entries.items()}


def _policies(configuration: "Configuration | None") -> "list[ReplicationPolicy]":
    """The policies of the configured flows, and MM2's default one."""
    configs = [{}] if configuration is None else [*(flow.policy_config for flow in configuration.flows), {}]
    return [policy_from_config(config) for config in configs]


# Reads a whole topic: every partition from its first record to its end, or without end.

_MAX_WAIT_SECONDS = 1.0
_RETRY_SECONDS = 1.0

OnRecord = Callable[[TopicPartition, Record], None]


async def read_topic(
    cluster: KafkaCluster, topic: str, on_record: OnRecord, *, from_beginning: bool, follow: bool
) -> None:
    """Call `on_record` with each committed record, partition by partition; then, with `follow`, as they
    arrive.

    Raises NotFoundError when the topic does not exist, KafkaError when the cluster does not answer.
    """
    description = (await cluster.describe_topics([topic]))[topic]
    if isinstance(description, TwinlogError):
        if description.reason == KafkaReason.TOPIC_UNKNOWN:
            raise NotFoundError(f"there is no topic {topic} on this cluster", metadata={"topic": topic})
        raise description
    partitions = [TopicPartition(topic, number) for number in range(description.partition_count)]
    ends = await known_offsets(cluster, OffsetSpec.LAST_STABLE, partitions)
    positions = await known_offsets(cluster, OffsetSpec.EARLIEST, partitions) if from_beginning else ends
    async with cluster.reader(read_committed=True) as reader:
        for partition in partitions:
            async for record in records_to(reader, partition, positions[partition], ends[partition]):
                on_record(partition, record)
        if follow:
            async with asyncio.TaskGroup() as group:
                for partition in partitions:
                    group.create_task(
                        _follow(reader, partition, ends[partition], on_record),
                        name=f"follow {partition}",
                    )


async def _follow(reader: ManagedReader, partition: TopicPartition, offset: int, on_record: OnRecord) -> None:
    never = asyncio.Event()
    while True:
        try:
            fetched = await reader.fetch(partition, offset, max_wait_seconds=_MAX_WAIT_SECONDS)
        except TwinlogError as error:
            if not error.retriable:
                raise
            tell(error, f"{partition}: {error}; trying again")
            await wait_or_stop(never, _RETRY_SECONDS)
            continue
        for record in fetched.records:
            on_record(partition, record)
        offset = fetched.next_offset
