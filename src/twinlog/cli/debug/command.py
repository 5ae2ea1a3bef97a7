"""`twinlog debug bundle`."""

import os
from datetime import UTC, datetime
from pathlib import Path

import typer

from twinlog.cli.common.failures import reported_failures, run_async
from twinlog.cli.common.location import ConfigOption, EndpointOption, load_config, required_config
from twinlog.cli.common.options import option
from twinlog.cli.common.output import Output, OutputOption, print_json
from twinlog.cli.common.private_file import refuse_to_replace, write_private
from twinlog.cli.common.times import CLOCK

_GZIP = b"\x1f\x8b"

app = typer.Typer(no_args_is_help=True, add_completion=False, help="Collect what a bug report needs.")


@app.callback()
def debug() -> None:
    """Collect what a bug report needs."""


@app.command("bundle")
def bundle_command(
    config: ConfigOption = None,
    endpoint: EndpointOption = None,
    file: Path | None = option("--file FILE", "The file to write; default: twinlog-debug-TIME.tar.gz.", None),
    log: list[Path] | None = option(
        "--log FILE",
        "A log file of a service, whose last megabyte is included. May be repeated. If `twinlog run`"
        " on this machine logs to a file, the command finds it by itself.",
        None,
    ),
    output: OutputOption = Output.TABLE,
) -> None:
    """Write configuration, versions, states, metrics, logs and ends of the internal topics into one tar.gz.

    Secrets are left out: only harmless keys show their value, all others are `***`, and every secret of the
    file is removed wherever it occurs. Names of topics, groups and hosts are in the bundle. If a service or a
    cluster does not answer, summary.json names it, and the bundle has the rest. It takes at most a minute and
    24 MB.

    Example: twinlog debug bundle --config mm2.properties --log /var/log/twinlog.log
    """
    with reported_failures():
        config = required_config(config)
        from twinlog.cli.debug.gather import Request, gather

        now_ms = CLOCK.get().now_ms()
        request = Request(
            config=config, endpoints=endpoint, logs=log or (), environment=os.environ, now_ms=now_ms
        )
        target = file or Path(
            f"twinlog-debug-{datetime.fromtimestamp(now_ms / 1000, UTC):%Y%m%dT%H%M%S}.tar.gz"
        )
        refuse_to_replace(target, begins=_GZIP)
        content = run_async(gather(request, load_config))
        write_private(target, content)
        if output is Output.JSON:
            print_json({"file": str(target), "bytes": len(content)})
        else:
            typer.echo(f"wrote {target} ({len(content)} bytes): read its summary.json before you send it")
