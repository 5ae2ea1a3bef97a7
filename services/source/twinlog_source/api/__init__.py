"""SourceService over gRPC: requests, messages, and the feed of partitions."""
