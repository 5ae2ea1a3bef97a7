"""Plans the client quotas of the target. Pure.

The source's value wins. Quotas that the source does not have are left alone unless Twinlog set them. Quotas
of addresses (`ip`) concern the network of one cluster and are not copied. If two flows into one target want
the same quota, the flow whose name sorts first sets it, and neither removes it while the other one wants it.
"""

from collections.abc import Callable, Collection, Mapping

from twinlog.kafka.ports import QuotaEntity
from twinlog.model import Flow
from twinlog_configsync.model.actions import DeleteQuota, QuotaAction, SetQuota, SkipQuota, entity_text
from twinlog_configsync.model.hold import Hold
from twinlog_configsync.model.memory import quota_id
from twinlog_configsync.model.observation import QuotaObservation

Quotas = Mapping[QuotaEntity, Mapping[str, float]]
QuotaKey = tuple[QuotaEntity, str]


def plan_quotas(
    observation: QuotaObservation,
    *,
    made: Quotas,
    owner: Callable[[QuotaKey], Flow | None],
    wanted_elsewhere: Collection[str] | None = frozenset(),
    hold: Hold | None = None,
) -> list[QuotaAction | SkipQuota]:
    """Plan the changes that sync the target's quotas, sorted by entity and key.

    `made` is what Twinlog set on the target for this flow; `owner` returns another flow that sets a quota, or
    None; `wanted_elsewhere` are the ids of those that another flow into the same target wants, which are not
    removed, and None as long as this is not known; `hold` tells why nothing may be removed now.
    """
    wanted = wanted_quotas(observation)
    planned: list[QuotaAction | SkipQuota] = []
    for entity, key, value in _sorted(observation.source):
        before = observation.target.get(entity, {}).get(key)
        other = owner((entity, key))
        if (entity, key) not in wanted:
            planned.append(SkipQuota(entity=entity, key=key, rule="quotas of addresses are not copied"))
        elif other is not None:
            planned.append(SkipQuota(entity=entity, key=key, rule=f"flow {other} sets it on this target"))
        elif before != value:
            drift = made.get(entity, {}).get(key) == value
            planned.append(
                SetQuota(
                    entity=entity, key=key, before=before, value=value, rule="set on source", drift=drift
                )
            )
    for entity, key, _ in _sorted(made):
        before = observation.target.get(entity, {}).get(key)
        if (entity, key) in wanted or before is None:
            continue
        kept = _why_kept((entity, key), wanted_elsewhere, hold)
        if kept:
            planned.append(SkipQuota(entity=entity, key=key, rule=kept))
        else:
            rule = "set by Twinlog, gone from the source"
            planned.append(DeleteQuota(entity=entity, key=key, before=before, rule=rule))
    return planned


def _why_kept(quota: QuotaKey, wanted_elsewhere: Collection[str] | None, hold: Hold | None) -> str:
    """Why a quota that Twinlog set and the source no longer has is not removed; "" when it is."""
    if hold is not None:
        return f"kept, {hold.reason}: {hold.message}"
    if wanted_elsewhere is None:
        return (
            "the source no longer has it; kept until it is known whether another flow into this target"
            " needs it"
        )
    if quota_id(*quota) in wanted_elsewhere:
        return "the source no longer has it, but another flow into this target needs it"
    return ""


def _sorted(quotas: Quotas) -> list[tuple[QuotaEntity, str, float]]:
    flat = [(entity, key, value) for entity, values in quotas.items() for key, value in values.items()]
    return sorted(flat, key=lambda each: (entity_text(each[0]), each[1]))


def wanted_quotas(observation: QuotaObservation) -> dict[QuotaKey, float]:
    """Every quota that the flow wants on the target."""
    return {
        (entity, key): value
        for entity, values in observation.source.items()
        if not any(kind == "ip" for kind, _ in entity.parts)
        for key, value in values.items()
    }
