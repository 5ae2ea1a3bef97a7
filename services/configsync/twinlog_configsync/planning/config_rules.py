"""Which topic configs the target gets (MM2's rules). Pure.

MM2 sends every config at every sync. Twinlog sends only differences, so the result is the same and a second
apply does nothing. The values of `twinlog.sync.topic.configs.fixed` are set whatever the source has, and
restored when somebody changes them. Three kinds of configs are left out, which is shown and never stops the
others: properties that the target's Kafka does not know; a min.insync.replicas that the target topic could
never satisfy; and values that the topic already has as an override.
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field

from twinlog.config.flow.settings import FIXED_CONFIGS_KEY, MIN_ISR, FixedConfig
from twinlog.kafka.ports import ConfigChange, ConfigEntry, ConfigSource
from twinlog_configsync.model.actions import ConfigAction, DeleteConfig, SetConfig, Skip


@dataclass(frozen=True, slots=True, kw_only=True)
class ConfigRules:
    """The rules of one flow about properties."""

    excluded_by: Callable[[str], str | None]
    """Returns the pattern of config.properties.exclude that matches a property, or None."""
    included: Callable[[str], bool] = lambda _name: True
    """Whether the property may be synced."""
    """The key that decides `included`."""
    fixed: Mapping[str, FixedConfig] = field(default_factory=dict)
    """The values that the topic's copy has whatever its source has, by property; they take precedence over
    all other rules."""
    source_defaults: bool = False
    """use.defaults.from=source: the source's defaults become overrides on the target."""
    known_on_target: Collection[str] | None = None
    """The topic properties of the target's Kafka; None while not known (then nothing is left out)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WantedConfig:
    """What the rules want for one property: SET `value`, DELETE when `value` is None, nothing when `kept`."""

    name: str
    value: str | None
    rule: str
    kept: bool = False


def decide(entry: ConfigEntry, rules: ConfigRules, *, replication_factor: int | None) -> WantedConfig | None:
    """Decide about one property of a source topic; None for one that is never copied.

    `replication_factor` is the target topic's, None when the broker chooses it.
    """
    if entry.read_only or entry.sensitive:
        return None
    if entry.name in rules.fixed:
        fixed = rules.fixed[entry.name]
        rule = f"fixed by {FIXED_CONFIGS_KEY} ({fixed.pattern})"
        return _possible(entry.name, fixed.value, rule, rules, replication_factor)
    if not rules.included(entry.name):
        return _kept(entry.name, "not in twinlog.sync.topic.configs.include")
    pattern = rules.excluded_by(entry.name)
    if pattern is not None:
        return _kept(entry.name, f"excluded by config.properties.exclude ({pattern})")
    if entry.source is ConfigSource.STATIC_BROKER:
        return _kept(entry.name, "comes from the source broker's own file")
    if entry.source is ConfigSource.DEFAULT and not rules.source_defaults:
        return WantedConfig(name=entry.name, value=None, rule="default on source (use.defaults.from=target)")
    if entry.value is None:
        return None
    rule = "default on source (use.defaults.from=source)"
    if entry.source is not ConfigSource.DEFAULT:
        rule = (
            "explicit on source" if entry.source is ConfigSource.TOPIC else f"{entry.source.value} on source"
        )
    return _possible(entry.name, entry.value, rule, rules, replication_factor)


def _possible(
    name: str, value: str, rule: str, rules: ConfigRules, replication_factor: int | None
) -> WantedConfig:
    """SET, unless the target could never accept it or work with it."""
    if rules.known_on_target is not None and name not in rules.known_on_target:
        return _kept(name, "the target's Kafka has no such property")
    if name == MIN_ISR and replication_factor is not None and int(value) > replication_factor:
        return _kept(name, f"{value} is above the target's replication factor {replication_factor}")
    return WantedConfig(name=name, value=value, rule=rule)


def _with_fixed(entries: Sequence[ConfigEntry], rules: ConfigRules) -> list[ConfigEntry]:
    """Also properties that the source's Kafka does not have."""
    known = {entry.name for entry in entries}
    added = (
        ConfigEntry(name=name, value=None, source=ConfigSource.DEFAULT)
        for name in rules.fixed
        if name not in known
    )
    return [*entries, *added]


def creation_configs(
    entries: Sequence[ConfigEntry], rules: ConfigRules, *, replication_factor: int | None
) -> dict[str, str]:
    """The configs with which a target topic is created, by name."""
    decided = (
        decide(entry, rules, replication_factor=replication_factor) for entry in _with_fixed(entries, rules)
    )
    return {
        wanted.name: wanted.value
        for wanted in sorted((w for w in decided if w is not None), key=lambda w: w.name)
        if not wanted.kept and wanted.value is not None
    }


def plan_configs(
    source_topic: str,
    target_topic: str,
    *,
    source: Sequence[ConfigEntry],
    target: Sequence[ConfigEntry],
    rules: ConfigRules,
    replication_factor: int | None,
    last_set: Mapping[str, str] | None = None,
) -> list[ConfigAction | Skip]:
    """The changes that sync the target topic's configs, sorted by property.

    `last_set` is what Twinlog last set. An override that differs from it while the source has not changed is
    drift. Properties that only the target has (a newer Kafka) are left alone.
    """
    overrides = {entry.name: entry.value for entry in target if entry.source is ConfigSource.TOPIC}
    effective = {entry.name: entry.value for entry in target}
    actions: list[ConfigAction | Skip] = []
    for entry in sorted(_with_fixed(source, rules), key=lambda each: each.name):
        wanted = decide(entry, rules, replication_factor=replication_factor)
        if wanted is None:
            continue
        if wanted.kept:
            if entry.source is not ConfigSource.DEFAULT or entry.name in overrides:
                actions.append(
                    Skip(
                        source_topic=source_topic,
                        target_topic=target_topic,
                        what=entry.name,
                        rule=wanted.rule,
                    )
                )
            continue
        before = effective.get(wanted.name)
        drift = last_set is not None and last_set.get(wanted.name) == wanted.value
        if wanted.value is None:
            if wanted.name in overrides:
                actions.append(
                    DeleteConfig(
                        source_topic=source_topic,
                        target_topic=target_topic,
                        name=wanted.name,
                        before=before,
                        rule=wanted.rule,
                        drift=drift,
                    )
                )
        elif overrides.get(wanted.name) != wanted.value:
            actions.append(
                SetConfig(
                    source_topic=source_topic,
                    target_topic=target_topic,
                    name=wanted.name,
                    before=before,
                    value=wanted.value,
                    rule=wanted.rule,
                    drift=drift,
                )
            )
    return actions


def change_of(action: ConfigAction) -> ConfigChange:
    """The incremental change for an action."""
    return ConfigChange(name=action.name, value=action.value if isinstance(action, SetConfig) else None)


def _kept(name: str, rule: str) -> WantedConfig:
    return WantedConfig(name=name, value=None, rule=rule, kept=True)
