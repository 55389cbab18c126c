"""Our ELMo under AllenNLP's names."""

import inspect
import subprocess
import sys

import allennlp.modules
import allennlp.modules.elmo
import allennlp.modules.token_embedders.elmo_token_embedder
import pytest
from allennlp.commands import train
from allennlp.common import Params
from allennlp.data import Batch, Vocabulary
from allennlp.data.dataset_readers import TextClassificationJsonReader
from allennlp.data.tokenizers import WhitespaceTokenizer
from allennlp.interpret import saliency_interpreters
from allennlp.interpret.attackers import Hotflip, InputReduction
from allennlp.models import Model, archival
from allennlp.nn import util as nn_util
from allennlp.predictors import TextClassifierPredictor
from allennlp_models.classification.models import biattentive_classification_network

from allennlp_elmo_plugin import Elmo, batch_to_ids
from allennlp_elmo_plugin.elmo.elmo_bilm import ElmoBiLm
from allennlp_elmo_plugin.elmo.elmo_character_encoder import ElmoCharacterEncoder
from allennlp_elmo_plugin.plugin.components import ElmoTokenEmbedder
from allennlp_elmo_plugin.plugin.components.elmo_indexer import ELMoTokenCharactersIndexer
from allennlp_elmo_plugin.plugin.registration import REPLACED
from allennlp_elmo_plugin.plugin.training import run_folder
from tests.support import originals
from tests.support.task_data import FIXTURES
from tests.support.testing import write_random_elmo

OURS = {
    "Elmo": Elmo,
    "_ElmoBiLm": ElmoBiLm,
    "_ElmoCharacterEncoder": ElmoCharacterEncoder,
}
"""Our classes by the names that they have in `allennlp.modules.elmo`."""


def test_names():
    for name, ours in [*OURS.items(), ("batch_to_ids", batch_to_ids)]:
        assert getattr(allennlp.modules.elmo, name) is ours
        assert getattr(originals.elmo, name) is not ours
    assert allennlp.modules.Elmo is Elmo
    assert biattentive_classification_network.Elmo is Elmo
    assert allennlp.modules.token_embedders.ElmoTokenEmbedder is ElmoTokenEmbedder
    assert train.train_model is run_folder.train_model


IMPORTS = """
import sys
from allennlp.common import Params
from allennlp.modules.elmo import Elmo
from allennlp_models.classification.models import biattentive_classification_network as module
import allennlp_elmo_plugin

ours = allennlp_elmo_plugin.Elmo
assert module.Elmo is ours
assert Elmo is not ours  # What the user's own module has imported before stays what it was.


class Users(Elmo):
    pass


annotation = module.BiattentiveClassificationNetwork.__init__.__annotations__["elmo"]
files = {"options_file": sys.argv[1], "weight_file": sys.argv[2]}
for asked, made in ((annotation, ours), (ours, ours), (Users, Users)):
    elmo = asked.from_params(Params({**files, "num_output_representations": 2}))
    assert type(elmo) is made
"""


@pytest.mark.in_turns(2)
def test_modules_imported_before(tmp_path, subprocess_environment):
    command = [sys.executable, "-c", IMPORTS, *write_random_elmo(tmp_path)]
    subprocess.run(command, env=subprocess_environment, check=True, timeout=300)


def test_a_classifier_of_elmo_alone_is_trained_and_explained(tmp_path):
    indexers = {"elmo": ELMoTokenCharactersIndexer()}
    reader = TextClassificationJsonReader(indexers, WhitespaceTokenizer())
    instances = list(reader.read(FIXTURES / "imdb.jsonl"))
    embedder = dict(zip(("options_file", "weight_file"), write_random_elmo(tmp_path)))
    embedders = {"elmo": {"type": "elmo_token_embedder", "initial_state": "zero", **embedder}}
    params = {
        "type": "basic_classifier",
        "text_field_embedder": {"token_embedders": embedders},
        "seq2vec_encoder": {"type": "bag_of_embeddings", "embedding_dim": 16},
    }
    vocab = Vocabulary.from_instances(instances)
    model = Model.from_params(Params(params), vocab=vocab)
    batch = Batch(instances)
    batch.index_instances(vocab)
    model(**batch.as_tensor_dict())["loss"].backward()
    predictor = TextClassifierPredictor(model.eval(), reader)
    text = {"sentence": "rarely dreadful and very long"}
    outputs = predictor.predict_batch_json([text, {"sentence": "funny"}])
    assert [output["token_ids"] for output in outputs] == [[1] * 5, [1, 0, 0, 0, 0]]
    for kind in ("SimpleGradient", "IntegratedGradient", "SmoothGradient"):
        interpreter = getattr(saliency_interpreters, kind)(predictor)
        (shares,) = interpreter.saliency_interpret_from_json(text)["instance_1"].values()
        assert len(shares) == 5 and sum(shares) == pytest.approx(1.0)
    reduced = InputReduction(predictor).attack_from_json(text)["final"][0]
    assert set(reduced) <= set(text["sentence"].split())
    with pytest.raises(NotImplementedError, match="not currently supported for hotflip"):
        Hotflip(predictor).attack_from_json(text)
    with pytest.raises(NotImplementedError, match="guessing the right token ids failed"):
        nn_util.get_token_ids_from_text_field_tensors({"a": {"other": None}})


def test_the_documentation_lists_every_name_that_is_replaced(repository_root):
    text = (repository_root / "docs" / "migration.md").read_text(encoding="utf-8")
    rows = "\n".join(f"| `{name}` | {why} |" for name, why in sorted(REPLACED.items()))
    assert f"| Name | Why |\n|---|---|\n{rows}\n\n" in text
    assert sum(name.startswith("allennlp") for name in REPLACED) <= 16


CLASSES = [
    *((getattr(originals.elmo, name), ours) for name, ours in OURS.items()),
    (originals.ElmoTokenEmbedder, ElmoTokenEmbedder),
    (originals.elmo_indexer.ELMoTokenCharactersIndexer, ELMoTokenCharactersIndexer),
]
FUNCTIONS = [
    *(
        (function, getattr(ours, name))
        for original, ours in CLASSES
        for name, function in inspect.getmembers(original, inspect.isfunction)
        if name == "__init__" or (name in vars(original) and not name.startswith("_"))
    ),
    (originals.elmo.batch_to_ids, batch_to_ids),
    (originals.load_again(archival).archive_model, archival.archive_model),
]


@pytest.mark.parametrize("original, ours", FUNCTIONS)
def test_arguments(original, ours):
    """Ours may have more, at the end, and more defaults."""
    actual = list(inspect.signature(ours).parameters.values())
    expected = list(inspect.signature(original).parameters.values())
    for mine, its in zip(actual, expected):
        assert (mine.name, mine.kind) == (its.name, its.kind)
        assert its.default in (inspect.Parameter.empty, mine.default)
    assert len(actual) >= len(expected)
    assert all(p.default is not inspect.Parameter.empty for p in actual[len(expected) :])
