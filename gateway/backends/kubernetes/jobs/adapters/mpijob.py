"""MPIJob of the MPI operator (``kubeflow.org/v2beta1``): rank 0's agent runs ``mpirun`` in the launcher, workers run ``sshd``. Pure.

The image needs Open MPI and an SSH server. Nobody is root, so the server has a port, a key and a list of keys of its own: the operator's.
"""

from __future__ import annotations

from collections.abc import Sequence

from ...manifests import Object
from .parts import INDEX, Part, kept_seconds, metadata, only

KEYS = "/run/elastic/ssh"  # where the operator's keys are mounted
PORT = 2222
_CLIENT = f"-p {PORT} -i {KEYS}/id_rsa -o StrictHostKeyChecking=no -o UserKnownHostsFile=/dev/null -o LogLevel=ERROR"
_SERVER = {"HostKey": f"{KEYS}/id_rsa", "AuthorizedKeysFile": f"{KEYS}/authorized_keys", "PidFile": "none", "StrictModes": "no"}


def mpijob(parts: Sequence[Part]) -> Object:
    """Raises ``BadRequest`` where there are several roles."""
    part = only(parts, "MPIJob")
    launcher, worker = part.template(), part.template()
    for template in (launcher, worker):
        template["spec"].pop("subdomain", None)
    [of_launcher], [of_worker] = launcher["spec"]["containers"], worker["spec"]["containers"]
    of_launcher["env"] = [*of_launcher["env"], {"name": INDEX, "value": "0"}]
    of_launcher["env"] += [{"name": name, "value": _CLIENT} for name in ("OMPI_MCA_plm_rsh_args", "PRTE_MCA_plm_ssh_args")]
    limits = of_launcher["resources"]["limits"]
    for gpu in [each for each in limits if each not in ("cpu", "memory")]:  # those are the workers'
        del limits[gpu], of_launcher["resources"]["requests"][gpu]
    options = [word for name, value in _SERVER.items() for word in ("-o", f"{name}={value}")]
    of_worker["command"] = ["/usr/sbin/sshd", "-De", "-p", str(PORT), *options]
    run: Object = {"suspend": True, "cleanPodPolicy": "All", "backoffLimit": 0, "ttlSecondsAfterFinished": kept_seconds(parts)}
    if (limit := part.job["spec"].get("activeDeadlineSeconds")) is not None:
        run["activeDeadlineSeconds"] = limit
    replicas = {
        "Launcher": {"replicas": 1, "restartPolicy": "Never", "template": launcher},
        "Worker": {"replicas": part.count, "restartPolicy": "Never", "template": worker},
    }
    spec = {
        "slotsPerWorker": part.procs, "mpiImplementation": "OpenMPI", "sshAuthMountPath": KEYS, "runPolicy": run,
        "mpiReplicaSpecs": replicas,
    }  # fmt: skip
    return {"apiVersion": "kubeflow.org/v2beta1", "kind": "MPIJob", "metadata": metadata(parts), "spec": spec}
