"""A gateway of another version, as far as the code goes that it brings into pods."""

from __future__ import annotations

from gateway.backends.kubernetes import code
from gateway.cli import main

code.BESIDE = ()

if __name__ == "__main__":
    main()
