"""The command that helps with an issue. Pure."""

import re
import shlex

from twinlog.cli.common.next_command import next_command

_PLACE = re.compile(r"<[A-Z_>-]+>")
_SHOWS_THE_SAME = "twinlog status"
_RUN = "NO_SERVICE"


def remedy(reason: str, *, flow: str = "", file: str = "") -> str:
    """Empty where a name in it is not known, and where it would only show the status again.

    >>> remedy("KAFKA_UNAVAILABLE", file="mm2.properties")
    'twinlog preflight mm2.properties'
    >>> remedy("KAFKA_UNAVAILABLE")
    ''
    """
    if reason == _RUN:
        return f"twinlog run {shlex.quote(file)}" if file else ""
    told = next_command(reason, {"flow": flow} if flow else {})
    if file:
        told = told.replace("<FILE>", shlex.quote(file))
    return "" if _PLACE.search(told) or told == _SHOWS_THE_SAME else told
