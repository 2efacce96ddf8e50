"""What a caller may catch: every error that a user's input can cause is a PudaError."""


class PudaError(Exception):
    """Something the user can put right; the text names the thing, the value and the remedy."""


class DataError(PudaError):
    """A file, a graph or a data set is not what it should be."""


class ConfigError(PudaError):
    """A setting is unknown, out of range or contradicts another."""


class RunError(PudaError):
    """A run folder is missing, damaged or cannot be written."""


class LabelError(PudaError):
    """An entity or relation that the graph does not hold, or a label that fits several."""


class Diverged(PudaError):
    """Training or scoring met a number that is not finite."""
