"""An elastic Jupyter gateway: kernels hold a GPU only while their cells execute.

This package's root imports nothing, so that a supervisor beside a kernel starts in milliseconds.
"""

__version__ = "0.1.0"
