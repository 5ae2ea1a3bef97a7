"""The records of the latency loads."""

import re

from bench.comparing.latency_probe import read, written


def test_a_value_survives_an_expression_on_text() -> None:
    value = written(4_711, 1_234_567_890_123_456_789, 200)
    assert len(value) == 200
    changed = re.sub(r'"amount": [0-9.]+', '"amount": 0', value.decode())
    assert changed != value.decode()
    assert read(changed.encode()) == (4_711, 1_234_567_890_123_456_789)
