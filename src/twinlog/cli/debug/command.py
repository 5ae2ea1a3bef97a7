"""`twinlog debug bundle`."""

import os
from datetime import UTC, datetime
from pathlib import Path

import typer

from twinlog.cli.common.call import Call, command
from twinlog.cli.common.location import required_config
from twinlog.cli.common.names import CLOCK
from twinlog.cli.common.options import option
from twinlog.cli.common.private_file import refuse_to_replace, write_private

_GZIP = b"\x1f\x8b"

app = typer.Typer(no_args_is_help=True, add_completion=False, help="Collect what a bug report needs.")


@app.callback()
def debug() -> None:
    """Collect what a bug report needs."""


@app.command("bundle")
@command
def bundle_command(
    call: Call,
    file: Path | None = option("--file FILE", "The file to write; default: twinlog-debug-TIME.tar.gz.", None),
    log: list[Path] | None = option(
        "--log FILE",
        "A log file of a service, whose last megabyte is included. May be repeated. If `twinlog run`"
        " on this machine logs to a file, the command finds it by itself.",
        None,
    ),
) -> None:
    """Write configuration, versions, states, metrics, logs and ends of the internal topics into one tar.gz.

    Secrets are left out: only harmless keys show their value, all others are `***`, and every secret of the
    file is removed wherever it occurs. Names of topics, groups and hosts are in the bundle. If a service or a
    cluster does not answer, summary.json names it, and the bundle has the rest. It takes at most a minute and
    24 MB.
    """
    required_config(call.config)
    from twinlog.cli.debug.gather import gather

    now_ms = CLOCK.get().now_ms()
    target = file or Path(f"twinlog-debug-{datetime.fromtimestamp(now_ms / 1000, UTC):%Y%m%dT%H%M%S}.tar.gz")
    refuse_to_replace(target, begins=_GZIP)
    content = call.run(gather(call, log or (), os.environ, now_ms))
    write_private(target, content)
    told = f"wrote {target} ({len(content)} bytes): read its summary.json before you send it"
    call.tell({"file": str(target), "bytes": len(content)}, lambda: typer.echo(told))
