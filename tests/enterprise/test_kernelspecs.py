"""Kernelspecs of an Enterprise Gateway: what becomes of each kind, and what its owner is told."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from jupyter_client.kernelspec import NoSuchKernel

from gateway.cli import main
from gateway.enterprise.kernelspecs import profile_name, translate
from gateway.server.kernelspecs import ElasticKernelSpecManager

LAUNCHER = [
    "python", "/usr/local/share/jupyter/kernels/python_kubernetes/scripts/launch_kubernetes.py",
    "--RemoteProcessProxy.kernel-id", "{kernel_id}", "--RemoteProcessProxy.port-range", "{port_range}",
    "--RemoteProcessProxy.response-address", "{response_address}", "--RemoteProcessProxy.public-key", "{public_key}",
]  # fmt: skip


def theirs(
    language: str = "python", kind: str = "k8s.KubernetesProcessProxy", argv: list[str] | None = None, **config: Any
) -> dict[str, Any]:
    stanza = {"class_name": f"enterprise_gateway.services.processproxies.{kind}", "config": config}
    return {
        "language": language, "display_name": f"{language} on Kubernetes", "env": {}, "argv": argv or LAUNCHER,
        "metadata": {"process_proxy": stanza, "debugger": True},
    }  # fmt: skip


def folder(root: Path, name: str, spec: dict[str, Any]) -> Path:
    (root / name / "scripts").mkdir(parents=True)
    (root / name / "kernel.json").write_text(json.dumps(spec))
    (root / name / "logo-64x64.png").write_bytes(b"logo")
    (root / name / "scripts/launch_kubernetes.py").write_text("")
    return root / name


def test_a_python_kernel_in_a_pod_becomes_a_kernel_of_a_profile() -> None:
    made = translate(theirs(image_name="elyra/kernel-py:3.2.3"), "kernel-py")
    assert made.spec == {
        "language": "python", "display_name": "python on Kubernetes", "env": {},
        "argv": ["python", "-m", "ipykernel_launcher", "-f", "{connection_file}", "--ext=gateway.magics"],
        "metadata": {
            "debugger": True, "supported_encryption": "curve",
            "kernel_provisioner": {"provisioner_name": "elastic-provisioner", "config": {"profile": "kernel-py"}},
        },
    }  # fmt: skip
    assert (made.image, made.told) == ("elyra/kernel-py:3.2.3", [])


def test_r_has_a_kernel_of_its_own_and_what_starts_by_a_connection_file_stays_as_it_is() -> None:
    assert translate(theirs("R")).spec["argv"][-1] == "{connection_file}"  # type: ignore[index]
    for argv in (["xcpp", "-f", "{connection_file}"], ["bash", "-c", "exec thing {connection_file}"]):
        assert translate(theirs("C++", "processproxy.LocalProcessProxy", argv)).spec["argv"] == argv  # type: ignore[index]


@pytest.mark.parametrize(
    "spec",
    [
        theirs(kind="yarn.YarnClusterProcessProxy"), theirs(kind="conductor.ConductorClusterProcessProxy"),
        theirs(kind="crd.CustomResourceProcessProxy"), theirs(argv=["bash", "/opt/spark_python/run.sh"]), theirs("scala"),
        theirs(kind="distributed.DistributedProcessProxy"),
    ],
    ids=["yarn", "conductor", "custom resource", "spark", "scala", "ssh"],
)  # fmt: skip
def test_what_can_t_run_here_is_told_and_not_made(spec: dict[str, Any]) -> None:
    made = translate(spec)
    assert made.spec is None
    assert len(made.told) == 1 and ("no backend of this gateway" in made.told[0] or "isn't known" in made.told[0])


def test_a_launcher_that_is_told_of_no_spark_starts_a_kernel_like_others() -> None:
    made = translate(theirs(argv=[*LAUNCHER, "--RemoteProcessProxy.spark-context-initialization-mode", "none"]))
    assert made.spec is not None and made.told == []


def test_what_a_stanza_says_besides_is_told() -> None:
    assert translate(theirs(namespace="x")).told == ["namespace of its process_proxy does nothing here"]
    assert "is none of Enterprise Gateway's process proxies" in translate(theirs(kind="ours.OfOurSite")).told[0]


def test_whose_kernels_they_are_stays_so() -> None:
    made = translate(theirs(authorized_users="ana, bo", unauthorized_users=["cy"]))
    assert made.spec is not None and made.told == []
    assert (made.spec["metadata"]["allowed_users"], made.spec["metadata"]["denied_users"]) == (["ana", "bo"], ["cy"])


BROKEN: list[dict[str, Any]] = [
    {"metadata": {"process_proxy": "k8s"}}, {"metadata": {"process_proxy": None}}, {"metadata": {"process_proxy": {"class_name": 5}}},
    {"metadata": {"process_proxy": {"class_name": "x.LocalProcessProxy", "config": ["a"]}}},
    {"metadata": {"process_proxy": {"class_name": "x.LocalProcessProxy", "config": {"authorized_users": 5}}}},
    {**theirs(), "argv": "python"}, {**theirs(), "argv": [5]}, {**theirs(), "env": []}, {**theirs(), "language": None},
]  # fmt: skip


@pytest.mark.parametrize("spec", BROKEN, ids=str)
def test_a_broken_one_is_told_and_not_made_and_keeps_no_other(
    spec: dict[str, Any], tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    made = translate(spec)
    assert made.spec is None and len(made.told) == 1
    folder(tmp_path, "whole", theirs())
    folder(tmp_path, "broken", spec)
    manager = ElasticKernelSpecManager(kernel_dirs=[str(tmp_path)], ensure_native_kernel=False)
    assert set(manager.get_all_specs()) == {"whole"}
    assert caplog.text.count("isn't offered") == 1 and "Traceback" not in caplog.text
    assert main(["kernelspecs", "import", str(tmp_path), "--json"]) == 1


@pytest.mark.parametrize("text", ["{", "[]", '{"argv": 5}', '{"metadata": []}', '{"interrupt_mode": "never"}', "\x00"])
def test_a_kernelspec_that_is_none_is_told_once_and_isn_t_offered(text: str, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    (tmp_path / "broken").mkdir()
    (tmp_path / "broken/kernel.json").write_text(text)
    manager = ElasticKernelSpecManager(kernel_dirs=[str(tmp_path)], ensure_native_kernel=False)
    for _ in range(2):
        with pytest.raises(NoSuchKernel):
            manager.get_kernel_spec("broken")
    assert manager.get_all_specs() == {}
    assert caplog.text.count("can't be read, and isn't offered") == 1


def test_images_of_any_spelling_give_a_profile_a_name() -> None:
    images = ["elyra/kernel-py:3.2.3", "host:5000/a/Kernel_TF.gpu@sha256:00", "kernel", "___"]
    assert [profile_name(image) for image in images] == ["kernel-py", "kernel-tf-gpu", "kernel", "imported"]


def test_the_gateway_reads_theirs_as_ours_and_leaves_out_what_can_t_run(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    folder(tmp_path, "python_kubernetes", theirs(image_name="elyra/kernel-py:3.2.3"))
    folder(tmp_path, "spark_python", theirs(kind="yarn.YarnClusterProcessProxy"))
    manager = ElasticKernelSpecManager(kernel_dirs=[str(tmp_path)], ensure_native_kernel=False)
    assert set(manager.get_all_specs()) == {"python_kubernetes"}
    assert manager.get_kernel_spec("python_kubernetes").argv[1:3] == ["-m", "ipykernel_launcher"]
    with pytest.raises(NoSuchKernel):
        manager.get_kernel_spec("spark_python")
    assert caplog.text.count("isn't offered") == 1


def test_an_import_shows_what_it_makes_and_writes_it_where_it_is_told(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    source, to = tmp_path / "theirs", tmp_path / "ours"
    folder(source, "python_kubernetes", theirs(image_name="elyra/kernel-py:3.2.3"))
    folder(source, "scala", theirs("scala"))
    folder(source, "plain", {"argv": ["x", "{connection_file}"], "display_name": "plain", "language": "x"})
    assert main(["kernelspecs", "import", str(source)]) == 1
    assert not to.exists()
    shown = capsys.readouterr().out
    assert '"kernel-py": {\n    "image": "elyra/kernel-py:3.2.3"\n  }' in shown
    assert "isn't known" in shown
    assert main(["kernelspecs", "import", str(source / "python_kubernetes"), "--to", str(to), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["kernelspecs"][0]["became"] == "a kernelspec of ours"
    assert sorted(path.name for path in (to / "python_kubernetes").iterdir()) == ["kernel.json", "logo-64x64.png"]


def test_an_import_of_nothing_says_so(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["kernelspecs", "import", str(tmp_path)]) == 2
    assert "There is no kernel.json in" in capsys.readouterr().err


def test_a_python_kernel_of_theirs_starts_as_the_one_that_comes_with_the_gateway() -> None:
    ours = json.loads((Path(__file__).parents[2] / "kernelspecs/elastic-python/kernel.json").read_text())
    made = translate(theirs()).spec
    assert made is not None
    assert (made["argv"], made["metadata"]) == (ours["argv"], ours["metadata"])
