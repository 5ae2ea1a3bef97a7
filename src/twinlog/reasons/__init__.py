"""Every reason that Twinlog itself gives, and every word of a state or verdict, in one table, which
docs/reasons.md is generated from.

Kafka's own reasons are in `twinlog.kafka.errors`. A test compares the code with both tables.
"""

from typing import Final

from twinlog.reasons.commands import COMMANDS, PROCESSES
from twinlog.reasons.copies import COPIES, GAPS, PARTITIONS, VERIFY
from twinlog.reasons.flows import FLOWS, GROUPS, TOPICS
from twinlog.reasons.states import FINDINGS, IN_FORCE, LANES, PLACES, STATES

REASON_GROUPS: Final = (
    *(PARTITIONS, COPIES, GAPS, FLOWS, TOPICS, GROUPS, VERIFY, COMMANDS, PROCESSES),
    *(STATES, IN_FORCE, PLACES, FINDINGS, LANES),
)
