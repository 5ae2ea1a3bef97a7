"""The loops of one flow: write heartbeats, and watch their arrival."""
