"""Differences between the versions this package runs on, and what AllenNLP 2.10.1 needs mended there."""


def apply() -> None:
    """Applies every patch that the installed versions need. Applying twice changes nothing."""
