"""The exceptions that end a command: the user's mistake, or a failed run. Each carries one line."""


class UserError(Exception):
    """A mistake in a setting or a file. The message is a single line that names it and what was expected.

    The command line prints it and exits with status 2; nothing has been written by then.
    """


class RunFailedError(Exception):
    """A run did not complete for a reason outside the program.

    For example, the disk was full, a process was killed, or the training diverged. The message is a single
    line that says why; the exit status is 3.
    """


class ProcessLostError(RunFailedError):
    """Another process of the run was killed. It can continue from its checkpoint, if it has one."""


class NotStartedError(RunFailedError):
    """Something that a run needs, such as Ray or a node, did not start. Nothing is kept of the run."""
