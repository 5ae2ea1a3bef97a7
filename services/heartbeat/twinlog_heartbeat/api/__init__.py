"""HeartbeatService over gRPC."""
