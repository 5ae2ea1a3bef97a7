"""`twinlog explain reason NAME`: what a reason means, and what to do. It asks no service."""

from difflib import get_close_matches
from typing import Annotated

import typer

from twinlog.cli.common.failures import reported_failures
from twinlog.cli.common.output import Output, OutputOption, print_json
from twinlog.errors import ConfigError
from twinlog.kafka.reasons_page import known_reasons


def reason_command(
    name: Annotated[str, typer.Argument(metavar="REASON", help="As in `status`, logs and `-o json`.")],
    output: OutputOption = Output.TABLE,
) -> None:
    """Explain a reason: what it means, and what to do.

    docs/reasons.md has all of them.
    """
    with reported_failures():
        reasons = known_reasons()
        asked = name.upper()
        if asked not in reasons:
            like = get_close_matches(asked, reasons, n=3, cutoff=0.5)
            raise ConfigError(
                f"{name} is not a reason of Twinlog" + (f": {' or '.join(like)}?" if like else ""),
                metadata={"key": "REASON"},
            )
        found = reasons[asked]
        if output is Output.JSON:
            print_json({"reason": asked, **found})
        else:
            typer.echo(f"{asked}\nmeans: {found['meaning']}\ndo:    {found['remedy']}")
