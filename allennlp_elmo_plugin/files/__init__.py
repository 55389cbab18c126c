"""Reading files of strangers as data, and writing files whole or not at all."""


class BadFile(ValueError):
    """A file that can't be used: the message names it and what is wrong with it."""
