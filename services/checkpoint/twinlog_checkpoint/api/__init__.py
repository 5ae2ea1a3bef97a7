"""CheckpointService over gRPC: requests, messages, and what RPCs ask of the flows."""
