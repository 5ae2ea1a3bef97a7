"""A short run of the translation test; `make chaos-translation` runs a million records."""

from pathlib import Path

from chaos.translation_chaos import TranslationChaos
from twinlog.testing.brokers import KafkaPair


async def test_random_offsets_of_a_rough_mirror_are_the_very_records(
    kafka_pair: KafkaPair, tmp_path: Path
) -> None:
    chaos = TranslationChaos(
        source=kafka_pair.a,
        target=kafka_pair.b,
        directory=tmp_path,
        seed=7,
        records=12_000,
        offsets=300,
        kills=1,
        rewinds=0,
        groups=3,
    )
    outcome = await chaos.run()
    assert outcome.is_good, outcome.as_json()
