"""Beats, delays and the topology that they prove. Pure."""
