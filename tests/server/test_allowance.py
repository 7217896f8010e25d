"""Who may start which kernels."""

from __future__ import annotations

from typing import Any

import pytest
from jupyter_client.kernelspec import KernelSpec, KernelSpecManager

from gateway.protocol.errors import ElasticError
from gateway.server.allowance import may_start
from gateway.server.kernels import ElasticMappingKernelManager


@pytest.mark.parametrize(
    ("metadata", "allowed", "denied", "who"),
    [
        ({}, [], [], {"ana", "bo", ""}),
        ({}, ["ana"], [], {"ana"}),
        ({}, [], ["ana"], {"bo", ""}),
        ({"allowed_users": ["bo"]}, ["ana"], [], {"bo"}),
        ({"allowed_users": []}, ["ana"], [], {"ana"}),
        ({"denied_users": ["bo"]}, [], ["ana"], {""}),
        ({"allowed_users": ["ana", "bo"]}, [], ["ana"], {"bo"}),
        ({"allowed_users": "ana"}, [], [], set()),
        ({"denied_users": 5}, [], [], set()),
        (None, [], [], {"ana", "bo", ""}),
    ],
)
def test_a_kernelspecs_own_list_counts_for_the_sites_and_who_is_denied_stays_so(metadata: Any, allowed, denied, who):
    assert {user for user in ("ana", "bo", "") if may_start(user, metadata, allowed, denied)} == who


def test_a_start_by_somebody_else_is_refused_with_the_kernels_name():
    spec = KernelSpec(argv=["x"], metadata={"allowed_users": ["ana"]})
    specs = KernelSpecManager()
    specs.get_kernel_spec = lambda name: spec
    found = ElasticMappingKernelManager(kernel_spec_manager=specs)
    found._check_spec("a100", "ana")
    with pytest.raises(ElasticError, match="bo may start no kernel 'a100'") as refused:
        found._check_spec("a100", "bo")
    assert refused.value.reason == "forbidden"
