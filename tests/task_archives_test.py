"""
Archives of task models with AllenNLP's own ELMo, and with ours, each used with the other.

As a script, without the plugin, `python task_archives_test.py MADE GIVEN FILES` makes an archive of
each kind in MADE, with an ELMo of FILES (JSON), and prints what they give, and those in GIVEN.
"""

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from allennlp.common import Params
from allennlp.data import Batch, Instance, Token, Vocabulary
from allennlp.data.fields import TextField
from allennlp.data.token_indexers import ELMoTokenCharactersIndexer, SingleIdTokenIndexer
from allennlp.models import Model, archive_model, load_archive
from allennlp_models.classification import BiattentiveClassificationNetwork  # noqa: F401

from tests.support.testing import write_random_elmo

SENTENCES = ["Alice counted the naïve ﬁsh again", "Yes", "the the 日本語 of the old mill .", "No ,"]
# Two batches, the second from the states that the first one leaves.
BATCHES = [SENTENCES, SENTENCES[1::-1]]
ELMO_DIM = 16
# Arguments of the token embedder in a tagger; `bcn` has an `Elmo` of its own.
KINDS = {"layer norm": {"do_layer_norm": True}, "projection": {"projection_dim": 5}, "bcn": {}}
KINDS["fixed mix"] = {"scalar_mix_parameters": [0.5, -1.0, 2.0]}
KINDS["trained"] = {"requires_grad": True}


def lstm(input_size):
    return {"type": "lstm", "bidirectional": True, "input_size": input_size, "hidden_size": 3}


def model_params(kind, files):
    embedders = {"tokens": {"type": "embedding", "embedding_dim": 2}}
    text = {"token_embedders": embedders}
    if kind != "bcn":
        embedders["elmo"] = {"type": "elmo_token_embedder", **files, **KINDS[kind]}
        encoder = lstm(KINDS[kind].get("projection_dim", ELMO_DIM) + 2)
        return {"type": "simple_tagger", "text_field_embedder": text, "encoder": encoder}
    linear = {"input_dim": ELMO_DIM + 2, "num_layers": 1, "hidden_dims": 6, "activations": "relu"}
    maxout = {"input_dim": 4 * (6 + ELMO_DIM), "num_layers": 1, "output_dims": 3, "pool_sizes": 2}
    return {
        "type": "bcn",
        "text_field_embedder": text,
        "embedding_dropout": 0.1,
        "pre_encode_feedforward": linear,
        "encoder": lstm(6),
        "integrator": lstm(18),
        "integrator_dropout": 0.1,
        "output_layer": {**maxout, "dropout": 0.1},
        "elmo": {**files, "num_output_representations": 2},
        "use_input_elmo": True,
        "use_integrator_output_elmo": True,
    }


def outputs(model):
    """Return all numbers that a model gives, for each of the `BATCHES`."""
    model.eval()
    indexers = {"tokens": SingleIdTokenIndexer(), "elmo": ELMoTokenCharactersIndexer()}
    numbers = []
    for sentences in BATCHES:
        texts = [TextField(list(map(Token, sentence.split())), indexers) for sentence in sentences]
        batch = Batch([Instance({"tokens": text}) for text in texts])
        batch.index_instances(model.vocab)
        with torch.no_grad():
            output = model(**batch.as_tensor_dict())
        tensors = [value for _, value in sorted(output.items()) if torch.is_tensor(value)]
        numbers.append(torch.cat([tensor.double().flatten() for tensor in tensors]).tolist())
    return numbers


def make(folder, files):
    """Make archives of all kinds in `folder`, and return what their models give."""
    vocab = Vocabulary()
    vocab.add_tokens_to_namespace(" ".join(SENTENCES).split(), "tokens")
    vocab.add_tokens_to_namespace(["O", "B-A", "I-A"], "labels")
    results = {}
    for kind in KINDS:
        params = model_params(kind, files)
        torch.manual_seed(len(kind))
        model = Model.from_params(Params(params).duplicate(), vocab=vocab)
        with torch.no_grad():
            for parameter in model.parameters():  # the mixes too, and the ELMo that is trained
                if parameter.requires_grad:
                    parameter.add_(torch.randn_like(parameter) * 0.05)
        target = folder / kind
        target.mkdir(parents=True)
        config = {"dataset_reader": {"type": "sequence_tagging"}, "model": params}
        Params(config).to_file(str(target / "config.json"))
        vocab.save_to_files(str(target / "vocabulary"))
        torch.save(model.state_dict(), target / "best.th")
        archive_model(target)
        results[kind] = outputs(model)
    return results


def use(folder):
    """Return what the models of the archives in `folder` give."""
    return {kind: outputs(load_archive(folder / kind / "model.tar.gz").model) for kind in KINDS}


@pytest.fixture(scope="module")
def outcomes(tmp_path_factory, subprocess_environment):
    """What models give, by who made and who used them."""
    folder = tmp_path_factory.mktemp("archives")
    files = dict(zip(("options_file", "weight_file"), write_random_elmo(folder, seed=3)))
    ours_made = make(folder / "ours", files)
    arguments = [str(folder / "theirs"), str(folder / "ours"), json.dumps(files)]
    command = [sys.executable, __file__, *arguments]
    captured = {"capture_output": True, "encoding": "utf-8", "timeout": 600}
    process = subprocess.run(command, env=subprocess_environment, **captured)
    assert process.returncode == 0, process.stderr
    theirs_made, ours_used = json.loads(process.stdout.splitlines()[-1])
    return (ours_used, ours_made), (use(folder / "theirs"), theirs_made)


@pytest.mark.parametrize("kind", KINDS)
def test_archives_are_exchanged_with_and_without_the_plugin(outcomes, kind):
    for used, made in outcomes:
        assert len(made[kind]) == len(BATCHES)
        for actual, expected in zip(used[kind], made[kind], strict=True):
            assert np.std(expected) > 1e-2
            np.testing.assert_allclose(actual, expected, atol=1e-5)


if __name__ == "__main__":
    result = make(Path(sys.argv[1]), json.loads(sys.argv[3])), use(Path(sys.argv[2]))
    assert "allennlp_elmo_plugin" not in sys.modules
    print(json.dumps(result))
