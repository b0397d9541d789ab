"""Lines that say that a process of the run itself went down, was ended or is started again.

What such a process held, it may hold still: its workers live on, or its context has not been given back. It is no
stranger's memory.
"""

from __future__ import annotations

import re

_PROCESS = r"(?:process|worker|pid|engine|server|scheduler|child|actor|subprocess|rank|replica|proc|job)"
_PID = r"(?:pid[ :=]{1,3})?(\d{2,10})"
_ENDED = (
    r"(?:is down|(?:has |was |is |were )?(?:died|dead|killed|crashed|terminated|exited|gone|lost|defunct|a zombie)"
    r"|(?:is )?(?:not|no longer) (?:alive|running|responding)|was sent SIG\w{3,6}|timed out|TIMEOUT)"
)
_ENDING = (
    r"(?:kill(?:ing|ed)?(?: -(?:9|KILL|TERM|15))?|terminat(?:ing|ed)|ended|ending|lost|reaping|WORKER TIMEOUT"
    r"|Worker exiting)"
)
_AGAIN = r"(?:restart|respawn|relaunch|recover)(?:ing|ed|s)?"
_PID_ENDED = re.compile(
    rf"\b{_PROCESS}\b[^\w\n]{{0,4}}(?:\w{{0,20}}[ :=#]{{1,3}})?[(\[]?{_PID}[)\]]?[^\w\n]{{0,3}}\s{{0,3}}{_ENDED}",
    re.IGNORECASE,
)
_ENDS_PID = re.compile(
    rf"\b{_ENDING}\s{{0,3}}(?:orphan(?:ed)? |old |stale |leftover |the )?(?:{_PROCESS}s?)?[^\w\n]{{0,3}}{_PID}\b",
    re.IGNORECASE,
)
_RESTART = re.compile(
    rf"\bis down, (?:re-?)?creat\w{{1,3}}|\b(?:auto[- ]?)?{_AGAIN}\b[^\n]{{0,40}}\b{_PROCESS}s?\b"
    rf"|\b{_PROCESS}s?\b[^\n]{{0,40}}\b{_AGAIN}\b|\bcreate model again\b|\bstart(?:ing|ed)? {_PROCESS} again\b"
    r"|\bBack-off restarting\b|\b(?:start|restart) attempt [2-9]\b",
    re.IGNORECASE,
)
CLUES = (
    " is down", "restart", "Restart", "respawn", "Respawn", "relaunch", "Relaunch", "create model again", "died",
    "is dead", "was killed", "Killed process", "kill -9", "Killing", "killing", "terminated", "Terminat",
    "was sent SIG", "WORKER TIMEOUT", "Worker exiting", " exited", "crashed", "zombie", "not alive", "ecovering",
)  # fmt: skip
MOST_CHARACTERS = 600


def ended_pid(text: str) -> int | None:
    """The process that a line says has ended, or is being ended; None where it names none."""
    head = text[:MOST_CHARACTERS]
    found = _PID_ENDED.search(head) or _ENDS_PID.search(head)
    return None if found is None else int(found[1])


def is_restart(text: str) -> bool:
    """Tell whether a line says that the run, or a part of it, is started again."""
    return _RESTART.search(text[:MOST_CHARACTERS]) is not None
