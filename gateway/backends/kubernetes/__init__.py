"""Kernels as pods of a Kubernetes cluster. What is in here alone may import the cluster's client, and only when it is asked for."""
