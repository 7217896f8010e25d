"""A site of several users: a gateway with a users file and two simulated GPUs, and each of them at it with a token of their own."""

from __future__ import annotations

from gateway.backends.places import user_name
from gateway.server.people import hashed
from tests.integration.machine import Machine
from tests.integration.serving import Gateway

TOKENS = {name: f"{name}-{'x' * 40}" for name in ("ana", "bo", "ops", "lab", user_name())}
EXTRA = {"ops": ", admin: true", "lab": ", front_end: true", "ana": ", groups: [students]"}


class Someone(Gateway):
    """The same gateway, asked by one of its users."""

    def __init__(self, gateway: Gateway, token: str) -> None:
        self.machine, self.url, self.port, self.token = gateway.machine, gateway.url, gateway.port, token
        self.headers = {"Authorization": f"token {token}"}


def serve_users(machine: Machine, *settings: str) -> Gateway:
    """With a rule for the group of students."""
    users, policy = machine.root / "users.yaml", machine.root / "policy.yaml"
    users.write_text("".join(f"{name}: {{token: '{hashed(token)}'{EXTRA.get(name, '')}}}\n" for name, token in TOKENS.items()))
    policy.write_text("groups: {students: {idle_timeout: 33}}")
    known = f"ElasticIdentityProvider.users_file={users}", f"Leases.policy_file={policy}"
    return Gateway(machine, *known, "ElasticGateway.simulated_gpus=2", *settings)
