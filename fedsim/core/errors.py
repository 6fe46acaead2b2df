"""The exceptions that end a command: the user's mistake, or a failed run. Each carries one line."""


class UserError(Exception):
    """A mistake in a setting or a file. The message is a single line that names it and what was expected.

    The command line prints it and exits with status 2; nothing has been written by then.
    """


class RunFailedError(Exception):
    """A run did not complete: in other processes, on a full disk, or because its training diverged.

    The message says why; the exit status is 1.
    """
