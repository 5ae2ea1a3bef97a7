"""One connector of MirrorMaker 2, from any format."""

from collections.abc import Mapping
from dataclasses import dataclass

from twinlog.config.values.precedence import Connector
from twinlog.imports.report import Setting

_PACKAGE = "org.apache.kafka.connect.mirror."


@dataclass(frozen=True, slots=True, kw_only=True)
class ImportedConnector:
    kind: Connector
    name: str
    config: Mapping[str, Setting]
    setting: Setting
    """Where it is in the file."""
    offsets_topic: Setting | None = None
    """The `offset.storage.topic` of its worker; None = unknown."""
    stopped: Setting | None = None
    """The setting because of which it counts as paused or stopped."""
    mm2_version: tuple[int, int] | None = None

    @property
    def flow(self) -> tuple[str, str]:
        config = self.config
        source, target = config.get("source.cluster.alias"), config.get("target.cluster.alias")
        return source.value if source else "", target.value if target else "target"


def kind_of(class_name: str) -> Connector | None:
    """Connect accepts the full name, the simple name, and the simple name without `Connector`."""
    simple = class_name.strip().removeprefix(_PACKAGE)
    return next(
        (kind for kind in Connector if simple in (kind.value, kind.value.removesuffix("Connector"))), None
    )
