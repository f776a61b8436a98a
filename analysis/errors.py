"""The two ways a command stops on purpose, each one line to the user.

A message says what was given, what is allowed, and what to do.
"""


class UsageError(Exception):
    """Bad input or bad usage: exit code 2."""

    exit_code = 2


class Refused(Exception):
    """The work could be done but its result would not mean what was asked: exit code 3."""

    exit_code = 3
