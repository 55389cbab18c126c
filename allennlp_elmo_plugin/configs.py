"""Where this package's configurations of trainings are."""

from pathlib import Path

_PACKAGE = Path(__file__).resolve().parent
# An installed package contains the configs; in a clone of the repository they are beside it.
_INSTALLED = _PACKAGE / "training_config"
CONFIGS = _INSTALLED if _INSTALLED.is_dir() else _PACKAGE.parent / _INSTALLED.name
