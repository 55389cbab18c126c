"""
Archives of task models with ELMo, made and used as AllenNLP's users do, with the plugin or without.

`python task_archives.py MADE GIVEN FILES`, without the plugin, makes an archive of every kind in
MADE, with an ELMo of FILES (JSON), and prints what the models give, and those in GIVEN.
"""

import json
import sys
from pathlib import Path
from typing import Any, Dict, List

import torch
from allennlp.common import Params
from allennlp.data import Batch, Instance, Token, Vocabulary
from allennlp.data.fields import Field, SequenceLabelField, TextField
from allennlp.data.token_indexers import ELMoTokenCharactersIndexer, SingleIdTokenIndexer
from allennlp.models import Model, archive_model, load_archive
from allennlp_models.classification import BiattentiveClassificationNetwork  # noqa: F401
from allennlp_models.pair_classification import ESIM  # noqa: F401
from allennlp_models.structured_prediction import SemanticRoleLabeler  # noqa: F401
from allennlp_models.tagging import CrfTagger  # noqa: F401

ELMO_DIM = 16
SENTENCES = [
    "Alice counted the naïve ﬁsh again",
    "Yes",
    "the the 日本語 of the old mill .",
    "No , never",
]
# Two batches, the second from the states that the first one leaves.
BATCHES = [SENTENCES, SENTENCES[1::-1]]


def _lstm(input_size: int) -> Dict[str, Any]:
    return {"type": "lstm", "bidirectional": True, "input_size": input_size, "hidden_size": 3}


def _feedforward(input_dim: int, output_dim: int = 6) -> Dict[str, Any]:
    return {
        "input_dim": input_dim,
        "num_layers": 1,
        "hidden_dims": output_dim,
        "activations": "relu",
    }


def _embedders(files: Dict[str, str], **arguments: Any) -> Dict[str, Any]:
    return {
        "token_embedders": {
            "tokens": {"type": "embedding", "embedding_dim": 2},
            "elmo": {"type": "elmo_token_embedder", **files, **arguments},
        }
    }


def models(files: Dict[str, str]) -> Dict[str, Dict[str, Any]]:
    """The `model` of a config by the kind of model, with what ELMo's arguments are in use."""
    return {
        "simple_tagger": {
            "text_field_embedder": _embedders(files, do_layer_norm=True),
            "encoder": _lstm(ELMO_DIM + 2),
        },
        "crf_tagger": {
            "text_field_embedder": _embedders(files, projection_dim=5),
            "encoder": _lstm(7),
            "label_encoding": "BIO",
        },
        "bcn": {
            "text_field_embedder": {
                "token_embedders": {"tokens": {"type": "embedding", "embedding_dim": 2}}
            },
            "embedding_dropout": 0.1,
            "pre_encode_feedforward": {**_feedforward(ELMO_DIM + 2), "dropout": [0.1]},
            "encoder": _lstm(6),
            "integrator": _lstm(18),
            "integrator_dropout": 0.1,
            "output_layer": {
                "input_dim": 4 * (6 + ELMO_DIM),
                "num_layers": 1,
                "output_dims": 3,
                "pool_sizes": 2,
                "dropout": 0.1,
            },
            "elmo": {**files, "num_output_representations": 2},
            "use_input_elmo": True,
            "use_integrator_output_elmo": True,
        },
        "esim": {
            "text_field_embedder": _embedders(files, scalar_mix_parameters=[0.5, -1.0, 2.0]),
            "encoder": _lstm(ELMO_DIM + 2),
            "matrix_attention": {"type": "dot_product"},
            "projection_feedforward": _feedforward(24),
            "inference_encoder": _lstm(6),
            "output_feedforward": _feedforward(24),
            "output_logit": {**_feedforward(6, 3), "activations": "linear"},
        },
        "srl": {
            "text_field_embedder": _embedders(files, requires_grad=True),
            "encoder": _lstm(ELMO_DIM + 2 + 4),
            "binary_feature_dim": 4,
            "ignore_span_metric": True,
            "srl_eval_path": None,
        },
    }


def _instances(kind: str, sentences: List[str]) -> List[Instance]:
    indexers = {"tokens": SingleIdTokenIndexer(), "elmo": ELMoTokenCharactersIndexer()}
    instances = []
    for number, sentence in enumerate(sentences):
        tokens = [Token(word) for word in sentence.split()]
        text = TextField(tokens, indexers)
        fields: Dict[str, Field] = {"tokens": text}
        if kind == "esim":
            fields = {"premise": text, "hypothesis": TextField(tokens[::-1], indexers)}
        elif kind == "srl":
            verbs = [int(i == number % len(tokens)) for i in range(len(tokens))]
            fields["verb_indicator"] = SequenceLabelField(verbs, text)
        instances.append(Instance(fields))
    return instances


def outputs(kind: str, model: Model) -> List[List[float]]:
    """All numbers that a model gives, for each of the `BATCHES`."""
    model.eval()
    found = []
    for sentences in BATCHES:
        batch = Batch(_instances(kind, sentences))
        batch.index_instances(model.vocab)
        tensors = batch.as_tensor_dict()
        if kind == "srl":
            tensors["metadata"] = [{"verb": "", "words": [], "verb_index": 0} for _ in sentences]
        with torch.no_grad():
            output = model(**tensors)
        numbers = [
            value.double().flatten()
            for _, value in sorted(output.items())
            if torch.is_tensor(value)
        ]
        found.append(torch.cat(numbers).tolist())
    return found


def make(folder: Path, files: Dict[str, str]) -> Dict[str, List[List[float]]]:
    """Archives of all kinds in `folder`, and what their models give."""
    words = sorted({word for sentence in SENTENCES for word in sentence.split()})
    vocab = Vocabulary()
    vocab.add_tokens_to_namespace(words, "tokens")
    vocab.add_tokens_to_namespace(["O", "B-A", "I-A"], "labels")
    made = {}
    for kind, params in models(files).items():
        config = {"dataset_reader": {"type": "sequence_tagging"}, "model": {"type": kind, **params}}
        torch.manual_seed(len(kind))
        model = Model.from_params(Params(config).duplicate()["model"], vocab=vocab)
        with torch.no_grad():
            for parameter in model.parameters():  # the mixes too, and the ELMo that is trained
                if parameter.requires_grad:
                    parameter.add_(torch.randn_like(parameter) * 0.05)
        target = folder / kind
        target.mkdir(parents=True)
        Params(config).to_file(str(target / "config.json"))
        vocab.save_to_files(str(target / "vocabulary"))
        torch.save(model.state_dict(), target / "best.th")
        archive_model(target)
        made[kind] = outputs(kind, model)
    return made


def use(folder: Path) -> Dict[str, List[List[float]]]:
    """What the models of the archives in `folder` give."""
    return {
        path.parent.name: outputs(path.parent.name, load_archive(path).model)
        for path in sorted(folder.glob("*/model.tar.gz"))
    }


if __name__ == "__main__":
    assert "allennlp_elmo_plugin" not in sys.modules
    elmo = json.loads(sys.argv[3])
    result = {"made": make(Path(sys.argv[1]), elmo), "given": use(Path(sys.argv[2]))}
    assert "allennlp_elmo_plugin" not in sys.modules
    print(json.dumps(result))
