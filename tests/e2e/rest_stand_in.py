"""The HTTP port of a product that cannot be run here: answers that it would give, and what it was asked."""

import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


@dataclass(frozen=True, slots=True, kw_only=True)
class RestStandIn:
    address: str
    """`HOST:PORT`."""
    asked: list[str] = field(default_factory=list)
    """`GET /topics`, in their order."""


@contextmanager
def rest_stand_in(answers: Mapping[str, str]) -> Iterator[RestStandIn]:
    """Answers 200 with the text of `METHOD PATH`, 404 to everything else."""

    class Handler(BaseHTTPRequestHandler):
        def _answer(self) -> None:
            asked = f"{self.command} {self.path}"
            stand_in.asked.append(asked)
            content = answers.get(asked, "").encode()
            self.send_response(200 if asked in answers else 404)
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

        do_GET = do_PUT = do_DELETE = _answer  # noqa: N815 (names of the standard library)

        def log_message(self, *_: object) -> None:
            """Nothing to a test's output."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    stand_in = RestStandIn(address=f"127.0.0.1:{server.server_address[1]}")
    thread = threading.Thread(target=server.serve_forever, name="rest-stand-in")
    thread.start()
    try:
        yield stand_in
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
