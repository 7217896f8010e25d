"""Kueue, JobSet and Trainer as they are, on a cluster of the tests' own; `python -m tests.cluster controllers` builds them."""
