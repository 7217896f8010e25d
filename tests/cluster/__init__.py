"""A real Kubernetes for the tests: its programs, its images, two nodes in namespaces of this machine, and the fixtures that hand it out.

``python -m tests.cluster build`` makes what is needed, once; ``up``, ``down`` and ``status`` keep one cluster beside several test runs.
"""
