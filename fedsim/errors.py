"""What a user can get wrong, as one exception that carries one line."""


class UserError(Exception):
    """A mistake in a setting or a file. The message is a single line that names it and what was expected.

    The command line prints it and exits with status 2; nothing has been written by then.
    """
