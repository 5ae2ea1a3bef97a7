"""The configuration of every service: an MM2 properties file, read by MM2's rules into immutable typed
records."""

from twinlog.config.client_settings import ClientConfig, ClusterConfig, FlowClients, Origin
from twinlog.config.flow.settings import (
    AclSyncMode,
    AutoOffsetReset,
    CheckpointSettings,
    ConfigSyncSettings,
    FlowConfig,
    HeartbeatSettings,
    OffsetsMode,
    OffsetsSettings,
    OffsetStorage,
    OffsetSyncsLocation,
    OffsetSyncsSettings,
    OnDataLoss,
    Selection,
    SourceSettings,
)
from twinlog.config.keys.spec import Service
from twinlog.config.load import load
from twinlog.config.problems import Notice, NoticeLevel
from twinlog.config.settings import (
    Address,
    Configuration,
    LogFormat,
    RuntimeSettings,
    ServiceEndpoints,
    SparkSettings,
)

__all__ = [
    "load",
    "Configuration",
    "FlowConfig",
    "FlowClients",
    "ClientConfig",
    "Origin",
    "ClusterConfig",
    "SourceSettings",
    "OffsetStorage",
    "OffsetSyncsSettings",
    "OffsetSyncsLocation",
    "OffsetsMode",
    "OffsetsSettings",
    "AutoOffsetReset",
    "OnDataLoss",
    "CheckpointSettings",
    "HeartbeatSettings",
    "AclSyncMode",
    "ConfigSyncSettings",
    "Selection",
    "Service",
    "ServiceEndpoints",
    "Address",
    "SparkSettings",
    "RuntimeSettings",
    "LogFormat",
    "Notice",
    "NoticeLevel",
]
