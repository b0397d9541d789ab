"""The plugin inside real pytest sessions, on recordings of the samples."""

from __future__ import annotations

import importlib
import importlib.util
import json
import subprocess
import sys
import tomllib
from pathlib import Path
from xml.etree import ElementTree as ET

import pytest

from doctor.api import diagnose
from doctor.pytest_plugin.telling import BREACHES, FINDINGS, VERDICT, summary
from tests.support.trace_builder import GEMM, HEAD_GEMM, Program, decode_step

pytest_plugins = ["pytester"]

RECORDING_CONFTEST = """
import shutil
from contextlib import contextmanager

@contextmanager
def written(item, folder):
    yield
    shutil.copy({trace!r}, folder / "trace.json")

def pytest_doctor_record(item, folder):
    return written(item, folder)
"""


@pytest.fixture(scope="module", autouse=True)
def extension_modules_are_loaded(tmp_path_factory: pytest.TempPathFactory) -> None:
    """Inner sessions forget what they import, and an extension module does not survive being imported twice."""
    importlib.util.find_spec("torch") and importlib.import_module("torch")
    program = Program()
    decode_step(program)
    diagnose(program.write(tmp_path_factory.mktemp("first") / "trace.json"))


@pytest.fixture
def launch_bound(pytester: pytest.Pytester) -> Path:
    """A trace of eager decode beside the tests of the inner session."""
    program = Program()
    for _ in range(6):
        decode_step(program)
    return program.write(pytester.path / "sick.json")


@pytest.fixture
def graphed(pytester: pytest.Pytester) -> Path:
    """A trace of decode by CUDA graphs."""
    program = Program()
    for _ in range(6):
        program.copy("HtoD pinned", 64)
        program.graph([(GEMM, 9.0)] * 64 + [(HEAD_GEMM, 12.0)])
        program.wait()
    return program.write(pytester.path / "well.json")


