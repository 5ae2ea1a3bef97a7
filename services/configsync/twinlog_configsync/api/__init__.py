"""ConfigSyncService over gRPC: requests, and conversion of messages."""
