"""ConfigSyncService over gRPC: requests and messages."""
