"""Boards, written as code, and the alerts of deploy/prometheus. `python -m deploy.observability` writes
deploy/grafana and the live page's runbook, and a test compares. Nothing there is edited by hand.
"""
