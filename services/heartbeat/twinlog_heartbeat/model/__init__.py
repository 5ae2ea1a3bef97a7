"""Heartbeats, delays, and the topology that they prove. Pure."""