def run(pytester: pytest.Pytester, *arguments: str) -> pytest.RunResult:
    """A session of its own, without the other plugins that happen to be installed here."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")
        return pytester.runpytest_inprocess("-p", "doctor.pytest_plugin.hooks", "-p", "no:cacheprovider", *arguments)


def test_the_fixture_asserts_on_recordings(pytester: pytest.Pytester, launch_bound: Path, graphed: Path) -> None:
    pytester.makepyfile(
        """
        def test_ill(diagnosis):
            diagnosis.of("sick.json").assert_healthy()

        def test_allowed_with_what_has_the_same_cause(diagnosis):
            diagnosis.of("sick.json").assert_healthy(allow=["host-dispatch-bound"])

        def test_what_is_known(diagnosis):
            seen = diagnosis.of("well.json")
            assert seen.vitals["launches_per_step"] == 1
            assert "host-dispatch-bound" not in [finding.rule for finding in seen.findings]
            assert isinstance(seen.ruled_out, tuple)
            seen.assert_healthy(at_most="low", launches_per_step=2)

        def test_bound(diagnosis):
            diagnosis.of("well.json").assert_healthy(syncs_per_step=0)
        """
    )
    done = run(pytester)
    done.assert_outcomes(passed=2, failed=2)
    done.stdout.fnmatch_lines(
        ["*sick.json is not healthy:*", "*idle with an empty queue: * of window*", "*more: doctor explain host-*"]
    )
    done.stdout.fnmatch_lines(["*syncs_per_step is 1 and must be at most 0*"])
    done.stdout.fnmatch_lines(["*= doctor =*", "PASSED *test_what_is_known: *"])


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        ("allow=['no-such-rule']", "no rule is called so"),
        ("at_most='terrible'", "at_most is 'terrible'"),
        ("gpu_bussy=0.5", "no vital 'gpu_bussy'"),
        ("gpu_busy='much'", "gpu_busy is 'much'"),
        ("'low'", "named arguments only"),
    ],
)
def test_a_mistake_in_a_marker_is_told_before_anything_runs(
    pytester: pytest.Pytester, arguments: str, complaint: str
) -> None:
    pytester.makepyfile(f"import pytest\n@pytest.mark.healthy({arguments})\ndef test_it(): pass")
    done = run(pytester)
    assert done.ret == pytest.ExitCode.USAGE_ERROR
    done.stderr.fnmatch_lines([f"ERROR: *test_it: *{complaint}*"])


def test_the_summary_names_a_vital_out_of_bounds() -> None:
    left = {VERDICT: "No rule found anything worth curing", FINDINGS: "tiny-kernels", BREACHES: "gpu_busy,tiny-kernels"}
    assert summary(left) == "gpu_busy out of bounds. No rule found anything worth curing"
    assert summary({VERDICT: "The GPU waits", FINDINGS: "tiny-kernels", BREACHES: "tiny-kernels"}) == "The GPU waits"


def test_a_marked_test_is_judged_by_what_its_body_left(pytester: pytest.Pytester, launch_bound: Path) -> None:
    pytester.makeconftest(RECORDING_CONFTEST.format(trace=str(launch_bound)))
    pytester.makepyfile(
        """
        import pytest

        @pytest.mark.healthy()
        def test_ill(): pass

        @pytest.mark.healthy(allow=["host-dispatch-bound"])
        def test_allowed(): pass

        @pytest.mark.healthy()
        def test_broken(): assert 1 == 2
        """
    )
    done = run(pytester, "--junitxml=report.xml")
    done.assert_outcomes(failed=2, passed=1)
    done.stdout.fnmatch_lines(["*test_ill is not healthy:*", "*recording kept in *", "*assert 1 == 2*"])
    properties = {
        entry.get("name"): entry.get("value")
        for entry in ET.parse(pytester.path / "report.xml").iterfind(".//testcase[@name='test_ill']//property")
    }
    assert properties["doctor.breaches"] == "host-dispatch-bound"
    assert float(str(properties["doctor.gpu_busy"])) < 0.5


def test_without_a_gpu_a_marked_test_runs_its_body_and_says_that_no_more_was_looked_at(
    pytester: pytest.Pytester,
) -> None:
    torch = pytest.importorskip("torch", reason="needs the extra 'engine'")
    if torch.cuda.is_available():
        pytest.skip("a GPU is here")
    pytester.makepyfile(
        """
        import pytest

        @pytest.mark.healthy(gpu_busy=0.6)
        def test_body(): open("ran", "w").close()

        @pytest.mark.healthy()
        def test_broken(): assert 1 == 2
        """
    )
    done = run(pytester, "-rs")
    done.assert_outcomes(skipped=1, failed=1)
    assert (pytester.path / "ran").exists()
    done.stdout.fnmatch_lines(["SKIPPED*the body ran*torch sees no GPU here*"])


def test_a_body_that_leaves_nothing_to_diagnose_fails(pytester: pytest.Pytester) -> None:
    trace = pytester.path / "empty.json"
    trace.write_text(json.dumps({"schemaVersion": 1, "traceEvents": []}))
    pytester.makeconftest(RECORDING_CONFTEST.format(trace=str(trace)))
    pytester.makepyfile("import pytest\n@pytest.mark.healthy()\ndef test_it(): pass")
    done = run(pytester)
    done.assert_outcomes(failed=1)


def test_checks_of_a_file_are_tests(pytester: pytest.Pytester, launch_bound: Path, graphed: Path) -> None:
    (pytester.path / "doctor.toml").write_text(
        "[checks.graphs]\nevidence = 'well.json'\n[checks.eager]\nevidence = 'sick.json'\n"
        "[checks.missing]\nevidence = 'nowhere.json'\n"
    )
    done = run(pytester)
    done.assert_outcomes(passed=1, failed=2)
    done.stdout.fnmatch_lines(["*eager is not healthy:*", "*the evidence is unusable: *nowhere.json*"])


def test_a_mistake_in_a_file_of_checks_is_an_error_of_collection(pytester: pytest.Pytester) -> None:
    (pytester.path / "doctor.toml").write_text("[checks.a]\nevidence = 'a.json'\nat_mots = 'low'\n")
    done = run(pytester)
    done.assert_outcomes(errors=1)
    done.stdout.fnmatch_lines(["*doctor.toml*unknown field `at_mots`*"])


def test_somebody_elses_doctor_toml_is_left_alone(pytester: pytest.Pytester) -> None:
    (pytester.path / "doctor.toml").write_text("[clinic]\nname = 'x'\n")
    pytester.makepyfile("def test_it(): pass")
    run(pytester).assert_outcomes(passed=1)


def test_workers_of_xdist_bring_summary_and_properties_home(
    pytester: pytest.Pytester, launch_bound: Path, graphed: Path
) -> None:
    (pytester.path / "doctor.toml").write_text("[checks.eager]\nevidence = 'sick.json'\n")
    pytester.makepyfile(
        """
        import pytest

        def test_well(diagnosis): diagnosis.of("well.json").assert_healthy()

        @pytest.mark.healthy(gpu_bussy=1)
        def test_misspelt(): pass
        """
    )
    done = run(pytester, "-p", "xdist.plugin", "-n", "1", "--junitxml=report.xml")
    done.assert_outcomes(passed=1, failed=1, errors=1)
    done.stdout.fnmatch_lines(["*= doctor =*", "PASSED *test_well: *", "FAILED *eager: *"])
    done.stdout.fnmatch_lines(["*there is no vital 'gpu_bussy'*"])
    names = {entry.get("name") for entry in ET.parse(pytester.path / "report.xml").iterfind(".//property")}
    assert {"doctor.verdict", "doctor.gpu_busy"} <= names


def test_a_suite_that_uses_nothing_of_it_loads_nothing_of_the_diagnosis(tmp_path: Path) -> None:
    (tmp_path / "test_plain.py").write_text(
        "import sys\n"
        "def test_it():\n"
        "    heavy = {'duckdb', 'pyarrow', 'sqlalchemy', 'numpy', 'rich', 'torch', 'msgspec', 'click'}\n"
        "    assert not heavy & set(sys.modules)\n"
        "    assert not [name for name in sys.modules if name.startswith(('doctor.api', 'doctor.checks', 'rules'))]\n"
    )
    command = [sys.executable, "-m", "pytest", "-q", "-p", "doctor.pytest_plugin.hooks", "-p", "no:cacheprovider"]
    root = Path(__file__).parents[3]
    environment = {"PATH": "/usr/bin:/bin", "PYTHONPATH": str(root), "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
    done = subprocess.run([*command, "."], cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout


def test_the_package_announces_the_plugin_to_pytest() -> None:
    project = tomllib.loads((Path(__file__).parents[3] / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    assert project["entry-points"]["pytest11"] == {"doctor": "doctor.pytest_plugin.hooks"}
    assert importlib.import_module("doctor.pytest_plugin.hooks").pytest_configure
