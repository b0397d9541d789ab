"""The marker on a real device: the body of the test is recorded with the profiler of torch."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch", reason="needs the extra 'engine'")

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs an NVIDIA GPU"),
]
pytest_plugins = ["pytester"]


def test_a_body_is_judged_by_its_device_work(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(
        """
        import pytest, torch

        @pytest.mark.healthy(at_most="critical", gpu_busy=0.5)
        def test_large_products():
            matrix = torch.randn(8192, 8192, device="cuda", dtype=torch.bfloat16)
            for _ in range(40):
                matrix @ matrix

        @pytest.mark.healthy(at_most="critical", gpu_busy=0.5)
        def test_small_additions():
            vector = torch.randn(64, device="cuda")
            for _ in range(2000):
                vector = vector + 1
                vector.sum().item()

        @pytest.mark.healthy()
        def test_no_device_work():
            pass
        """
    )
    done = pytester.runpytest_subprocess("-p", "doctor.pytest_plugin.hooks", "-p", "no:cacheprovider")
    done.assert_outcomes(passed=1, failed=2)
    done.stdout.fnmatch_lines(["*test_small_additions is not healthy:*", "*gpu_busy is * and must be at least 0.5*"])
    done.stdout.fnmatch_lines(["*test_no_device_work is not healthy:*"])
