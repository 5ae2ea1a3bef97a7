"""What every `QuotaAdmin` does."""

from collections.abc import Mapping

from contract.workbench import Workbench, failure
from twinlog.kafka.ports import QuotaEntity
from twinlog.testing.brokers import eventually, unique_name


class QuotaAdminContract:
    async def test_quotas_are_set_changed_and_taken_away(self, bench: Workbench) -> None:
        name = unique_name("quota")
        user = QuotaEntity((("user", name),))
        both = QuotaEntity((("client-id", None), ("user", name)))
        changes: dict[QuotaEntity, dict[str, float | None]] = {
            user: {"producer_byte_rate": 1000.0, "request_percentage": 12.5},
            both: {"consumer_byte_rate": 2000.0},
        }
        assert await bench.cluster.alter_client_quotas(changes) == {user: None, both: None}
        await eventually(
            lambda: _are(
                bench,
                name,
                {
                    user: {"producer_byte_rate": 1000.0, "request_percentage": 12.5},
                    both: {"consumer_byte_rate": 2000.0},
                },
            )
        )
        changed = await bench.cluster.alter_client_quotas(
            {
                user: {"producer_byte_rate": None, "request_percentage": 20.0},
                both: {"consumer_byte_rate": None},
            }
        )
        assert changed == {user: None, both: None}
        await eventually(lambda: _are(bench, name, {user: {"request_percentage": 20.0}}))
        await bench.cluster.alter_client_quotas({user: {"request_percentage": None}})
        await eventually(lambda: _are(bench, name, {}))

    async def test_an_unknown_quota_is_refused_and_hides_no_other(self, bench: Workbench) -> None:
        good, bad = (
            QuotaEntity((("user", unique_name("good")),)),
            QuotaEntity((("user", unique_name("bad")),)),
        )
        answers = await bench.cluster.alter_client_quotas(
            {good: {"producer_byte_rate": 1.0}, bad: {"no_such_rate": 1.0}}
        )
        assert answers[good] is None
        assert failure(answers[bad]).reason == "INVALID_REQUEST"
        await bench.cluster.alter_client_quotas({good: {"producer_byte_rate": None}})

    async def test_nothing_asked_is_nothing_answered(self, bench: Workbench) -> None:
        assert await bench.cluster.alter_client_quotas({}) == {}

    async def test_scram_users_are_listed_by_mechanism(self, bench: Workbench) -> None:
        users = await bench.cluster.scram_users()
        assert all(mechanisms <= {"SCRAM-SHA-256", "SCRAM-SHA-512"} for mechanisms in users.values())


async def _are(bench: Workbench, name: str, wanted: Mapping[QuotaEntity, Mapping[str, float]]) -> bool:
    quotas = await bench.cluster.describe_client_quotas()
    return {entity: values for entity, values in quotas.items() if ("user", name) in entity.parts} == wanted
