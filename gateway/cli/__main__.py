"""``python -m gateway.cli``: the same as ``jupyter elastic-gateway``, for processes that know only their interpreter."""

import sys

from . import main

if __name__ == "__main__":
    sys.exit(main())
