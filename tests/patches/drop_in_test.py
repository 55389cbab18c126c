"""Our ELMo under AllenNLP's names."""

import inspect
import subprocess
import sys
from pathlib import Path
from typing import Any, Dict, List

import allennlp.modules
import allennlp.modules.elmo
import allennlp.modules.token_embedders.elmo_token_embedder
import pytest
from allennlp.common import FromParams, Params
from allennlp.models import archival
from allennlp_models.classification.models import biattentive_classification_network

from allennlp_elmo_plugin.data import elmo_indexer
from allennlp_elmo_plugin.modules import ElmoTokenEmbedder, elmo
from allennlp_elmo_plugin.modules.elmo_bilm import ElmoBiLm
from allennlp_elmo_plugin.modules.elmo_character_encoder import ElmoCharacterEncoder
from allennlp_elmo_plugin.patches import drop_in
from allennlp_elmo_plugin.patches.replaced_names import REPLACED, table
from tests.support import originals
from tests.support.module_files import load_module
from tests.support.testing import write_random_elmo

OURS = {
    "Elmo": elmo.Elmo,
    "_ElmoBiLm": ElmoBiLm,
    "_ElmoCharacterEncoder": ElmoCharacterEncoder,
}
"""Our classes by the names that they have in `allennlp.modules.elmo`."""


@pytest.mark.parametrize("name, ours", [*OURS.items(), ("batch_to_ids", elmo.batch_to_ids)])
def test_names(name: str, ours: Any) -> None:
    assert getattr(allennlp.modules.elmo, name) is ours
    assert getattr(originals.elmo, name) is not ours


def test_names_elsewhere() -> None:
    assert allennlp.modules.Elmo is elmo.Elmo
    assert biattentive_classification_network.Elmo is elmo.Elmo
    assert allennlp.modules.token_embedders.ElmoTokenEmbedder is ElmoTokenEmbedder


IMPORTS = """
import importlib, sys, time
import allennlp.modules.elmo, allennlp.modules.token_embedders

module = "allennlp_models.classification.models.biattentive_classification_network"
early = sys.argv[1] == "early"
if early:
    importlib.import_module(module)
    from allennlp.modules.elmo import Elmo
import allennlp_elmo_plugin
if not early:
    importlib.import_module(module)
    from allennlp.modules.elmo import Elmo

ours = allennlp_elmo_plugin.Elmo
assert ours.__module__.startswith("allennlp_elmo_plugin")
assert sys.modules[module].Elmo is ours
# What the user's own module has imported before stays what it was.
assert (Elmo is ours) != early
from allennlp.common import Params

annotation = sys.modules[module].BiattentiveClassificationNetwork.__init__.__annotations__["elmo"]
made = annotation.from_params(
    Params({"options_file": sys.argv[2], "weight_file": sys.argv[3],
            "num_output_representations": 2})
)
assert type(made) is ours, type(made)
"""


@pytest.mark.parametrize("order", ["early", "late"])
def test_modules_imported_before_and_after(
    order: str, tmp_path: Any, subprocess_environment: Dict[str, str]
) -> None:
    process = subprocess.run(
        [sys.executable, "-c", IMPORTS, order, *write_random_elmo(tmp_path)],
        env=subprocess_environment,
        capture_output=True,
        encoding="utf-8",
        timeout=300,
    )
    assert process.returncode == 0, process.stderr


def test_a_subclass_of_the_original_stays_itself() -> None:
    class Original(FromParams):
        def __init__(self, size: int) -> None:
            self.size = size

    class Ours(Original):
        pass

    class Users(Original):
        pass

    drop_in._redirect_from_params(Original, Ours)
    made = [each.from_params(Params({"size": 3})) for each in (Original, Ours, Users)]
    assert [(type(each), each.size) for each in made] == [(Ours, 3), (Ours, 3), (Users, 3)]


def test_the_documentation_lists_every_name_that_is_replaced(repository_root: Path) -> None:
    text = (repository_root / "docs" / "migration.md").read_text(encoding="utf-8")
    assert f"| Name | Why |\n|---|---|\n{table()}\n\n" in text
    assert sum(name.startswith("allennlp") for name in REPLACED) <= 16


def _parameters(function: Any) -> List[inspect.Parameter]:
    return list(inspect.signature(function).parameters.values())


indexer = originals.elmo_indexer.ELMoTokenCharactersIndexer
original_archival = load_module(archival.__file__, "original_archival")
SIGNATURES: List[Any] = [
    *(
        (getattr(original, method), getattr(ours, method))
        for original, ours in [
            *((getattr(originals.elmo, name), ours) for name, ours in OURS.items()),
            (originals.ElmoTokenEmbedder, ElmoTokenEmbedder),
        ]
        for method in ("__init__", "forward", "get_output_dim")
    ),
    (originals.elmo._ElmoBiLm.create_cached_cnn_embeddings, ElmoBiLm.create_cached_cnn_embeddings),
    *(
        (getattr(indexer, method), getattr(elmo_indexer.ELMoTokenCharactersIndexer, method))
        for method in vars(indexer)
        if inspect.isfunction(vars(indexer)[method])
    ),
    (originals.elmo.batch_to_ids, elmo.batch_to_ids),
    (original_archival.archive_model, archival.archive_model),
]


@pytest.mark.parametrize("original, ours", SIGNATURES)
def test_arguments(original: Any, ours: Any) -> None:
    """Ours may have more, at the end, and more defaults."""
    expected, found = map(_parameters, (original, ours))
    for ours_, theirs in zip(found, expected):
        assert (ours_.name, ours_.kind) == (theirs.name, theirs.kind)
        assert theirs.default in (inspect.Parameter.empty, ours_.default)
    assert len(found) >= len(expected)
    assert all(p.default is not inspect.Parameter.empty for p in found[len(expected) :])


@pytest.mark.parametrize(
    "original, ours",
    [(getattr(originals.elmo, name), ours) for name, ours in OURS.items()],
)
def test_public_attributes_of_instances(tmp_path: Any, original: Any, ours: Any) -> None:
    """What AllenNLP's instances have, ours have too, apart from what is private to its loading."""
    arguments = [*write_random_elmo(tmp_path), *([2] if ours is elmo.Elmo else [])]
    expected, found = (set(vars(each(*arguments))) for each in (original, ours))
    private = {"_options", "_weight_file", "_beginning_of_sentence_characters"}
    private |= {"_end_of_sentence_characters", "_convolutions"}
    assert not expected - found - private
    # And the modules.
    expected, found = (
        {name for name, _ in each(*arguments).named_modules()} for each in (original, ours)
    )
    assert expected <= found
