"""`twinlog demo --transform`: a second topic, whose records Spark changes on the way. Its copy is compared
with what Python makes of the records, one by one."""

import json
import re
from dataclasses import replace

from twinlog.model import Record

TOPIC, REMOTE_TOPIC = "payments", "A.payments"
PARTITIONS = 2
RECORDS = 2_000
PROPERTIES = r"""
# What is paid does not leave A, nor do orders from Ghent.
A->B.twinlog.transform.topics = payments
A->B.twinlog.transform.where = get_json_object(CAST(value AS string), '$.city') != 'Ghent'
A->B.twinlog.transform.value = regexp_replace(string(value), '"total_cents": [0-9]+', '"total_cents": 0')
"""


def change(record: Record) -> Record | None:
    """The same for one record."""
    value = record.value
    if value is None or json.loads(value)["city"] == "Ghent":
        return None
    return replace(record, value=re.sub(rb'"total_cents": [0-9]+', b'"total_cents": 0', value))
