"""How commands verify: the code that reads the logs is part of the source service."""

from collections.abc import Callable
from importlib import import_module
from typing import TYPE_CHECKING, Any

from twinlog.cli.common.times import CLOCK
from twinlog.errors import ConfigError

if TYPE_CHECKING:
    from twinlog.verify.report import FlowReport


def engine(module: str) -> Any:
    """A module of the source service, such as `verify.request`. Raises ConfigError if it is not installed."""
    try:
        return import_module(f"twinlog_source.{module}")
    except ModuleNotFoundError as error:
        if error.name is None or not error.name.startswith("twinlog_source"):
            raise
        raise ConfigError(
            "this command needs the package twinlog-source: install it on this machine"
        ) from None


async def verified(
    configuration: Any, request: Any, on_progress: Callable[[Any], None] = lambda _: None
) -> "FlowReport":
    """Raises ConfigError if the request names something that does not exist."""
    verification = engine("verify.engine").Verification(
        configuration=configuration, request=request, clock=CLOCK.get(), on_progress=on_progress
    )
    report: FlowReport = await verification.run()
    return report
