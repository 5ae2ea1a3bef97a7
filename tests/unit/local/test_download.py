"""The jars of Kafka come from a Maven repository, whole and as recorded, or not at all."""

import hashlib
import json
from pathlib import Path

import pytest

from twinlog.local.download.artifacts import (
    JARS,
    ArtifactsDamagedError,
    FetchError,
    Read,
    broker_set,
    fetch,
    tools_set,
)
from twinlog.local.spec import KafkaVersion

CONTENT = {f"org/x/{name}/1/{name}-1.jar": name.encode() for name in ("a", "b", "c")}
PLACES = {place: hashlib.sha256(content).hexdigest() for place, content in CONTENT.items()}


def repository(asked: list[str], **others: bytes | None) -> Read:
    """`others`: what it has instead of a jar; None = it does not answer."""

    def read(url: str) -> bytes:
        asked.append(url)
        place = url.removeprefix("https://mirror.example/maven/")
        content = others.get(place.split("/")[2], CONTENT[place])
        if content is None:
            raise TimeoutError("timed out")
        return content

    return read


@pytest.fixture(autouse=True)
def mirror(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TWINLOG_MAVEN_URL", "https://mirror.example/maven/")


def test_a_set_appears_when_it_is_whole_and_what_arrived_is_kept(tmp_path: Path) -> None:
    directory, asked = tmp_path / "set", list[str]()
    with pytest.raises(FetchError, match=r"b-1\.jar: timed out.*TWINLOG_MAVEN_URL"):
        fetch(PLACES, directory, repository(asked, b=None))
    assert not directory.exists()
    asked.clear()
    fetch(PLACES, directory, repository(asked))
    assert asked == ["https://mirror.example/maven/org/x/b/1/b-1.jar"]
    assert {jar.name: jar.read_bytes() for jar in directory.iterdir()} == {
        "a-1.jar": b"a",
        "b-1.jar": b"b",
        "c-1.jar": b"c",
    }


def test_another_jar_than_the_recorded_one_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ArtifactsDamagedError, match=r"c-1\.jar"):
        fetch(PLACES, tmp_path / "set", repository([], c=b"another"))
    fetch(PLACES, tmp_path / "set", repository([]))
    assert (tmp_path / "set" / "c-1.jar").read_bytes() == b"c"


def test_each_set_is_recorded_under_names_of_its_own() -> None:
    recorded = json.loads(JARS.read_text())
    assert set(recorded) == {*map(broker_set, KafkaVersion), tools_set()}
    for places in recorded.values():
        assert len({Path(place).name for place in places}) == len(places) > 30
