"""Alerts and boards, written as code: `python -m deploy.observability` writes deploy/prometheus and
deploy/grafana from it, and a test compares. Nothing there is edited by hand.
"""
