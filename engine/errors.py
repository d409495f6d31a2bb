"""Errors that a person can act on: what was asked, what was received, what is accepted."""


class LabError(Exception):
    """An error whose message is one plain sentence that may be shown to a visitor as it is."""


class InputError(LabError, ValueError):
    """A parameter, link, prompt or option is not acceptable."""


class ModelError(LabError):
    """A model cannot be found, read or understood."""


class Abandoned(Exception):
    """Raised by a progress callback to stop a computation that nobody waits for any more."""
