"""The configuration of every service: an MM2 properties file, read by MM2's rules into immutable typed
records."""

from twinlog.config.client_settings import ClientConfig as ClientConfig
from twinlog.config.client_settings import ClusterConfig as ClusterConfig
from twinlog.config.client_settings import FlowClients as FlowClients
from twinlog.config.client_settings import Origin as Origin
from twinlog.config.flow.settings import AclSyncMode as AclSyncMode
from twinlog.config.flow.settings import AutoOffsetReset as AutoOffsetReset
from twinlog.config.flow.settings import CheckpointSettings as CheckpointSettings
from twinlog.config.flow.settings import ConfigSyncSettings as ConfigSyncSettings
from twinlog.config.flow.settings import FlowConfig as FlowConfig
from twinlog.config.flow.settings import HeartbeatSettings as HeartbeatSettings
from twinlog.config.flow.settings import OffsetsMode as OffsetsMode
from twinlog.config.flow.settings import OffsetsSettings as OffsetsSettings
from twinlog.config.flow.settings import OffsetStorage as OffsetStorage
from twinlog.config.flow.settings import OffsetSyncsLocation as OffsetSyncsLocation
from twinlog.config.flow.settings import OffsetSyncsSettings as OffsetSyncsSettings
from twinlog.config.flow.settings import OnDataLoss as OnDataLoss
from twinlog.config.flow.settings import Selection as Selection
from twinlog.config.flow.settings import SourceSettings as SourceSettings
from twinlog.config.keys.spec import Service as Service
from twinlog.config.load import load as load
from twinlog.config.settings import Address as Address
from twinlog.config.settings import Configuration as Configuration
from twinlog.config.settings import LogFormat as LogFormat
from twinlog.config.settings import RuntimeSettings as RuntimeSettings
from twinlog.config.settings import ServiceEndpoints as ServiceEndpoints
from twinlog.config.settings import SparkSettings as SparkSettings
from twinlog.config.values.reader import Notice as Notice
from twinlog.config.values.reader import NoticeLevel as NoticeLevel
