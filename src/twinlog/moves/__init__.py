"""The record of moves of groups between the clusters of a flow: what it says, and how it is stored."""
