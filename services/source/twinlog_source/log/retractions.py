"""Commands that failed have no later effect, although their record may reach the log after all: a broker that
hangs may hold the request, and carries it out when it comes back.

Invariant: a record that was given up is never applied by this process, and whenever it may be on the log,
what is in force is written once more behind it.
"""

from dataclasses import dataclass, field

Subject = tuple[str, str | None, int | None]
"""Kind, topic and partition of a fact."""


@dataclass(slots=True)
class Retractions:
    due: dict[bytes, Subject] = field(default_factory=dict)
    """Keys whose newest record on the log may be one that was given up, with what they are about."""
    _given_up: dict[bytes, tuple[Subject, set[bytes | None]]] = field(default_factory=dict)

    def give_up(self, subject: Subject, key: bytes, value: bytes | None) -> None:
        """The record may or may not be on the log, now or later."""
        _, values = self._given_up.setdefault(key, (subject, set()))
        values.add(value)
        self.due[key] = subject

    def is_given_up(self, key: bytes | None, value: bytes | None) -> bool:
        """Whether a record of the log is one that was given up. Then its key is due again."""
        subject, values = self._given_up.get(key or b"", (None, frozenset()))
        if subject is None or key is None or value not in values:
            return False
        self.due[key] = subject
        return True

    def settle(self, key: bytes) -> None:
        """What is in force is on the log behind everything that was given up so far."""
        self.due.pop(key, None)

    def replace(self, key: bytes) -> None:
        """A later command for the same subject succeeded. A tombstone that was given up before cannot be told
        from one that was meant from now on."""
        self.settle(key)
        if key in self._given_up:
            self._given_up[key][1].discard(None)
