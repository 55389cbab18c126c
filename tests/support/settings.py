"""
Lines for settings: each shows the effect of an argument, a key or an option, or that it is refused.
"""

import inspect
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch

ROOT = Path(__file__).parents[2]


class Line(NamedTuple):
    """
    A value, and settings beside it. What it leads to is not what they do without it or, for
    `instead`, what no setting does; or it is an error; or it changes nothing, as said elsewhere.
    """

    value: Any
    settings: dict[str, Any] = {}
    kind: str = "beside"
    error: str = ""


def beside(value, **settings):
    return Line(value, settings)


def instead(value, **settings):
    return Line(value, settings, "instead")


def refused(value, error, **settings):
    return Line(value, settings, "refused", error)


def ignored(value):
    return Line(value, {}, "ignored")


class ShownBy(str):
    """The test elsewhere, `path::name`, that shows the effect."""


class Kind(NamedTuple):
    defaults: Callable[[], dict[str, Any]]
    outcome: Callable[..., Any]
    lines: dict[str, Any]


def defaults(function):
    """The arguments of a function with their defaults, `None` for those without."""
    named = [p for p in inspect.signature(function).parameters.values() if p.kind != p.VAR_KEYWORD]
    return {p.name: None if p.default is p.empty else p.default for p in named if p.name != "self"}


def plain(value):
    """What a setting leads to, such that it can be compared."""
    if isinstance(value, torch.Tensor):
        if value.device.type == "meta":
            return "meta", value.shape
        return plain(value.detach().numpy())
    if isinstance(value, np.ndarray):
        return value.dtype.str, value.shape, value.tobytes()
    if isinstance(value, dict):
        return [(key, plain(each)) for key, each in value.items()]
    if isinstance(value, (list, tuple)):
        return [plain(each) for each in value]
    return value


class Settings:
    """The kinds of settings in a module of tests, and what was computed of them."""

    def __init__(self, kinds: dict[str, Kind]) -> None:
        self.kinds = kinds
        self.lines = [(kind, name) for kind, each in kinds.items() for name in each.lines]
        self._known: dict[str, Any] = {}

    def outcome(self, kind, settings):
        """What settings lead to, or an error."""
        key = f"{kind} {settings}"
        if key not in self._known:
            try:
                self._known[key] = plain(self.kinds[kind].outcome(**settings))
            except ValueError as error:
                self._known[key] = str(error)
        return self._known[key]

    def check_names(self, kind):
        """Each setting has a line, and a default that is given explicitly changes nothing."""
        given, types = self.kinds[kind].defaults(), (int, float, str, list)
        assert self.kinds[kind].lines.keys() == given.keys()
        of_test = inspect.signature(self.kinds[kind].outcome).parameters
        explicit = {k: v for k, v in given.items() if isinstance(v, types) and k not in of_test}
        assert self.outcome(kind, explicit) == self.outcome(kind, {})

    def check_line(self, kind, name):
        line = self.kinds[kind].lines[name]
        if isinstance(line, ShownBy):
            path, _, test = line.partition("::")
            assert f"def {test}(" in (ROOT / path).read_text("utf-8")
            return
        line = line if isinstance(line, Line) else Line(line)
        actual = self.outcome(kind, {**line.settings, name: line.value})
        assert isinstance(actual, str) == (line.kind == "refused"), actual
        if line.kind == "refused":
            assert line.error in actual
            return
        before = self.outcome(kind, {} if line.kind == "instead" else line.settings)
        assert (actual == before) == (line.kind == "ignored")
