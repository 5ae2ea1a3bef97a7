"""What every `QuotaAdmin` does."""

from collections.abc import Mapping

import pytest

from contract.cluster.cluster_rig import ClusterRig, failure
from twinlog.kafka.ports import QuotaEntity
from twinlog.kafka.protocol.requests import API_KEYS
from twinlog.testing.brokers import eventually, unique_name


class QuotaAdminContract:
    async def test_quotas_are_set_changed_and_taken_away(self, rig: ClusterRig) -> None:
        name = unique_name("quota")
        user = QuotaEntity((("user", name),))
        both = QuotaEntity((("client-id", None), ("user", name)))
        changes: dict[QuotaEntity, dict[str, float | None]] = {
            user: {"producer_byte_rate": 1000.0, "request_percentage": 12.5},
            both: {"consumer_byte_rate": 2000.0},
        }
        assert await rig.cluster.alter_client_quotas(changes) == {user: None, both: None}
        await eventually(
            lambda: _are(
                rig,
                name,
                {
                    user: {"producer_byte_rate": 1000.0, "request_percentage": 12.5},
                    both: {"consumer_byte_rate": 2000.0},
                },
            )
        )
        changed = await rig.cluster.alter_client_quotas(
            {
                user: {"producer_byte_rate": None, "request_percentage": 20.0},
                both: {"consumer_byte_rate": None},
            }
        )
        assert changed == {user: None, both: None}
        await eventually(lambda: _are(rig, name, {user: {"request_percentage": 20.0}}))
        await rig.cluster.alter_client_quotas({user: {"request_percentage": None}})
        await eventually(lambda: _are(rig, name, {}))

    async def test_an_unknown_quota_is_refused_and_hides_no_other(self, rig: ClusterRig) -> None:
        good, bad = (
            QuotaEntity((("user", unique_name("good")),)),
            QuotaEntity((("user", unique_name("bad")),)),
        )
        answers = await rig.cluster.alter_client_quotas(
            {good: {"producer_byte_rate": 1.0}, bad: {"no_such_rate": 1.0}}
        )
        assert answers[good] is None
        assert failure(answers[bad]).reason == "INVALID_REQUEST"
        await rig.cluster.alter_client_quotas({good: {"producer_byte_rate": None}})

    async def test_nothing_asked_is_nothing_answered(self, rig: ClusterRig) -> None:
        assert await rig.cluster.alter_client_quotas({}) == {}

    async def test_scram_users_are_listed_by_mechanism(self, rig: ClusterRig) -> None:
        if rig.release.offered(API_KEYS["describe_user_scram_credentials"]) is None:
            pytest.skip("this release does not tell")
        users = await rig.cluster.scram_users()
        assert all(mechanisms <= {"SCRAM-SHA-256", "SCRAM-SHA-512"} for mechanisms in users.values())


async def _are(rig: ClusterRig, name: str, wanted: Mapping[QuotaEntity, Mapping[str, float]]) -> bool:
    quotas = await rig.cluster.describe_client_quotas()
    return {entity: values for entity, values in quotas.items() if ("user", name) in entity.parts} == wanted
