"""Makes sure that a failed command has no later effect, although its record may still reach the log: a broker
that hangs may hold the request, and execute it later.

Invariant: until another process claims the flow, this process never applies a record that was given up.
Whenever such a record may be on the log, the valid fact is written once more behind it.

From the claim of another process on, the log alone decides, for this process as for that one: a record that
was given up counts if it is there, and so does a tombstone or a fact of the other process that looks the
same. Nothing fences the driver's own producer, so such a record may reach the log even behind the claim, if a
broker has held its request. Then the owner at that time cannot tell it from a valid one, and the command
that failed takes effect.
"""

from dataclasses import dataclass, field

Subject = tuple[str, str | None, int | None]
"""Kind, topic and partition of a fact."""


@dataclass(slots=True)
class Retractions:
    due: dict[bytes, Subject] = field(default_factory=dict)
    """Keys whose newest record on the log may be one that was given up, with their subjects."""
    times_forgotten: int = 0
    """A command that began before the last time is not to be given up: the log decides."""
    _given_up: dict[bytes, tuple[Subject, set[bytes | None]]] = field(default_factory=dict)

    def give_up(self, subject: Subject, key: bytes, value: bytes | None) -> None:
        """Give a record up: it may be on the log, now or later."""
        _, values = self._given_up.setdefault(key, (subject, set()))
        values.add(value)
        self.due[key] = subject

    def concern(self, key: bytes) -> bool:
        """Whether a record with this key was given up."""
        return key in self._given_up

    def is_given_up(self, key: bytes | None, value: bytes | None) -> bool:
        """Whether a record of the log was given up. Its key is then due again."""
        subject, values = self._given_up.get(key or b"", (None, frozenset()))
        if subject is None or key is None or value not in values:
            return False
        self.due[key] = subject
        return True

    def settle(self, key: bytes) -> None:
        """The valid facts are on the log behind everything that was given up so far."""
        self.due.pop(key, None)

    def replace(self, key: bytes) -> None:
        """A later command for the same subject succeeded. From now on, a tombstone that was given up cannot
        be told from a valid one."""
        self.settle(key)
        if key in self._given_up:
            self._given_up[key][1].discard(None)

    def forget(self) -> None:
        """Another process has claimed the flow: nothing counts as given up any more, and nothing is due."""
        self.times_forgotten += 1
        self._given_up.clear()
        self.due.clear()
