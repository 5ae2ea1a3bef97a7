"""Channels of a service to others."""

from contextlib import AsyncExitStack
from pathlib import Path

import pytest

from twinlog.config.security import PeerSecurity
from twinlog.errors import ConfigError
from twinlog.service.peers import Peers


async def test_a_token_goes_without_tls_to_no_process_that_only_a_group_names(tmp_path: Path) -> None:
    """Whoever may join the group of a flow may name a port of this machine."""
    token = tmp_path / "token"
    token.write_text("secret")
    async with AsyncExitStack() as stack:
        peers = Peers({}, stack, security=lambda _: PeerSecurity(token_file=str(token)))
        with pytest.raises(ConfigError) as refused:
            peers.open_process("source", "127.0.0.1:7401")
    assert refused.value.reason == "TOKEN_NEEDS_TLS"
