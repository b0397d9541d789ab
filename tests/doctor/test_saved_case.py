"""A case that `--save` kept is evidence itself."""

from __future__ import annotations

import subprocess
import sys
from contextlib import closing
from pathlib import Path

import duckdb
import pytest

import doctor
from doctor.api import load_evidence
from doctor.case.derive import WindowChoice, derive, is_derived
from doctor.case.schema import SCHEMA_VERSION
from doctor.case.store import create_case
from doctor.cli.main import main
from doctor.discovery import EvidencePath
from doctor.errors import CaseError, UsageError
from tests.support.samples import sample, trace_of
from tests.support.sqlite_export import export_with

TRACE = trace_of(sample("launch-bound-decode-nsys-report"))


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("case") / "kept.duckdb"
    with closing(doctor.load(TRACE, save=path)) as case:
        derive(case)
    return path


def test_a_saved_case_gives_the_diagnosis_of_its_evidence(saved: Path) -> None:
    before = saved.read_bytes()
    again = doctor.diagnose(saved)
    assert again == doctor.diagnose(TRACE)
    assert saved.read_bytes() == before


def test_another_window_is_taken_from_a_copy(saved: Path) -> None:
    before = saved.read_bytes()
    options = doctor.DiagnosisOptions(range_name="decode_step")
    window = doctor.diagnose(saved, options=options).window
    assert window is not None
    assert window.chosen_by.startswith("--range decode_step")
    assert saved.read_bytes() == before


def test_a_case_that_was_never_derived_is_derived_in_a_copy(tmp_path: Path) -> None:
    doctor.load(TRACE, save=tmp_path / "raw.duckdb").close()
    assert doctor.diagnose(tmp_path / "raw.duckdb").findings[0].rule == "host-dispatch-bound"


def test_a_read_only_case_refuses_tables_of_another_window(saved: Path) -> None:
    with closing(doctor.open_case(saved)) as case, pytest.raises(CaseError, match="cannot be derived"):
        derive(case, WindowChoice(range_name="decode_step"))


def test_a_saved_case_stands_alone(saved: Path) -> None:
    evidence = [EvidencePath(path, path.name) for path in (saved, TRACE)]
    with pytest.raises(UsageError, match="diagnosed alone"):
        load_evidence(evidence)


def test_a_saved_case_is_not_saved_again(saved: Path, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="is a saved case already"):
        doctor.load(saved, save=tmp_path / "again.duckdb")


