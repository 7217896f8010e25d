"""What a site that runs Jupyter Enterprise Gateway brings along: its environment variables and its kernelspecs. Pure.

It must never pass over in silence what it can't translate.
"""
