"""A worker or parameter server of TensorFlow's own: ``python -m gateway.pod.burst.tf_server``, until it is told to end.

Which one it is stands in TF_CONFIG, as TensorFlow has it. It must never run any of the cell: the chief sends it what to compute.
"""

from __future__ import annotations

import importlib
import json
import os
import sys


def main() -> int:
    config = json.loads(os.environ["TF_CONFIG"])
    try:
        tensorflow = importlib.import_module("tensorflow")  # the user's own, of whatever version
    except ModuleNotFoundError as exc:
        if exc.name != "tensorflow":
            raise
        print("The engine tf-ps needs TensorFlow in the kernel's environment: `pip install tensorflow`.", file=sys.stderr)
        return 1
    task = config["task"]
    server = tensorflow.distribute.Server(config["cluster"], job_name=task["type"], task_index=int(task["index"]), protocol="grpc")
    server.join()
    return 0


if __name__ == "__main__":
    sys.exit(main())
