"""A token server whose gateway breaks off in the middle of an error: the token is used until it expires."""

import socketserver
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from twinlog.kafka.security.access import TokenKeeper
from twinlog.kafka.security.oauth.fetching import fetch_token
from twinlog.kafka.security.oauth.reading import Grant, OAuthLogin, Token, TokenError

BODIES = {
    "a clean answer": b"Content-Length: 2\r\n\r\n{}",
    "a chunk that is cut off": b"Transfer-Encoding: chunked\r\n\r\n40\r\nabc",
    "a body that never ends": b"Content-Length: 500\r\n\r\nabc",
}
LIFE_SECONDS = 100.0


@contextmanager
def gateway(body: bytes, *, closes: bool) -> Iterator[str]:
    """Answers each request with 503 and this body."""
    over = threading.Event()

    class Handler(socketserver.BaseRequestHandler):
        def handle(self) -> None:
            self.request.recv(65_536)
            self.request.sendall(b"HTTP/1.1 503 Service Unavailable\r\n" + body)
            if not closes:
                over.wait()

    with socketserver.ThreadingTCPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever, name="gateway", daemon=True)
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_address[1]}/token"
        finally:
            over.set()
            server.shutdown()
            thread.join()


@pytest.mark.parametrize("kind", sorted(BODIES))
def test_a_token_is_used_until_it_expires_however_the_token_server_fails(kind: str) -> None:
    with gateway(BODIES[kind], closes=kind != "a body that never ends") as url:
        login = OAuthLogin(
            grant=Grant.CLIENT_SECRET, endpoint=url, client_id="a", client_secret="b", timeout_seconds=0.5
        )
        given = [Token(text="first", expires_at=LIFE_SECONDS)]
        now = [0.0]

        def fetch(login: OAuthLogin, at: float) -> Token:
            return given.pop() if given else fetch_token(login, lambda: None, at)

        keeper = TokenKeeper(login, fetch, clock=lambda: now[0], chance=lambda: 0.0)
        assert keeper.token().text == "first"
        now[0] = LIFE_SECONDS - 15
        assert keeper.token().text == "first"
        outlook = keeper.outlook()
        assert outlook is not None
        assert outlook.failing
        now[0] = LIFE_SECONDS + 100
        with pytest.raises(TokenError, match="answered 503"):
            keeper.token()
