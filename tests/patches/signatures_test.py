"""What replaces a function of AllenNLP accepts every call that the function accepts."""

import ast
import importlib
import inspect
import json
from pathlib import Path
from typing import Any, Tuple

import pytest
import torch
from allennlp.common import params
from allennlp.training import util as training_util

from allennlp_elmo_plugin.patches.replaced_names import REPLACED

# From elsewhere, except the last one, which has no signature.
OTHERS = {
    "torch.nn.utils.clip_grad.clip_grad_norm_",
    "allennlp.common.params.evaluate_file",
}


def find(name: str) -> Tuple[Any, inspect.Signature]:
    """Return what now has the name, and the signature in the file of its module."""
    path = name.split(".")
    n = len(path)
    while True:
        try:
            module = importlib.import_module(".".join(path[:n]))
            break
        except ImportError:
            n -= 1
    replacement: Any = module
    tree: Any = ast.parse(inspect.getsource(module))
    for each in path[n:]:
        replacement = inspect.getattr_static(replacement, each)
        tree = next(node for node in tree.body if getattr(node, "name", None) == each)
    if isinstance(tree, ast.ClassDef):
        replacement = replacement.__init__
        tree = next(node for node in tree.body if getattr(node, "name", None) == "__init__")
    if isinstance(replacement, (classmethod, staticmethod)):
        replacement = replacement.__func__
    arguments = tree.args
    for argument in (*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs):
        argument.annotation = None
    arguments.defaults = [ast.Constant(None) for _ in arguments.defaults]
    arguments.kw_defaults = [each and ast.Constant(None) for each in arguments.kw_defaults]
    function = ast.Expression(ast.Lambda(arguments, ast.Constant(None)))
    compiled = compile(ast.fix_missing_locations(function), name, "eval")
    return replacement, inspect.signature(eval(compiled))


@pytest.mark.parametrize("name", sorted(REPLACED.keys() - OTHERS))
def test_accepts_all_calls(name: str) -> None:
    replacement, signature = find(name)
    ours = inspect.signature(replacement, follow_wrapped=False)
    parameters = list(signature.parameters.values())
    by_name = {each.name: each.name for each in parameters if each.kind != each.VAR_KEYWORD}
    by_place = [each.name for each in parameters if each.kind == each.POSITIONAL_OR_KEYWORD]
    ours.bind(**by_name)
    bound = ours.bind(*by_place, **{key: key for key in by_name if key not in by_place})
    for key, value in bound.arguments.items():
        assert value == key or ours.parameters[key].kind in (
            inspect.Parameter.VAR_POSITIONAL,
            inspect.Parameter.VAR_KEYWORD,
        )
    required = [each.name for each in parameters if each.default is each.empty]
    ours.bind(*(each for each in by_place if each in required))


def test_jsonnets_function(tmp_path: Path) -> None:
    (tmp_path / "config.jsonnet").write_text("import 'elmo.libsonnet'", encoding="utf-8")
    (tmp_path / "folder").mkdir()
    (tmp_path / "folder" / "elmo.libsonnet").write_text("std.extVar('B')", encoding="utf-8")
    paths = str(tmp_path / "config.jsonnet"), str(tmp_path / "folder")
    assert json.loads(params.evaluate_file(*paths, ext_vars={"B": "c"})) == "c"


def test_torchs_function() -> None:
    weights = torch.nn.Parameter(torch.zeros(2))
    weights.grad = torch.tensor([3.0, 4.0])
    norm = training_util.clip_grad_norm_([weights], 1.0, float("inf"))  # type: ignore[attr-defined]
    assert norm == 4
