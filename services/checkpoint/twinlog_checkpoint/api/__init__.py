"""CheckpointService over gRPC: requests, conversion of messages, and how each RPC is answered."""
