"""Reads answers of HTTP servers with limits on size and time."""

import time
import urllib.request
from typing import Any, Protocol


class NoRedirects(urllib.request.HTTPRedirectHandler):
    """Refuses redirects: a secret is only sent to the server that was configured, and only it names keys."""

    def redirect_request(self, *_args: Any, **_kwargs: Any) -> None:
        return None


class _Answer(Protocol):
    """An HTTPResponse, or an HTTPError around one."""

    def read1(self, amt: int, /) -> bytes: ...


def read_answer(answer: _Answer, *, most_bytes: int, seconds: float) -> bytes:
    """The body, or its first `most_bytes`. Blocks. Raises TimeoutError: the socket's own time-out begins
    again with each byte, so a slow server could be read for ever."""
    until = time.monotonic() + seconds
    found = b""
    while len(found) < most_bytes:
        part = answer.read1(most_bytes - len(found))
        if not part:
            break
        if time.monotonic() > until:
            raise TimeoutError(f"its answer took longer than {seconds:g} s")
        found += part
    return found
