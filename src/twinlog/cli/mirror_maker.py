"""`twinlog mirror-maker`: runs like `kafka-mirror-maker.sh`, with its two files and its options."""

import hashlib
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from twinlog.cli.common.names import MOST_OFFSET, MOST_PARTITION
from twinlog.cli.common.options import flag, option
from twinlog.cli.common.private_file import read_file, write_private
from twinlog.errors import ConfigError

if TYPE_CHECKING:
    from twinlog.properties import Properties


_REFUSED = {
    "--consumer.rebalance.listener": "they are Java classes; Twinlog has no rebalances",
    "--rebalance.listener.args": "there are no rebalance listeners",
    "--blacklist": "it is for Kafka's old consumer: give --include with an expression for the topics to copy",
}


def mirror_maker_command(
    consumer_config: Path = option("--consumer.config FILE", "The consumer's properties: the source."),
    producer_config: Path = option("--producer.config FILE", "The producer's properties: the target."),
    include: str = option("--include --whitelist REGEX", "The topics; a comma separates alternatives."),
    num_streams: int = option(
        "--num.streams N",
        "The largest number of tasks that copy at the same time.",
        1,
        min=1,
        max=MOST_PARTITION,
    ),
    offset_commit_interval_ms: int | None = option(
        "--offset.commit.interval.ms MS",
        "No effect: positions are committed with the records.",
        None,
        hidden=True,
        min=1,
        max=MOST_OFFSET,
    ),
    abort_on_send_failure: str | None = option(
        "--abort.on.send.failure true|false",
        "No effect: no record is skipped; a partition that cannot be written shows a reason.",
        None,
        hidden=True,
    ),
    new_consumer: bool = option(
        "--new.consumer", "No effect: there is only one consumer.", False, hidden=True
    ),
    message_handler: str = option(
        "--message.handler CLASS", "RenameTopicHandler of com.opencore, which renames topics; no other.", ""
    ),
    message_handler_args: str = option("--message.handler.args SOURCE,TARGET;…", "Its new names.", ""),
    rebalance_listener: str = option("--consumer.rebalance.listener CLASS", "Refused.", "", hidden=True),
    rebalance_listener_args: str = option("--rebalance.listener.args ARGS", "Refused.", "", hidden=True),
    blacklist: str = option("--blacklist REGEX", "Refused.", "", hidden=True),
    source_alias: str = option(
        "--source.alias ALIAS",
        "The alias of the source in positions and status. Default: the consumer group.",
        "",
    ),
    set_: list[str] | None = option(
        "--set KEY=VALUE", "A property of Twinlog, such as twinlog.offsets.", None
    ),
    log_format: str | None = option("--log-format auto|json|console", "auto = readable on a terminal.", None),
    dry_run: bool = flag("--dry-run", "Print the properties file and exit."),
) -> None:
    # Hidden is what has no effect or is refused: docs/migration/mirrormaker1.md names it.
    """Copy topics between two clusters as MirrorMaker 1 (kafka-mirror-maker.sh) did, in the foreground.

    Takes MirrorMaker 1's command line. Topics keep their names, and only records are copied. A partition
    begins at the committed offset of the consumer group of --consumer.config (group.id) on the source, or
    else where auto.offset.reset says (default: latest). It waits (START_GROUP_ACTIVE) while the group has
    members: stop MirrorMaker 1 first. From then on positions are stored on the target, and records are
    copied exactly once.

    Different from MirrorMaker 1: records keep their partition, missing topics are created with the
    partitions of the source, and only committed records of transactions are copied, unless isolation.level
    says otherwise.

    The command writes a properties file and prints its name: use it for `twinlog status --config FILE`, and
    to change over to `twinlog run FILE`. --dry-run prints the file and starts nothing.

    Exit codes are those of `twinlog run`.
    """
    from twinlog.imports.mirror_maker1 import MirrorMaker1, mirror_maker_file
    from twinlog.service.runtime import exit_on_signals

    given = {
        "--consumer.rebalance.listener": rebalance_listener,
        "--rebalance.listener.args": rebalance_listener_args,
        "--blacklist": blacklist,
    }
    with exit_on_signals():
        for option, value in given.items():
            if value:
                raise ConfigError(f"{option}: {_REFUSED[option]}", key=option)
        file = mirror_maker_file(
            MirrorMaker1(
                consumer=_read(consumer_config),
                consumer_file=str(consumer_config),
                producer=_read(producer_config),
                producer_file=str(producer_config),
                include=include,
                num_streams=num_streams,
                source_alias=source_alias,
                message_handler=message_handler,
                message_handler_args=message_handler_args,
            )
        )
        if dry_run:
            _require_sound(file.properties)
            typer.echo(file.properties, nl=False)
            return
        path = _write(consumer_config, producer_config, file.properties)
        typer.echo(f"configuration: {path}", err=True)
        from twinlog.supervisor.main import run
        from twinlog.supervisor.plan import RunRequest

        exit_code = run(RunRequest(config=path, overrides=tuple(set_ or ()), log_format=log_format))
    sys.exit(exit_code)


def _read(path: Path) -> "Properties":
    from twinlog.properties import parse

    return parse(read_file(path), file=str(path))


def _require_sound(text: str) -> None:
    """Check it as the services would. Raises ConfigError."""
    from twinlog.config import load
    from twinlog.config.values.providers import LocalFileSystem

    name = Path("mirror-maker.properties")

    class Made(LocalFileSystem):
        def read_bytes(self, path: str) -> bytes:
            return text.encode("ascii") if path == str(name) else super().read_bytes(path)

    load(name, environ=os.environ, files=Made())


def _write(consumer: Path, producer: Path, text: str) -> Path:
    """Write it where the same two files find it again; readable by its owner only, because it may contain
    secrets."""
    from twinlog.machine import state_dir

    names = f"{consumer.resolve()}\n{producer.resolve()}"
    directory = state_dir() / "mirror-maker"
    path = directory / f"{hashlib.sha256(names.encode()).hexdigest()[:12]}.properties"
    try:
        directory.mkdir(parents=True, exist_ok=True, mode=0o700)
        write_private(path, text.encode("ascii"))
    except (OSError, ConfigError) as error:
        why = getattr(error, "strerror", None) or error
        raise ConfigError(f"{directory}: cannot be used: {why}; set XDG_STATE_HOME") from error
    return path
