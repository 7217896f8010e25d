"""A rank's part in a burst that changes its size: where its loops are, what it saves, and when it leaves.

It must never need more than the standard library, nor import a framework that the user's objects don't use.
"""
