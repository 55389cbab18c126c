"""A stand-in for fugashi, a tokenizer of Japanese, where it isn't installed."""

import re
import sys
import types

import pytest


def stand_in_for_fugashi(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let `from fugashi import Tagger` work, in any case."""
    try:
        import fugashi  # noqa: F401
    except ImportError:
        module = types.ModuleType("fugashi")
        module.Tagger = _Tagger  # type: ignore[attr-defined]
        monkeypatch.setitem(sys.modules, "fugashi", module)


class _Tagger:
    """Letters of one script are a word."""

    def __init__(self, options: str) -> None:
        assert options == "-Owakati"

    def parse(self, text: str) -> str:
        return " ".join(re.findall(r"[ァ-ヶー]+|[ぁ-ん]+|[一-鿿]+|[a-zA-Z]+|\S", text))
