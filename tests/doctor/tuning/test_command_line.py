"""Command lines are taken apart, changed and compared as their programs understand them."""

from __future__ import annotations

import shlex

import pytest

from doctor.errors import UsageError
from doctor.tuning.command_line import Change, CommandLine, Manual, Option, Setting, changes

HELP = """\
Usage: python -m engine bench [OPTIONS]

Options:
  --dtype [auto|float32|bfloat16]
                                  Type of weights; "auto" is the checkpoint's.
                                  [default: auto]
  --weight-offload FLOAT          Share in host memory, see --dtype.  [default:
                                  0.0]
  --prefix-caching / --no-prefix-caching
                                  Reuse of beginnings.  [default: prefix-
                                  caching; required]
  --cuda-graphs / --no-cuda-graphs
                                  Replay recorded decode steps.
  --speculate TEXT                None, "ngram" or "draft:folder".
  -h, --help                      Show this message and exit.
"""
MANUAL = Manual.parse(HELP)


def line(text: str) -> CommandLine:
    return CommandLine.parse(shlex.split(f"python -m engine bench {text}"))


def applied(setting: str, text: str) -> str:
    parsed = Setting.parse(setting)
    assert parsed is not None
    return shlex.join(line(text).changed_by(parsed, MANUAL).words[4:])


def test_a_help_page_gives_options_and_their_defaults() -> None:
    assert MANUAL.defaults == {
        "dtype": ("auto",),
        "weight-offload": ("0.0",),
        "prefix-caching": ("--prefix-caching",),
        "cuda-graphs": None,
        "speculate": None,
        "help": None,
    }


def test_a_program_without_a_help_page_may_have_every_option() -> None:
    setting = Setting.parse("--unheard-of")
    assert setting is not None
    assert Manual.parse("no options here").offers(setting)
    assert not MANUAL.offers(setting)


@pytest.mark.parametrize(
    ("setting", "before", "after"),
    [
        ("--cuda-graphs", "--no-cuda-graphs --dtype auto", "--dtype auto --cuda-graphs"),
        ("--cuda-graphs", "--cuda-graphs", "--cuda-graphs"),
        ("--dtype bfloat16", "--dtype=float32", "--dtype bfloat16"),
        ("--dtype bfloat16", "--dtype float32 --dtype auto", "--dtype bfloat16"),
        ("--dtype auto", "", ""),
        ("--weight-offload 0", "", ""),
        ("--weight-offload 0", "--weight-offload 0.5", "--weight-offload 0"),
        ("--weight-offload 0", "--weight-offload 0.00", "--weight-offload 0.00"),
        ("--prefix-caching", "", ""),
        ("--prefix-caching", "--no-prefix-caching", "--prefix-caching"),
        ("drop --speculate", "--speculate ngram --seed 1", "--seed 1"),
        ("drop --speculate", "--seed 1", "--seed 1"),
        ("--dtype bfloat16 drop --speculate --cuda-graphs", "--speculate ngram", "--dtype bfloat16 --cuda-graphs"),
    ],
)
def test_a_setting_changes_what_differs_and_nothing_else(setting: str, before: str, after: str) -> None:
    assert applied(setting, before) == after


@pytest.mark.parametrize("words", ["", "set pin_memory=True", "drop the flag", "raise --max-num-seqs to 64"])
def test_a_sentence_is_no_setting(words: str) -> None:
    assert Setting.parse(words) is None


def test_options_with_several_values_keep_them_together() -> None:
    assert line("--prompt-tokens 16 256 --seed -1").options == (
        Option("--prompt-tokens", ("16", "256")),
        Option("--seed", ("-1",)),
    )


def test_what_changed_is_told_without_folders() -> None:
    before, after = line("--model /home/me/large --speculate draft:/home/me/small"), line("--model /home/you/other")
    assert changes(before, after) == (
        Change("--model large", "--model other"),
        Change("--speculate draft:small", None),
    )
    assert [str(change) for change in changes(before, after)] == [
        "--model large -> --model other",
        "drop --speculate draft:small",
    ]


@pytest.mark.parametrize("words", [[], ["--model", "x"]])
def test_a_command_begins_with_a_program(words: list[str]) -> None:
    with pytest.raises(UsageError, match="give the command to tune after --"):
        CommandLine.parse(words)
