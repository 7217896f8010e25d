"""What the supervisor has a kernel run, unseen."""

from __future__ import annotations

import pytest

from gateway.pod.aside import exposing


@pytest.mark.parametrize(
    ("language", "code"),
    [
        ("r", "Sys.setenv(CUDA_VISIBLE_DEVICES='GPU-1,GPU-2')\nSys.setenv(CUDA_DEVICE_ORDER='PCI_BUS_ID')"),
        ("julia", 'ENV["CUDA_VISIBLE_DEVICES"] = "GPU-1,GPU-2";\nENV["CUDA_DEVICE_ORDER"] = "PCI_BUS_ID";'),
        ("cobol", ""),
    ],
)
def test_languages_set_their_environment_in_their_own_words(language: str, code: str) -> None:
    assert exposing(["GPU-1", "GPU-2"], language) == code
