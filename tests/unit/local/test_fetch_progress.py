"""How a fetch is shown, from what Ivy says."""

import io

import pytest

from twinlog.local.download.fetch_progress import JarCount, LineProgress

_FOUND = "\tfound org.apache.kafka#kafka-clients;4.3.1 in public"
_DONE = "\t[SUCCESSFUL ] org.apache.kafka#kafka-clients;4.3.1!kafka-clients.jar (162ms)"
_OTHER = ":: resolution report :: resolve 33055ms :: artifacts dl 7140ms"


def test_count_follows_ivy() -> None:
    count = JarCount()
    changes = [count.take(line) for line in (_FOUND, _FOUND, _OTHER, _DONE)]
    assert changes == [True, True, False, True]
    assert (count.found, count.downloaded) == (2, 1)


def test_lines_are_few_and_tell_the_end() -> None:
    stream = io.StringIO()
    with LineProgress(stream).fetching("kafka") as step:
        for line in [_FOUND] * 45 + [_OTHER] + [_DONE] * 45:
            step.ivy_said(line)
    assert stream.getvalue().splitlines() == [
        "fetching kafka (about a minute, once)",
        "kafka: 20 of 45 jars",
        "kafka: 40 of 45 jars",
        "fetched kafka",
    ]


def test_failed_fetch_is_not_called_fetched() -> None:
    stream = io.StringIO()
    with pytest.raises(RuntimeError), LineProgress(stream).fetching("kafka"):
        raise RuntimeError
    assert "fetched" not in stream.getvalue()
