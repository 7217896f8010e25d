"""What runs beside a kernel, on a laptop as in a pod: the supervisor and its gate.

It imports ``gateway.protocol`` and pyzmq alone, so that a user's image needs next to nothing.
"""
