"""Kueue, JobSet, Trainer and CoreDNS as they are, on a cluster of the tests' own; `python -m tests.cluster controllers` builds them."""