def test_another_duckdb_file_is_told_from_a_case(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    duckdb.connect(str(tmp_path / "other.duckdb")).close()
    assert main(["diagnose", str(tmp_path / "other.duckdb")]) == 2
    assert "is not a case file" in capfd.readouterr().err


def test_a_case_without_its_tables_is_refused(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    with duckdb.connect(str(tmp_path / "hollow.duckdb")) as hollow:
        hollow.execute("CREATE TABLE schema_version (version INTEGER, doctor_version TEXT)")
        hollow.execute("INSERT INTO schema_version VALUES (?, 'x')", [SCHEMA_VERSION])
    for arguments in (["diagnose"], ["sql", "SELECT 1"]):
        assert main([arguments[0], str(tmp_path / "hollow.duckdb"), *arguments[1:]]) == 2
        (line,) = capfd.readouterr().err.splitlines()
        assert "which every case of this doctor has" in line


@pytest.mark.parametrize("share", [0.01, 0.3, 0.9])
def test_a_cut_case_is_refused(saved: Path, tmp_path: Path, share: float, capfd: pytest.CaptureFixture[str]) -> None:
    whole = saved.read_bytes()
    (tmp_path / "cut.duckdb").write_bytes(whole[: int(len(whole) * share)])
    assert main(["diagnose", str(tmp_path / "cut.duckdb")]) == 2
    (line,) = capfd.readouterr().err.splitlines()
    assert "unexpected" not in line


def test_two_may_look_at_one_case(saved: Path) -> None:
    with closing(doctor.open_case(saved)) as one, closing(doctor.open_case(saved)) as other:
        assert one.execute("SELECT count(*) FROM kernel").fetchall() == (
            other.execute("SELECT count(*) FROM kernel").fetchall()
        )
    again = [sys.executable, "-m", "doctor.cli.main", "sql", str(saved), "SELECT count(*) FROM kernel"]
    with closing(doctor.open_case(saved)):
        assert subprocess.run(again, capture_output=True, check=False).returncode == 0


FASTER = """
import sys
from pathlib import Path
from doctor.cli.main import main
def hook(event, arguments):
    if event == "os.link":
        Path("case.duckdb").write_text("of another process")
sys.addaudithook(hook)
sys.exit(main(sys.argv[1:]))
"""
"""Another process saves the same case at the moment before this one does."""


def test_who_saves_second_leaves_the_case_of_the_first(tmp_path: Path) -> None:
    command = [sys.executable, "-c", FASTER, "diagnose", str(trace_of(sample("growing-kv"))), "--save", "case.duckdb"]
    ended = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert (ended.returncode, ended.stdout) == (2, "")
    (line,) = ended.stderr.splitlines()
    assert "another process has saved it meanwhile" in line
    assert [path.name for path in tmp_path.iterdir()] == ["case.duckdb"]
    assert (tmp_path / "case.duckdb").read_text() == "of another process"


def test_of_two_that_save_at_once_one_saves_and_the_other_says_so_and_nothing_else_is_left(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "doctor.cli.main", "diagnose", str(TRACE), "--save", "case.duckdb"]
    both = [
        subprocess.Popen(command, cwd=tmp_path, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
        for _ in range(2)
    ]
    said = {process.communicate()[1]: process.returncode for process in both}
    assert sorted(said.values()) == [0, 2]
    (line,) = next(words for words, code in said.items() if code == 2).splitlines()
    assert "case.duckdb exists already" in line
    assert [path.name for path in tmp_path.iterdir()] == ["case.duckdb"]
    with closing(doctor.open_case(tmp_path / "case.duckdb")) as case:
        assert is_derived(case, WindowChoice())


SEES = """
import sys
from pathlib import Path
from doctor.cli.main import main
from doctor.diagnosis import runner
judge = runner.diagnose_case
def looking(*arguments):
    print(Path("case.duckdb").exists(), Path("case.duckdb.wal").exists(), file=sys.stderr)
    return judge(*arguments)
runner.diagnose_case = looking
sys.exit(main(sys.argv[1:]))
"""


def test_a_case_has_its_name_once_it_is_diagnosed(tmp_path: Path) -> None:
    command = [sys.executable, "-c", SEES, "diagnose", str(TRACE), "--save", "case.duckdb"]
    ended = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert (ended.returncode, ended.stderr) == (0, "False False\n")
    assert [path.name for path in tmp_path.iterdir()] == ["case.duckdb"]


@pytest.mark.parametrize("name", ["md:kept.duckdb", "sqlite:kept.duckdb", "http:kept.duckdb"])
def test_a_case_whose_name_looks_like_an_address_is_a_file_like_any_other(
    name: str, saved: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path(name).write_bytes(saved.read_bytes())
    with closing(doctor.open_case(name)) as case:
        assert case.execute("SELECT count(*) FROM source").fetchall() == [(1,)]


def test_nothing_is_fetched_for_a_file_of_another_kind(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    export = export_with(tmp_path)
    assert main(["sql", str(export), "SELECT 1"]) == 2
    (line,) = capfd.readouterr().err.splitlines()
    assert "is not a case file" in line
    with closing(create_case()) as case:
        settings = "current_setting('autoinstall_known_extensions'), current_setting('autoload_known_extensions')"
        assert case.execute(f"SELECT {settings}").fetchall() == [(False, False)]


def test_a_case_that_is_damaged_in_its_middle_is_said_to_be(
    saved: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    damaged = bytearray(saved.read_bytes())
    middle = len(damaged) // 2
    damaged[middle - len(damaged) // 3 : middle + len(damaged) // 3] = bytes(2 * (len(damaged) // 3))
    (tmp_path / "damaged.duckdb").write_bytes(damaged)
    assert main(["diagnose", str(tmp_path / "damaged.duckdb")]) == 2
    (line,) = capfd.readouterr().err.splitlines()
    assert "Corrupt" in line
    assert "bug" not in line
