"""Members of a burst are numbered role by role."""

from __future__ import annotations

import pytest

from gateway.protocol.errors import BadRequest
from gateway.protocol.roles import Role, checked, members


def test_members_are_numbered_role_by_role_and_ranked_within_their_own():
    found = members([Role("worker", 2), Role("simulator", 3, leads=False)])
    assert [(each.number, each.role.name, each.rank) for each in found] == [
        (0, "worker", 0), (1, "worker", 1), (2, "simulator", 0), (3, "simulator", 1), (4, "simulator", 2),
    ]  # fmt: skip


def test_a_role_survives_json_and_ignores_what_a_neighbouring_version_adds():
    role = Role("simulator", 3, image="sim:2", cpu="2", leads=False)
    assert Role.from_json({**role.to_json(), "new": 1}) == role


@pytest.mark.parametrize("name", ["", "Simulator", "sim_1", "-sim", "sim-", "1sim", "s" * 21, "sim.a", "sim\n"])
def test_a_role_whose_name_can_not_be_part_of_a_name_in_dns_is_refused(name):
    with pytest.raises(BadRequest, match="small letters"):
        checked([Role(name, 1)])


def test_two_roles_of_one_name_are_refused():
    with pytest.raises(BadRequest, match="two roles named simulator"):
        checked([Role("simulator", 1), Role("simulator", 2)])
