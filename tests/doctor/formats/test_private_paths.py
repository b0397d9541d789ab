from __future__ import annotations

import pytest

from doctor.formats.private_paths import executable_name, without_folders


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("Loaded CUPTI library: /opt/nvidia/x/libcupti.so.12.8", "Loaded CUPTI library: libcupti.so.12.8"),
        ("see /tmp/alice/pid_55_stdout.log for output", "see pid_55_stdout.log for output"),
        (r"Loaded C:\Program Files\NVIDIA Corporation\Nsight\cupti64.dll", "Loaded cupti64.dll"),
        ("/home/alice/serve.py(7): main", "serve.py(7): main"),
        ("torch/nn/modules/module.py(1): forward", "torch/nn/modules/module.py(1): forward"),
        ("see https://docs.nvidia.com/nsight/Guide", "see https://docs.nvidia.com/nsight/Guide"),
        ("1/2 of the buffers, ratio a / b", "1/2 of the buffers, ratio a / b"),
        ("nothing here", "nothing here"),
    ],
)
def test_absolute_paths_lose_their_folders(text: str, expected: str) -> None:
    assert without_folders(text) == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("/opt/torch/.venv/bin/python3", "python3"),
        ("python3 serve.py --api-key=s3cret/x", "python3"),
        ("/usr/bin/env python /home/alice/run", "env"),
        (r"C:\Program Files\Python\python.exe --token t", "python.exe"),
        ("python", "python"),
        ("", None),
        ("  ", None),
        (None, None),
    ],
)
def test_a_process_is_named_by_its_executable_alone(text: str | None, expected: str | None) -> None:
    assert executable_name(text) == expected
