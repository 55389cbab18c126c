"""Our ELMo under AllenNLP's names."""

import inspect
import subprocess
import sys

import allennlp.modules
import allennlp.modules.elmo
import allennlp.modules.token_embedders.elmo_token_embedder
import pytest
from allennlp.common import FromParams, Params
from allennlp.models import archival
from allennlp_models.classification.models import biattentive_classification_network

from allennlp_elmo_plugin.data.elmo_indexer import ELMoTokenCharactersIndexer
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


def test_names():
    for name, ours in [*OURS.items(), ("batch_to_ids", elmo.batch_to_ids)]:
        assert getattr(allennlp.modules.elmo, name) is ours
        assert getattr(originals.elmo, name) is not ours
    assert allennlp.modules.Elmo is elmo.Elmo
    assert biattentive_classification_network.Elmo is elmo.Elmo
    assert allennlp.modules.token_embedders.ElmoTokenEmbedder is ElmoTokenEmbedder


IMPORTS = """
import sys
import allennlp.modules.elmo, allennlp.modules.token_embedders
from allennlp.modules.elmo import Elmo
from allennlp_models.classification.models import biattentive_classification_network as module
import allennlp_elmo_plugin

ours = allennlp_elmo_plugin.Elmo
assert module.Elmo is ours
assert Elmo is not ours  # What the user's own module has imported before stays what it was.
from allennlp.common import Params

annotation = module.BiattentiveClassificationNetwork.__init__.__annotations__["elmo"]
made = annotation.from_params(
    Params({"options_file": sys.argv[1], "weight_file": sys.argv[2],
            "num_output_representations": 2})
)
assert type(made) is ours
"""


def test_modules_imported_before(tmp_path, subprocess_environment):
    subprocess.run(
        [sys.executable, "-c", IMPORTS, *write_random_elmo(tmp_path)],
        env=subprocess_environment,
        check=True,
        timeout=300,
    )


def test_a_subclass_of_the_original_stays_itself():
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


def test_the_documentation_lists_every_name_that_is_replaced(repository_root):
    text = (repository_root / "docs" / "migration.md").read_text(encoding="utf-8")
    assert f"| Name | Why |\n|---|---|\n{table()}\n\n" in text
    assert sum(name.startswith("allennlp") for name in REPLACED) <= 16


indexers = [originals.elmo_indexer.ELMoTokenCharactersIndexer, ELMoTokenCharactersIndexer]
token_embedders = [originals.ElmoTokenEmbedder, ElmoTokenEmbedder]
classes = [*([getattr(originals.elmo, name), ours] for name, ours in OURS.items()), token_embedders]
SIGNATURES = [
    *(
        [getattr(each, method) for each in pair]
        for pair in classes
        for method in ("__init__", "forward", "get_output_dim")
    ),
    [each.create_cached_cnn_embeddings for each in (originals.elmo._ElmoBiLm, ElmoBiLm)],
    *(
        [getattr(each, name) for each in indexers]
        for name, value in vars(indexers[0]).items()
        if inspect.isfunction(value)
    ),
    [originals.elmo.batch_to_ids, elmo.batch_to_ids],
    [load_module(archival.__file__, "original_archival").archive_model, archival.archive_model],
]


@pytest.mark.parametrize("original, ours", SIGNATURES)
def test_arguments(original, ours):
    """Ours may have more, at the end, and more defaults."""
    found = list(inspect.signature(ours).parameters.values())
    expected = list(inspect.signature(original).parameters.values())
    for mine, its in zip(found, expected):
        assert (mine.name, mine.kind) == (its.name, its.kind)
        assert its.default in (inspect.Parameter.empty, mine.default)
    assert len(found) >= len(expected)
    assert all(p.default is not inspect.Parameter.empty for p in found[len(expected) :])
