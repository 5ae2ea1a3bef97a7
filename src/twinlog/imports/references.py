"""Converts references to secrets into references of Kafka's config providers."""

import re
from dataclasses import dataclass, field

from twinlog.imports.draft import SECRETS, Draft, Setting

DEFAULT_SECRETS_DIR = "/etc/twinlog/secrets"

_REFERENCE = re.compile(r"\$\{([^}:]*):(([^}]*?):)?([^}]*?)\}")
_STRIMZI = {"strimzienv": "env", "strimzifile": "file", "strimzidir": "dir"}
_HIDDEN = re.compile(r"\*{3,}|\[hidden\]|<hidden>|\[redacted\]", re.IGNORECASE)


@dataclass(frozen=True, slots=True, kw_only=True)
class References:
    """Where Kubernetes Secrets are mounted for Twinlog: `<directory>/<name>/<key>`."""

    draft: Draft
    directory: str = DEFAULT_SECRETS_DIR
    by_chart: bool = False
    """The Helm chart mounts them."""
    kubernetes: set[str] = field(default_factory=lambda: {"strimzisecrets", "secrets", "configmaps"})
    """The names of providers whose paths are NAMESPACE/NAME of a Secret or a ConfigMap."""

    def mounted(self, name: str, key: str) -> str:
        """The path of a Secret's file."""
        return f"{self.directory}/{name}/{key}"

    def secret(self, name: str, key: str) -> str:
        """`${secrets:DIR/NAME:KEY}`."""
        self.draft.use_provider(SECRETS)
        return f"${{{SECRETS}:{self.directory}/{name}:{key}}}"

    @property
    def of_the_chart(self) -> str:
        """What to do about a variable or a file of a pod, of which the Helm chart makes none."""
        reference = f"${{{SECRETS}:{self.directory}/NAME:KEY}}"
        return f"the chart has Secrets only: add NAME to `secrets`, and write {reference}"

    def to_mount(self, setting: Setting, name: str, becomes: str) -> None:
        if self.by_chart:
            self.draft.report.mapped(setting, becomes, f"the chart mounts the Secret {name}")
            return
        self.draft.report.to_do(
            setting, f"mount the Secret {name} of Kubernetes at {self.directory}/{name}", becomes=becomes
        )

    def translated(self, setting: Setting, becomes: str) -> Setting:
        """The value with references that Twinlog's providers understand. A hidden value becomes an
        environment variable with its own name."""
        if _HIDDEN.fullmatch(setting.value.strip()):
            variable = re.sub(r"[^A-Za-z0-9]+", "_", becomes).strip("_").upper()
            self.draft.use_provider("env")
            self.draft.report.to_do(
                setting, f"the value was hidden: set the variable {variable}", becomes=becomes
            )
            return setting.at(f"${{env:{variable}}}")

        def replaced(match: re.Match[str]) -> str:
            provider, path, key = match[1], match[3] or "", match[4]
            if path.startswith(f"{self.directory}/"):
                return match[0]
            if provider in self.kubernetes and "/" in path:
                name = path.rpartition("/")[2]
                self.to_mount(setting, name, becomes)
                return self.secret(name, key)
            known = _STRIMZI.get(provider, provider)
            if not self.draft.use_provider(known):
                self.draft.report.to_do(
                    setting,
                    f"name the class of provider {provider!r} in config.providers.{provider}.class"
                    " (docs/logins.md)",
                    becomes=becomes,
                )
                return match[0]
            where = f"the variable {key}" if known == "env" else f"{path} has to be there"
            text = self.of_the_chart if self.by_chart else f"provider {known!r} is asked: {where}"
            self.draft.report.to_do(setting, text, becomes=becomes)
            return f"${{{known}:{path}:{key}}}" if path else f"${{{known}:{key}}}"

        return setting.at(_REFERENCE.sub(replaced, setting.value))
