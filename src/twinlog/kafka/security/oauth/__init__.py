"""Tokens for SASL OAUTHBEARER: configured by Java's keys (`settings`), fetched (`fetching`), cached
(`keeper`)."""
