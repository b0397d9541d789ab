"""A command line as options that can be changed, and what its program says of them in its help."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from doctor.errors import UsageError

_DROP = "drop"
_OFF = "--no-"
_HELP_LINE = re.compile(r"^ {1,8}(?:-\w, )?(--[a-z][a-z0-9-]*)(?: / (--[a-z][a-z0-9-]*))?", re.MULTILINE)
_BROKEN_WORD = re.compile(r"(?<=\w-)\s+")
_FOLDERS = re.compile(r"[^\s:=,']*/")
_DEFAULT = re.compile(r"\[default:\s*([^;\]]+)")


@dataclass(frozen=True)
class Option:
    """One option with its values, as typed: `--dtype bfloat16`, `--no-cuda-graphs`, `--prompt-tokens 16 256`."""

    name: str
    values: tuple[str, ...] = ()

    @property
    def key(self) -> str:
        """What it sets: a flag and its opposite set the same."""
        return _key(self.name)

    @property
    def words(self) -> tuple[str, ...]:
        """As arguments of a program."""
        return (self.name, *self.values)

    def __str__(self) -> str:
        """As typed in a shell."""
        return shlex.join(self.words)


@dataclass(frozen=True)
class Setting:
    """Options to set and keys to leave out, as the fix of a rule states them.

    `--bookkeeping lean --overlap` sets two, `drop --speculate` leaves one out.
    """

    options: tuple[Option, ...] = ()
    dropped: tuple[str, ...] = ()

    @classmethod
    def parse(cls, text: str) -> Setting | None:
        """Read the setting of a fix; None where it is a sentence and not options."""
        first, *rest = [part.split() for part in f" {text}".split(f" {_DROP} ")]
        words = [word for part in (first, *rest) for word in part[:1]]
        if not words or not all(word.startswith("--") for word in words):
            return None
        options = _options([*first, *(word for part in rest for word in part[1:])])
        return cls(options, tuple(_key(part[0]) for part in rest))


@dataclass(frozen=True)
class Manual:
    """What the help of a program says.

    Attributes:
        defaults: by key, the values an option has where it is not given; None where the help does not say.
        is_known: False where there was no help to read: every option may exist.
    """

    defaults: Mapping[str, tuple[str, ...] | None] = field(default_factory=dict)
    is_known: bool = False

    @classmethod
    def parse(cls, text: str) -> Manual:
        """Read the help that click prints; of other forms only the names are understood."""
        found = list(_HELP_LINE.finditer(text))
        ends = [*(match.start() for match in found[1:]), len(text)]
        defaults = {
            _key(match[1]): _default(match[2] is not None, _BROKEN_WORD.sub("", text[match.end() : end]))
            for match, end in zip(found, ends, strict=False)
        }
        return cls(defaults, bool(defaults))

    def offers(self, setting: Setting) -> bool:
        """Whether the program has every option of a setting."""
        return not self.is_known or all(option.key in self.defaults for option in setting.options)


def _default(is_flag: bool, text: str) -> tuple[str, ...] | None:
    """The words of an option's default; for a flag its own name, `--x` or `--no-x`."""
    found = _DEFAULT.search(text)
    if found is None:
        return None
    words = found[1].split()
    return (f"--{words[0]}",) if is_flag else tuple(words)


@dataclass(frozen=True)
class CommandLine:
    """A program, its words before the options, and its options.

    Attributes:
        head: `python -m engine bench`: up to the first option.
        options: in order.
    """

    head: tuple[str, ...]
    options: tuple[Option, ...] = ()

    @classmethod
    def parse(cls, words: Sequence[str]) -> CommandLine:
        """Take a command apart.

        Raises:
            UsageError: it is empty, or begins with an option.
        """
        first = next((place for place, word in enumerate(words) if word.startswith("--")), len(words))
        if first == 0:
            raise UsageError("give the command to tune after --: doctor tune -- python -m engine bench --model DIR")
        return cls(tuple(words[:first]), _options(words[first:]))

    @property
    def words(self) -> tuple[str, ...]:
        """As arguments."""
        return self.head + tuple(word for option in self.options for word in option.words)

    def given(self, key: str) -> Option | None:
        """The option that sets this; the last one counts."""
        return next((option for option in reversed(self.options) if option.key == key), None)

    def without(self, keys: Iterable[str]) -> CommandLine:
        """The same command, with these left to their defaults."""
        left_out = set(keys)
        return CommandLine(self.head, tuple(option for option in self.options if option.key not in left_out))

    def having(self, options: Iterable[Option]) -> CommandLine:
        """The same command with these options in place of those that set the same."""
        wanted = tuple(options)
        kept = self.without(option.key for option in wanted)
        return CommandLine(kept.head, kept.options + wanted)

    def changed_by(self, setting: Setting, manual: Manual) -> CommandLine:
        """The command with a setting applied; what it has already, or has by default, stays as it is typed."""
        new = [option for option in setting.options if not self._has(option, manual)]
        kept = self.without(setting.dropped)
        return kept.having(new) if new else kept

    def _has(self, option: Option, manual: Manual) -> bool:
        given = self.given(option.key)
        if given is not None:
            return given.name == option.name and _plain(given.values) == _plain(option.values)
        default = manual.defaults.get(option.key)
        return default is not None and _plain(default) == _plain(option.values or (option.name,))


@dataclass(frozen=True)
class Change:
    """One option before and after; None where it is left to its default."""

    before: str | None
    after: str | None

    def __str__(self) -> str:
        """`--no-cuda-graphs -> --cuda-graphs`, `drop --speculate ngram`, or the new option alone."""
        if self.after is None:
            return f"drop {self.before}"
        return self.after if self.before is None else f"{self.before} -> {self.after}"


def changes(before: CommandLine, after: CommandLine) -> tuple[Change, ...]:
    """What differs between two forms of one command."""
    keys = dict.fromkeys(option.key for line in (before, after) for option in line.options)
    pairs = ((before.given(key), after.given(key)) for key in keys)
    return tuple(Change(_shown(old), _shown(new)) for old, new in pairs if old != new)


def _shown(option: Option | None) -> str | None:
    """As typed, without folders: they name people and hosts."""
    return None if option is None else _FOLDERS.sub("", str(option))


def _options(words: Iterable[str]) -> tuple[Option, ...]:
    found: list[Option] = []
    for word in words:
        if word.startswith("--"):
            name, equals, value = word.partition("=")
            found.append(Option(name, (value,) if equals else ()))
        elif found:
            found[-1] = Option(found[-1].name, (*found[-1].values, word))
    return tuple(found)


def _plain(values: tuple[str, ...]) -> tuple[str | float, ...]:
    """Values as they are meant: 0 is 0.0."""
    plain: list[str | float] = []
    for value in values:
        try:
            plain.append(float(value))
        except ValueError:
            plain.append(value)
    return tuple(plain)


def _key(name: str) -> str:
    return name.removeprefix(_OFF).removeprefix("--")
