"""What others learn of the owner of a flow: its address, and whether it selects the same."""

import socket
from collections.abc import Coroutine
from pathlib import Path
from typing import Any

import pytest

from twinlog.config import Address, load
from twinlog.errors import StateError
from twinlog.service.owner.lease import LeaseState
from twinlog.service.owner.name import OwnerName, own_address, selection_fingerprint
from twinlog.testing.broker import FakeKafka
from unit.service.owner.lease_rig import FLOW, Process, running, until


async def _refused(step: Coroutine[Any, Any, None]) -> str:
    with pytest.raises(StateError) as refused:
        await step
    return refused.value.reason


@pytest.mark.parametrize(
    ("owner", "reason"),
    [
        ("host:1, process 7, rules aaaa", "OWNED_ELSEWHERE"),
        ("host:1, process 7", "OWNED_ELSEWHERE"),
        ("host:1, process 7, rules bbbb", "TWIN_DEPLOYMENT"),
    ],
)
async def test_a_deployment_that_selects_something_else_is_named_as_a_twin(owner: str, reason: str) -> None:
    async with FakeKafka() as kafka, running(first := Process(owner, kafka)):
        await until(lambda: first.lease.state is LeaseState.OWNER)
        async with running(second := Process("host:2, process 8, rules aaaa", kafka)):
            await until(lambda: second.lease.state is LeaseState.ELSEWHERE)
            refusal = second.lease.refusal()
            assert refusal is not None
            assert refusal.reason == reason
            assert OwnerName.parse(owner).process in str(refusal)


def test_the_fingerprint_is_of_what_the_file_selects(tmp_path: Path) -> None:
    def fingerprint(**settings: str) -> str:
        file = tmp_path / "mm2.properties"
        values = {
            "clusters": "A, B",
            "A.bootstrap.servers": "a:9092",
            "B.bootstrap.servers": "b:9092",
            "A->B.enabled": "true",
            **settings,
        }
        file.write_text("\n".join(f"{key} = {value}" for key, value in values.items()))
        return selection_fingerprint(load(file, environ={}).flow(FLOW))

    first = fingerprint(topics="a, b", groups="g")
    assert fingerprint(topics="b, a", groups="g") == first
    assert fingerprint(topics="b, a", groups="g", **{"replication.factor": "2"}) == first
    assert fingerprint(topics="a", groups="g") != first
    assert fingerprint(topics="a, b", groups="h") != first


@pytest.mark.parametrize(
    ("owner", "address"),
    [
        ("box:17404, process 7, at box-0.pods:17404, rules aaaa", "box-0.pods:17404"),
        ("elsewhere:17404, process 7, at 127.0.0.1:17404, rules aaaa", None),
        (f"{socket.gethostname()}:17404, process 7, at 127.0.0.1:17404, rules aaaa", "127.0.0.1:17404"),
        ("box:17404, process 7, rules aaaa", None),
        ("box:17404, process 7, at evil host/x:1, rules aaaa", None),
    ],
)
async def test_a_refusal_names_the_address_at_which_the_owner_is_called(
    owner: str, address: str | None
) -> None:
    async with FakeKafka() as kafka, running(first := Process(owner, kafka)):
        await until(lambda: first.lease.state is LeaseState.OWNER)
        async with running(second := Process("mine, rules aaaa", kafka)):
            await until(lambda: second.lease.state is LeaseState.ELSEWHERE)
            refusal = second.lease.refusal()
            assert refusal is not None
            assert refusal.metadata.get("owner_address") == address


@pytest.mark.parametrize(
    ("endpoint", "listen", "address"),
    [
        ("source-0.pods:17401", "0.0.0.0:17401", "source-0.pods:17401"),
        ("source-0.pods:0", "0.0.0.0:0", "source-0.pods:5"),
        ("127.0.0.1:17401", "0.0.0.0:17401", "box:5"),
        ("127.0.0.1:17401", "127.0.0.1:0", "127.0.0.1:5"),
    ],
)
def test_an_owner_is_called_where_the_file_says_that_it_is(endpoint: str, listen: str, address: str) -> None:
    places = {"endpoint": Address.parse(endpoint), "listen": Address.parse(listen)}
    assert own_address(**places, port=5, host="box") == address
