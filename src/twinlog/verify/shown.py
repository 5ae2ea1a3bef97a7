"""A record for people: text if it is readable, else hexadecimal; long fields are cut."""

from typing import Any

from twinlog.batches import DecodedRecord

MOST_CHARACTERS = 300


def shown_record(record: DecodedRecord) -> dict[str, Any]:
    """None stays null, which distinguishes it from an empty field."""
    return {
        "offset": record.offset,
        "timestamp_ms": record.timestamp_ms,
        "key": shown_bytes(record.key),
        "value": shown_bytes(record.value),
        "headers": [[shown_bytes(key), shown_bytes(value)] for key, value in record.headers],
    }


def shown_bytes(field: bytes | None) -> str | None:
    """`hex:` and digits unless it is readable UTF-8."""
    if field is None:
        return None
    try:
        text = field.decode()
    except UnicodeDecodeError:
        text = ""
    if not text.isprintable() or (field and not text):
        text = f"hex:{field.hex()}"
    return text if len(text) <= MOST_CHARACTERS else f"{text[:MOST_CHARACTERS]}… ({len(field)} bytes)"
