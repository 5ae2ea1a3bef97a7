"""A small OAuth token server of the tests' own, and what brokers need to check its tokens."""

import base64
import json
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import parse_qs

import jwt
from cryptography.hazmat.primitives.asymmetric import rsa

from twinlog.clock import SystemClock

ISSUER, AUDIENCE, CLIENT_ID = "https://id.example/kafka", "kafka", "replicator"
CLIENT_SECRET = "planted+/=secret"
PLANTED = (CLIENT_SECRET, base64.b64encode(f"{CLIENT_ID}:{CLIENT_SECRET}".encode()).decode())
"""What must be seen nowhere."""


@dataclass
class TokenServer:
    """Gives tokens of `lifetime_seconds` to who shows the client's secret or its signed assertion."""

    key: rsa.RSAPrivateKey = field(default_factory=lambda: rsa.generate_private_key(65537, 2048))
    client_key: rsa.RSAPrivateKey = field(default_factory=lambda: rsa.generate_private_key(65537, 2048))
    lifetime_seconds: float = 3600.0
    subject: str = "super"
    outage: int = 0
    """An HTTP status to answer with instead."""
    given: list[str] = field(default_factory=list)
    forms: list[dict[str, str]] = field(default_factory=list)
    url: str = ""

    def token(self, **claims: object) -> str:
        """A token as the server gives it; claims may be replaced."""
        now = SystemClock().now_ms() / 1000
        usual = {
            "iss": ISSUER,
            "aud": AUDIENCE,
            "sub": self.subject,
            "iat": int(now),
            "exp": now + self.lifetime_seconds,
            "jti": str(len(self.given)),
        }
        text: str = jwt.encode({**usual, **claims}, self.key, algorithm="RS256", headers={"kid": "one"})
        return text

    def write_keys(self, file: Path) -> None:
        """The public key as a JWKS."""
        public = json.loads(jwt.algorithms.RSAAlgorithm.to_jwk(self.key.public_key()))
        file.write_text(json.dumps({"keys": [{**public, "kid": "one", "use": "sig", "alg": "RS256"}]}))

    def answer(self, headers: Mapping[str, str], form: dict[str, str]) -> tuple[int, dict[str, object]]:
        self.forms.append(form)
        if self.outage:
            return self.outage, {"error": "temporarily_unavailable", "error_description": CLIENT_SECRET}
        if not self._knows(headers, form):
            return 401, {"error": "invalid_client", "error_description": f"not {CLIENT_SECRET}"}
        self.given.append(self.token())
        return 200, {"access_token": self.given[-1], "token_type": "Bearer", "expires_in": 5}

    def _knows(self, headers: Mapping[str, str], form: dict[str, str]) -> bool:
        assertion = form.get("assertion") or form.get("client_assertion")
        if assertion is None:
            shown = headers.get("Authorization", "").removeprefix("Basic ")
            return base64.b64decode(shown).decode() == f"{CLIENT_ID}:{CLIENT_SECRET}"
        try:
            jwt.decode(
                assertion,
                self.client_key.public_key(),
                algorithms=["RS256"],
                audience=self.url,
                issuer=CLIENT_ID,
            )
        except jwt.InvalidTokenError:
            return False
        return True


def broker_properties(keys: Path) -> dict[str, str]:
    """For the client listener of a cluster: OAUTHBEARER, tokens checked against the JWKS in `keys`."""
    listener, oauth = "listener.name.client.", "listener.name.client.oauthbearer."
    package = "org.apache.kafka.common.security.oauthbearer"
    return {
        f"{listener}sasl.enabled.mechanisms": "OAUTHBEARER",
        f"{oauth}sasl.jaas.config": f"{package}.OAuthBearerLoginModule required;",
        f"{oauth}sasl.server.callback.handler.class": f"{package}.OAuthBearerValidatorCallbackHandler",
        f"{oauth}sasl.oauthbearer.jwks.endpoint.url": keys.as_uri(),
        f"{oauth}sasl.oauthbearer.expected.audience": AUDIENCE,
        f"{oauth}sasl.oauthbearer.expected.issuer": ISSUER,
    }


@contextmanager
def token_server() -> Iterator[TokenServer]:
    """A server on a free port of loopback, in a thread."""
    state = TokenServer()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            length = int(self.headers.get("Content-Length", 0))
            form = {name: values[0] for name, values in parse_qs(self.rfile.read(length).decode()).items()}
            status, content = state.answer(dict(self.headers), form)
            body = json.dumps(content).encode()
            self.send_response(status)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_args: object) -> None:
            """Nothing is printed."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        state.url = f"http://127.0.0.1:{server.server_address[1]}/token"
        thread = threading.Thread(target=server.serve_forever, name="token server", daemon=True)
        thread.start()
        try:
            yield state
        finally:
            server.shutdown()
            thread.join()
