"""Recreates the copy of a topic: deletes it, creates it with the same settings, and copies it from the start.

Invariant: from the deletion on, the topic stays paused until its copy begins from the start. If a step fails,
the error says what is left to do.
"""

import sys
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass

from twinlog.cli.common.pasteable import pasteable
from twinlog.cli.topic_again import create_again, topic_as_it_is
from twinlog.errors import KafkaError, TwinlogError
from twinlog.kafka.ports import KafkaCluster
from twinlog.kafka.reasons import KafkaReason
from twinlog.verify.repair import Remedy


@dataclass(frozen=True, slots=True, kw_only=True)
class Repaired:
    """The outcome of one remedy."""

    applied: bool
    is_outdated: bool = False
    """The copy has changed since the report, so nothing is known about it."""
    reason: str = ""
    message: str = ""


@dataclass(slots=True)
class Pause:
    """The pause of a topic while it is repaired."""

    left_to_do: Sequence[str] = ()
    """Commands that have to run before the topic may be copied again: the pause stays while there are any."""


async def make_again(
    target: KafkaCluster, remedy: Remedy, pause: Pause, set_to_start: Callable[[str], Awaitable[None]]
) -> Repaired:
    """Call it while the topic is paused. `set_to_start` gets the id of the new topic, and returns when the
    service copies it from the start. Raises KafkaError as long as nothing is changed."""
    again = await topic_as_it_is(target, remedy.target_topic)
    pause.left_to_do = remedy.commands[-2:]
    try:
        refusal = await _delete(target, remedy.target_topic)
        if refusal is not None and not refusal.retriable:
            pause.left_to_do = ()  # It was not deleted.
            return Repaired(applied=False, reason=refusal.reason, message=str(refusal))
        await set_to_start(await create_again(target, again))
    except TwinlogError as error:
        message = f"{error}. {_what_is_left(remedy, pause)}"
        return Repaired(applied=False, reason=error.reason, message=message)
    except BaseException:
        sys.stderr.write(f"{_what_is_left(remedy, pause)}\n")
        raise
    pause.left_to_do = ()
    return Repaired(applied=True)


async def _delete(target: KafkaCluster, topic: str) -> KafkaError | None:
    """Return why the topic was not deleted; a retriable error means that it may have been, or will be
    soon."""
    try:
        refusal = (await target.delete_topics([topic]))[topic]
    except KafkaError as error:
        return error
    return None if refusal is not None and refusal.reason == KafkaReason.TOPIC_UNKNOWN else refusal


def _what_is_left(remedy: Remedy, pause: Pause) -> str:
    return (
        f"{remedy.target_topic} was not fully recreated, and {remedy.topic} stays paused. Once the copy"
        f" exists and is empty, run {', then '.join(map(pasteable, pause.left_to_do))}"
    )
