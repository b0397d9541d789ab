"""What is private in the file at hand, so that it is found wherever else it stands."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, field

MASK = b"x"
_LEAST_FREE_BYTES = 6
_HOME = re.compile(rb"(?:/home/|/Users/|[A-Za-z]:[\\/]+Users[\\/]+)([^/\\\s:;'\"]{2,64})")
_USER_VARIABLES = frozenset({b"USER", b"LOGNAME", b"USERNAME", b"SUDO_USER"})
_HOST_VARIABLES = frozenset({b"HOSTNAME", b"HOST", b"COMPUTERNAME", b"SLURMD_NODENAME", b"NODENAME"})
_COMMON_USERS = frozenset({b"root", b"user", b"ubuntu", b"admin", b"Admin", b"Public"})


@dataclass
class Secrets:
    """Private words of one file.

    Attributes:
        names: of hosts and users; hidden wherever they stand as a word of their own.
        values: of the environment and the command line; hidden wherever they stand, if they are no everyday words.
    """

    names: set[bytes] = field(default_factory=set)
    values: set[bytes] = field(default_factory=set)

    def add_name(self, name: bytes | None) -> None:
        """A host or user."""
        if name and len(name) >= 2 and name not in _COMMON_USERS:
            self.names.add(name)
            self.names.update(part for part in name.split(b".")[:1] if len(part) >= 4)

    def add_variable(self, name: bytes, value: bytes) -> None:
        """One variable of an environment."""
        if name in _USER_VARIABLES or name in _HOST_VARIABLES:
            self.add_name(value)
        self.add_value(value)

    def add_environment(self, environment: bytes) -> None:
        """A whole environment in one text, variables apart by NUL or semicolon."""
        for variable in re.split(rb"[\x00;]", environment):
            name, _, value = variable.partition(b"=")
            self.add_variable(name, value)

    def add_value(self, value: bytes) -> None:
        """An argument or a value of the environment."""
        self.add_users(value)
        if _is_telling(value):
            self.values.add(value)

    def add_users(self, text: bytes) -> None:
        """Names of users in the paths of a text."""
        for match in _HOME.finditer(text):
            self.add_name(match[1])

    def pattern(self) -> re.Pattern[bytes] | None:
        """Matches every name as a word of its own, and every value; None where there is nothing to hide."""
        words = [rb"(?<![A-Za-z0-9_])" + re.escape(name) + rb"(?![A-Za-z0-9_])" for name in _longest_first(self.names)]
        words = [re.escape(value) for value in _longest_first(self.values)] + words
        return re.compile(b"|".join(words)) if words else None

    def value_pattern(self) -> re.Pattern[bytes] | None:
        """Matches values only: safe to look for in bytes that are no text."""
        values = [re.escape(value) for value in _longest_first(self.values)]
        return re.compile(b"|".join(values)) if values else None


def _is_telling(value: bytes) -> bool:
    """Long enough and not a plain word or number: such a value cannot stand in a trace by chance."""
    has_letter = re.search(rb"[A-Za-z]", value) is not None
    is_plain = re.fullmatch(rb"[a-z]+|[A-Z]+|[A-Z][a-z]+|--?[a-z]+", value) is not None
    return len(value) >= _LEAST_FREE_BYTES and has_letter and not is_plain


def _longest_first(words: Iterable[bytes]) -> list[bytes]:
    return sorted(words, key=lambda word: (-len(word), word))
