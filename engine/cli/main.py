"""The program `python -m engine`: finds the command, turns every failure into one line and an exit code."""

from __future__ import annotations

import os
import sys
import traceback
from collections.abc import Sequence
from importlib import import_module

import click

from engine.errors import EngineError

DONE, UNUSABLE, INTERRUPTED = 0, 2, 130
COMMANDS = ("bench", "conditions", "generate", "serve", "simulate", "strategies")


class _LazyGroup(click.Group):
    """Imports a command when it is named: help needs no torch."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in COMMANDS:
            return None
        command = getattr(import_module(f"engine.cli.{cmd_name}"), cmd_name)
        assert isinstance(command, click.Command)
        return command


@click.group(cls=_LazyGroup, context_settings={"help_option_names": ["-h", "--help"]})
def engine() -> None:
    """Run a language model from a Hugging Face checkpoint, healthy or with a documented problem."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the program and return its exit code; no exception that a user can cause leaves here."""
    try:
        engine.main(args=arguments, prog_name="python -m engine", standalone_mode=False)
    except (click.exceptions.Abort, KeyboardInterrupt):
        return _fail("interrupted", INTERRUPTED)
    except click.exceptions.NoArgsIsHelpError as error:
        click.echo(error.format_message())
        return DONE
    except click.ClickException as error:
        return _fail(error.format_message(), UNUSABLE)
    except EngineError as error:
        return _fail(str(error), error.exit_code)
    except Exception as error:  # noqa: BLE001  the last resort: a traceback on a user's screen is always a bug
        return _fail(_words_for(error), UNUSABLE)
    return DONE


def _words_for(error: Exception) -> str:
    if isinstance(error, ModuleNotFoundError):
        return f"this command needs {error.name}: pip install 'inference-doctor[engine]'"
    return f"unexpected {type(error).__name__}: {error} (ENGINE_DEBUG=1 shows where)"


def _fail(message: str, code: int) -> int:
    if os.environ.get("ENGINE_DEBUG"):
        traceback.print_exc()
    sys.stderr.write(f"engine: {' '.join(message.split())}\n")
    return code
