"""The outcome of a plan that was carried out."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

from twinlog.errors import KafkaError
from twinlog_configsync.model.actions import Change
from twinlog_configsync.model.observation import World

_Kind = TypeVar("_Kind", bound=Change, covariant=True)


@dataclass(frozen=True, slots=True, kw_only=True)
class Refusal(Generic[_Kind]):
    action: _Kind
    error: KafkaError


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """The outcome of a plan."""

    applied: Sequence[Change] = ()
    refused: Sequence[Refusal[Change]] = ()
    world: World
    """The observation of the plan, with every changed target topic read again."""
