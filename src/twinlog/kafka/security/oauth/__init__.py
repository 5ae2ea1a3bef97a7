"""Tokens for SASL OAUTHBEARER: read from Java's keys (`settings`), fetched (`fetching`), kept (`keeper`)."""
