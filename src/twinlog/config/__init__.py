"""The configuration of every service: an MM2 properties file, read by MM2's rules, as frozen typed
records."""

from twinlog.config.load import load
from twinlog.config.problems import Notice, NoticeLevel
from twinlog.config.settings import (
    AclSyncMode,
    Address,
    AutoOffsetReset,
    CheckpointSettings,
    ClientConfig,
    ClusterConfig,
    ConfigSyncSettings,
    Configuration,
    FlowClients,
    FlowConfig,
    HeartbeatSettings,
    LogFormat,
    OffsetStorage,
    OffsetSyncsLocation,
    OffsetSyncsSettings,
    OnDataLoss,
    Origin,
    RuntimeSettings,
    Selection,
    ServiceEndpoints,
    SourceSettings,
    SparkSettings,
)
from twinlog.config.spec import Service

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
