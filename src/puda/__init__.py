"""puda completes knowledge graphs: which facts are probably missing, how probable, and why.

The verbs of the library are loaded when first used, so that `import puda` is quick.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

if TYPE_CHECKING:
    from puda.api import Run, load, open_run, resume, train

__all__ = ["Run", "__version__", "load", "open_run", "resume", "train"]


def __getattr__(name: str) -> Any:
    if name in __all__:
        return getattr(import_module("puda.api"), name)
    raise AttributeError(f"module 'puda' has no attribute {name!r}")
