"""The hand-written part of Kafka's wire protocol: connections, frames, requests."""
