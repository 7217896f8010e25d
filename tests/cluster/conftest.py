"""Fixtures of the tests whose kernels are pods."""

from tests.cluster.release import kernels_namespace, release  # noqa: F401 - fixtures
from tests.cluster.rig import gateway_image, one_gpu, pod_machine, pods  # noqa: F401 - fixtures
