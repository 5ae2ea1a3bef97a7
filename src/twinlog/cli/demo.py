"""`twinlog demo`."""

import asyncio
import logging

import typer

from twinlog.cli.common.options import flag


def demo_command(
    keep: bool = flag("--keep", "Keep clusters and services running, and print how to connect."),
    ui: bool = flag("--ui", "Also show the live page, in a browser if there is one."),
    transform: bool = flag("--transform", "Also filter and mask the records of a topic with Spark SQL."),
) -> None:
    """Run two real Kafka clusters and four services, and fail a consumer group over: about a minute.

    Exit code 0 only if every record was copied exactly once, and the group continued at exactly its next
    record.
    """
    from rich.console import Console

    from twinlog.cli.common.failures import RUN, help_after
    from twinlog.demo.story import tell
    from twinlog.errors import TwinlogError

    console = Console()
    # The clients' messages about coordinators that are still starting would look like our errors.
    logging.getLogger("aiokafka").setLevel(logging.CRITICAL)
    try:
        held = RUN.get()(tell(console, keep=keep, ui=ui, transform=transform))
    except TwinlogError as error:
        console.print(f"[bold red]The demo could not continue:[/] {error}")
        console.print(f"next: {help_after(error)}")
        raise typer.Exit(1) from error
    except asyncio.CancelledError:
        raise typer.Exit(0 if keep else 130) from None
    raise typer.Exit(0 if held else 1)
