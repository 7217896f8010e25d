"""A parameter server where there is no TensorFlow."""

from __future__ import annotations

import subprocess
import sys


def test_where_there_is_no_tensorflow_a_sentence_says_what_to_install():
    code = (
        "import os, runpy, sys\nsys.modules['tensorflow'] = None\nos.environ['TF_CONFIG'] = '{}'\n"
        "runpy.run_module('gateway.pod.burst.tf_server', run_name='__main__')"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 1 and done.stderr.count("\n") == 1 and "pip install tensorflow" in done.stderr, done.stderr
