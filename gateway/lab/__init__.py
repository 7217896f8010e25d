"""The JupyterLab side: what runs in the user's own Lab server, in front of a gateway reached by ``--gateway-url``.

It imports ``gateway.protocol`` alone, and does nothing at all in a server that has no gateway.
"""


def _jupyter_server_extension_points() -> list[dict[str, str]]:
    return [{"module": "gateway.lab.extension"}]
