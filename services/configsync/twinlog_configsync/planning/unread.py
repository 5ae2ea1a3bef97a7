"""What a plan does not know: parts of a flow, or topics of a part, that could not be read. Pure."""

from collections.abc import Collection, Mapping
from typing import Final

from twinlog.errors import KafkaError
from twinlog_configsync.model.observation import Observation, Problem, World, is_absent
from twinlog_configsync.model.schedule import Scope

_NAMED: Final = 5


def unread(world: World, scopes: Collection[Scope]) -> dict[Scope, Problem]:
    """Why parts of a flow could not be read, or have nothing to do; by part.

    Topics and configs are read one by one, and a plan has no action for one that could not be read.
    """
    whole = {scope: problem for scope in sorted(scopes) if (problem := world.problem(scope)) is not None}
    single = {
        Scope.TOPICS: _problem("topics", _hidden_topics(world.topics)),
        Scope.CONFIGS: _problem("configs of", _hidden_configs(world.topics)),
    }
    return whole | {scope: each for scope, each in single.items() if each is not None and scope in scopes}


def _hidden_topics(observation: Observation) -> dict[str, KafkaError]:
    """By the name on its cluster. The counterpart of a topic that cannot be seen does not matter."""
    hidden: dict[str, KafkaError] = {}
    for pair in observation.pairs.values():
        if isinstance(pair.source, KafkaError):
            if not is_absent(pair.source):
                hidden[pair.source_topic] = pair.source
        elif isinstance(pair.target, KafkaError) and not is_absent(pair.target):
            hidden[pair.target_topic] = pair.target
    return hidden


def _hidden_configs(observation: Observation) -> dict[str, KafkaError]:
    """Of topics that the source shows."""
    hidden: dict[str, KafkaError] = {}
    for pair in observation.pairs.values():
        if isinstance(pair.source, KafkaError):
            continue
        if isinstance(pair.source_configs, KafkaError):
            hidden[pair.source_topic] = pair.source_configs
        if isinstance(pair.target_configs, KafkaError):
            hidden[pair.target_topic] = pair.target_configs
    return hidden


def _problem(what: str, hidden: Mapping[str, KafkaError]) -> Problem | None:
    if not hidden:
        return None
    names = sorted(hidden)
    more = f" and {len(names) - _NAMED} more" if len(names) > _NAMED else ""
    first = hidden[names[0]]
    message = f"{what} {', '.join(names[:_NAMED])}{more} cannot be read: {first}"
    return Problem(reason=first.reason, message=message)
