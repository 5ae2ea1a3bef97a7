"""What a process is called in its group, for people and for callers."""

import hashlib
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Final, TypeGuard

from twinlog.config import Address, FlowConfig
from twinlog.errors import StateError, TwinlogError
from twinlog.model import Flow


class OwnerReason(StrEnum):
    """Why a call is refused: another process owns the flow."""

    OWNED_ELSEWHERE = "OWNED_ELSEWHERE"
    """A process of this deployment."""
    TWIN_DEPLOYMENT = "TWIN_DEPLOYMENT"
    """A process of another deployment, whose file selects other topics or groups."""


STANDS_BY: Final = frozenset(OwnerReason)

OWNER_ADDRESS: Final = "owner_address"
"""Metadata of such a refusal: HOST:PORT of the owner, when callers may repeat the call there."""


def is_elsewhere(refusal: TwinlogError | None) -> TypeGuard[TwinlogError]:
    return refusal is not None and refusal.reason == OwnerReason.OWNED_ELSEWHERE


def one_of_each_owner(refusals: Mapping[Flow, TwinlogError | None]) -> list[Flow]:
    """A flow of each other process that owns some of these; None: none of them."""
    away = {flow: each for flow, each in refusals.items() if is_elsewhere(each)}
    return sorted({each.metadata.get(OWNER_ADDRESS): flow for flow, each in away.items()}.values())


_ADDRESS: Final = ", at "
_RULES: Final = ", rules "
"""The last part, because earlier releases take everything after it for the fingerprint."""
_CALLABLE: Final = re.compile(r"(\[[0-9A-Fa-f:.]+\]|[A-Za-z0-9]([A-Za-z0-9._-]*[A-Za-z0-9])?):[0-9]{1,5}")
_MOST_CHARACTERS: Final = 300


@dataclass(frozen=True, slots=True, kw_only=True)
class OwnerName:
    """The parts of an owner's name; those that its release does not send are empty."""

    process: str
    """`host:port, process 7`."""
    address: str = ""
    """HOST:PORT for calls."""
    rules: str = ""
    """Fingerprint of the selection in its file."""

    def __str__(self) -> str:
        """
        >>> str(OwnerName(process="box:17404, process 7", address="box:17404", rules="ab12"))
        'box:17404, process 7, at box:17404, rules ab12'
        """
        address = f"{_ADDRESS}{self.address}" if self.address else ""
        return f"{self.process}{address}{_RULES}{self.rules}"

    @classmethod
    def parse(cls, text: str) -> "OwnerName":
        """Read a name from any text: what is no address that can be called counts as none.

        >>> OwnerName.parse("box:17404, process 7, rules ab12").address
        ''
        """
        told, _, rules = text.partition(_RULES)
        process, _, address = told.partition(_ADDRESS)
        usable = len(address) <= _MOST_CHARACTERS and _CALLABLE.fullmatch(address)
        return cls(process=process, address=address if usable else "", rules=rules)

    @property
    def called(self) -> set[str]:
        """What people may call this process.

        >>> sorted(OwnerName(process="box:17404, process 7").called)
        ['box', 'box:17404', 'box:17404, process 7']
        """
        place = self.process.partition(", ")[0]
        return {self.process, place, place.rpartition(":")[0], self.address} - {""}

    def with_rules(self, rules: str) -> "OwnerName":
        return replace(self, rules=rules)

    def address_from(self, host: str) -> str:
        """The owner's address for a caller of a process on `host`; empty when not known. An owner that
        listens on loopback can be called only from its own machine."""
        if not self.address or not Address.parse(self.address).is_loopback:
            return self.address
        return self.address if self.process.startswith(f"{host}:") else ""


def own_address(*, endpoint: Address, listen: Address, port: int, host: str) -> str:
    """Where a process of a service is called: at its `twinlog.<service>.endpoint`, else by the name of its
    machine, else on loopback. `port`: the one that it has bound.

    >>> every = Address(host="0.0.0.0", port=0)
    >>> own_address(endpoint=every.dialled_from_here(), listen=every, port=17404, host="box")
    'box:17404'
    """
    if not endpoint.is_loopback:
        return str(Address(host=endpoint.host, port=endpoint.port or port))
    if not listen.is_loopback:
        return str(Address(host=host, port=port))
    return str(Address(host=endpoint.host, port=port))


# Compares the deployments of two processes that serve one flow. Pure.


def are_twins(rules: str, others: str) -> bool:
    """Whether the fingerprints belong to two deployments. Owners of earlier releases send none (empty) and
    count as the same deployment."""
    return bool(rules and others) and rules != others


def twin_deployment(flow: Flow, owner: str) -> StateError:
    """The refusal of a process when the flow's owner has a file with another selection."""
    return StateError(
        f"{flow} is served by another deployment now, whose file selects other topics or groups ({owner}):"
        f" what only this file selects is not replicated. Put both selections into one file, or give"
        f" {flow.source} another alias in one of them, so that each has topics of its own on the target",
        reason=OwnerReason.TWIN_DEPLOYMENT,
        metadata={"flow": str(flow), "owner": owner},
    )


def selection_fingerprint(config: FlowConfig) -> str:
    """A fingerprint of the topics and groups that a deployment selects for one flow. Changed rules do not
    count: they belong to the flow, not to its owner."""
    selections = (config.configsync.topics, config.checkpoint.groups)
    text = json.dumps([[sorted(each.include), sorted(each.exclude)] for each in selections])
    return hashlib.sha256(text.encode()).hexdigest()[:12]
