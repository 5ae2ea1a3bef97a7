"""The Helm chart, and plain manifests made from it."""
