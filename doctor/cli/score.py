"""`doctor score`: diagnoses of samples against what is known of them."""

from __future__ import annotations

from pathlib import Path

import click

from doctor.cli.exit_codes import ExitCode
from doctor.cli.output import check_writable, say, write
from doctor.cli.progress import ProgressBars

_FORMATS = ("terminal", "json", "markdown")


@click.command("score", short_help="Diagnose samples with an expected.json and show how often that is right.")
@click.argument("folder", type=click.Path(path_type=Path))
@click.option("--format", "output_format", type=click.Choice(_FORMATS), default="terminal", help="Kind of output.")
@click.option("-o", "--output", type=click.Path(path_type=Path), metavar="FILE", help="Write here, not to the screen.")
@click.option("--no-progress", "has_progress", flag_value=False, default=True, help="No progress bars.")
def command(folder: Path, output_format: str, output: Path | None, has_progress: bool) -> int:
    """Diagnose every folder under FOLDER that has an expected.json, and exit with 1 where one is wrong.

    expected.json is {"first": rule or null, "allowed": [rule...], "ruled_out": [rule...], "measured_speedup": {rule:
    {"median": x, "low": x or null, "high": x or null}}, "half": "fit" or "test"}. Each recording in the folder is
    diagnosed by itself, everything else together, unless "evidence": [[file...]...] says what belongs together.
    """
    from doctor.cli.screen import presentation_for
    from doctor.reports.score_page import render_score
    from doctor.scoring.running import score

    if output is not None:
        check_writable(output)
    with ProgressBars(is_wanted=has_progress) as bars, bars.stage("diagnosing"):
        result = score(folder)
    for judged in result.results:
        for line in judged.unread:
            say(f"{judged.sample}: left out {line}")
    write(render_score(result, output_format, presentation_for(output, None)), output)
    return ExitCode.DONE if result.is_right else ExitCode.BAR_REACHED
