"""Modules that are loaded from their files."""

import importlib.util
from pathlib import Path
from types import ModuleType
from typing import Optional, Union


def load_module(path: Union[str, Path], name: Optional[str] = None) -> ModuleType:
    """Return a new copy of a module, which is not imported under its name."""
    spec = importlib.util.spec_from_file_location(name or Path(path).stem, path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module
