"""The ranks of a burst on one machine: the agent that runs them, and what each of them does.

It is started by module name; it must never need more than the standard library.
"""
