"""The request versions of a broker, and the features of its cluster (ApiVersions from version 3, KIP-584).

aiokafka uses version 0, which has no features.
"""

import struct
from collections.abc import Mapping
from typing import NamedTuple

from twinlog import __version__
from twinlog.kafka.protocol.encoding import (
    INT16,
    NO_TAGS,
    Frame,
    compact_string,
    skip_tags,
    take_compact_length,
    take_compact_string,
    take_varint,
)
from twinlog.kafka.protocol.requests import HandWrittenRequest, Pieces, no_throttle

_API_VERSIONS = 18
_FIRST_WITH_FEATURES = 3
_SOFTWARE = "twinlog"
"""Brokers show this name in their metrics, with Twinlog's version."""
_API = struct.Struct(">hhh")
"""API key, oldest and newest version."""
_LEVELS = struct.Struct(">hh")
"""The newest and oldest level of a feature that all brokers support."""
_THROTTLE_BYTES = 4
_FINALIZED = 2
"""The tag of the features in force."""


class BrokerFeatures(NamedTuple):
    """Empty if the broker is too old, or refused."""

    versions: Mapping[int, tuple[int, int]]
    """API key -> oldest and newest version."""
    finalized: Mapping[str, int]
    """Feature -> the level that is in force in the whole cluster; features that are not in force are
    absent."""


_NOTHING = BrokerFeatures({}, {})


def broker_features_request() -> HandWrittenRequest[BrokerFeatures]:
    """ApiVersions, versions 0 to 3."""

    def encode(version: int) -> Pieces:
        if version < _FIRST_WITH_FEATURES:
            return []
        return [compact_string(_SOFTWARE), compact_string(__version__), NO_TAGS]

    return HandWrittenRequest(
        _API_VERSIONS,
        range(4),
        encode,
        read_broker_features,
        flexible_from=_FIRST_WITH_FEATURES,
        throttle_of=no_throttle,
    )


def read_broker_features(data: Frame, position: int, version: int) -> BrokerFeatures:
    (error_code,) = INT16.unpack_from(data, position)
    if error_code or version < _FIRST_WITH_FEATURES:
        return _NOTHING
    versions: dict[int, tuple[int, int]] = {}
    count, position = take_compact_length(data, position + INT16.size)
    for _ in range(count):
        api_key, oldest, newest = _API.unpack_from(data, position)
        versions[api_key] = (oldest, newest)
        position = skip_tags(data, position + _API.size)
    finalized: dict[str, int] = {}
    tag_count, position = take_varint(data, position + _THROTTLE_BYTES)
    for _ in range(tag_count):
        tag, position = take_varint(data, position)
        size, position = take_varint(data, position)
        if tag == _FINALIZED:
            finalized = _read_finalized(data, position)
        position += size
    return BrokerFeatures(versions, finalized)


def _read_finalized(data: Frame, position: int) -> dict[str, int]:
    levels: dict[str, int] = {}
    count, position = take_compact_length(data, position)
    for _ in range(count):
        name, position = take_compact_string(data, position)
        levels[name], _ = _LEVELS.unpack_from(data, position)
        position = skip_tags(data, position + _LEVELS.size)
    return levels
