"""
Each argument of a public class, key of options.json and option of a command has a line here, which
shows its effect, or that it is refused. A default that is given explicitly changes nothing.
"""

import functools
import inspect
import io
import json
import os
import shutil
from contextlib import redirect_stdout
from dataclasses import fields
from importlib.util import find_spec
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest
import torch

from allennlp_elmo_plugin import BiLm, BiLmOptions, Elmo, ElmoEmbedder, batch_to_ids
from allennlp_elmo_plugin.adapters.elmoformanylangs import Embedder
from allennlp_elmo_plugin.adapters.sentence_transformers import ElmoSentences
from allennlp_elmo_plugin.adapters.simple_elmo import ElmoModel
from allennlp_elmo_plugin.bilm.options import CharCnnOptions
from allennlp_elmo_plugin.embedding.batches import BatchEmbedder
from allennlp_elmo_plugin.embedding.corpus_embedder import CorpusEmbedder
from allennlp_elmo_plugin.training import LanguageModel, TextBatches, Trainer, clip_grad_norm_
from tests.support.corpora import write_text
from tests.support.settings import (
    Kind,
    Settings,
    ShownBy,
    beside,
    defaults,
    ignored,
    instead,
    refused,
)
from tests.support.testing import write_random_elmo

SENTENCES = [["the", "cat", "sat"], ["a", "cat"], ["the", "dog", "sat", "on", "a", "cat"]]
WORDS = ["<S>", "</S>", "<UNK>", *(f"word{i}" for i in range(30))]
OF_WORDS = {"lstm.dim": 8, "lstm.projection_dim": 4, "lstm.n_layers": 2, "sample_softmax": False}
OPTIONS = {**OF_WORDS, "char_cnn.embedding.dim": 4, "char_cnn.filters": [[1, 4], [2, 4]]}


@pytest.fixture(scope="module", autouse=True)
def inputs(tmp_path_factory):
    """The folder of the models and texts that the settings name."""
    folder = tmp_path_factory.mktemp("inputs")
    write_random_elmo(folder / "elmo")
    write_random_elmo(folder / "other", seed=1)
    write_text(folder / "text", 0, 20)
    write_text(folder / "heldout", 1, 10)
    (folder / "latin").write_bytes(b"caf\xe9 word1 word2\n" * 30)
    (folder / "options.json").write_text(json.dumps(nested(OPTIONS)))
    with pytest.MonkeyPatch.context() as context:
        context.chdir(folder)
        yield folder


def of_elmo(options_file="elmo/options.json", **settings):
    torch.manual_seed(0)
    elmo = Elmo(options_file, **settings)
    # In `vocab_to_cache`
    places = torch.tensor([[1, 2, 1, 0, 0, 0], [2, 1, 0, 0, 0, 0], [1, 2, 1, 2, 1, 2]])
    outputs = [elmo(batch_to_ids(SENTENCES), places) for _ in range(2)]
    outputs.append(elmo.eval().embed_sentences(SENTENCES))
    trained = {name: p.requires_grad for name, p in elmo.named_parameters()}
    return outputs, trained, elmo.bilm.token_layer.word_cache.n_kept


def of_embedder(options_file="elmo/options.json", **settings):
    embedder = ElmoEmbedder(options_file, **settings)
    n_kept = embedder.elmo_bilm.token_layer.word_cache.n_kept
    return n_kept, [embedder.embed_batch(SENTENCES) for _ in range(2)]


def of_method(name, **base):
    """What a method of `ElmoEmbedder` returns, with the sizes of the batches that it embeds."""

    def outcome(**settings):
        launch, sizes = BatchEmbedder.launch_batch, []

        def noted(self, batch, *others):
            sizes.append(len(batch))
            return launch(self, batch, *others)

        with patch.object(BatchEmbedder, "launch_batch", noted):
            result = getattr(ElmoEmbedder("elmo"), name)(**{**base, **settings})
            result = list(result) if inspect.isgenerator(result) else result
        return (str(result) if name == "nearest" else result), str(type(result)), sizes

    return outcome


def of_file(input_file="text", output_file_path="layers.hdf5", **settings):
    Path(output_file_path).unlink(missing_ok=True)
    shutil.rmtree(f"{output_file_path}.parts", ignore_errors=True)
    settings.update(input_file=input_file, output_file_path=output_file_path)
    result, path = of_method("embed_file")(**settings)[::2], Path(output_file_path)
    return result, path, path.read_bytes() if path.exists() else os.listdir(f"{path}.parts")


def nested(flat):
    values: dict[str, Any] = {}
    for key, value in flat.items():
        *sections, last = key.split(".")
        functools.reduce(lambda part, key: part.setdefault(key, {}), sections, values)[last] = value
    return values


def of_options(base=OPTIONS, **settings):
    values = nested({**base, "n_tokens_vocab": 40, **settings})
    shapes = {name: p.shape for name, p in BiLm(BiLmOptions.from_dict(values)).named_parameters()}
    return shapes, of_model(options=values)


def of_model(options=None, words=WORDS, **settings):
    """Losses, gradients and parameters of a language model."""
    torch.manual_seed(0)
    model = LanguageModel(options or nested(OPTIONS), words, **settings)
    characters = model.options.max_characters_per_token
    form = {"bidirectional": model.options.bidirectional, "batches_per_epoch": 2}
    losses = []
    for batch in TextBatches("text", words, 3, 4, characters, **form):
        model.zero_grad()
        losses.append(model(**batch))
        losses[-1]["loss"].backward()
    sums = {name: p.double().sum() for name, p in model.named_parameters()}
    return losses, clip_grad_norm_(model.parameters(), 1.0), sums


def of_texts(paths="text", words=WORDS, batch_size=3, num_steps=4, **settings):
    text = TextBatches(paths, words, batch_size, num_steps, **settings)
    return [list(text) for _ in range(2)]


def of_trainer(
    model=OPTIONS, text="heldout", validation="text", folder="trained", num_epochs=1, **settings
):
    torch.manual_seed(0)
    texts = [TextBatches(path, WORDS, 3, 4, drop_last=path == text) for path in (text, validation)]
    shutil.rmtree(folder, ignore_errors=True)
    os.mkdir(folder)
    counted = patch.object(Trainer, "save", autospec=True, side_effect=Trainer.save)
    with redirect_stdout(io.StringIO()), counted as save:
        model = LanguageModel(nested(model), WORDS)
        trainer = Trainer(model, *texts, folder, num_epochs=num_epochs, **settings)
        metrics = trainer.train()
    numbers = [{k: v for k, v in epoch.items() if "seconds" not in k} for epoch in metrics]
    written = sorted(os.listdir(folder)), len(save.mock_calls)
    return numbers, written, "a note" in Path(folder, "README.md").read_text("utf-8")


def of_simple_elmo(method, directory="elmo", **settings):
    model = ElmoModel()
    model.load(directory, **settings) if method == "load" else model.load(directory)
    texts = settings.pop("texts", SENTENCES)
    if method == "load":
        return model.get_elmo_vectors(SENTENCES)
    return getattr(model, method)(texts, **settings)


HAS_TENSORBOARD = bool(find_spec("tensorboard"))
EMBEDDER = "tests/embedding/embedder_test.py::test_"
CORPUS = "tests/embedding/corpus_embedder_test.py::test_"
DEVICE = ShownBy(f"{EMBEDDER}paths_and_short_calls")
OF_SENTENCES = {"sentences": SENTENCES}
NEAREST = {"word": "cat", "sentences": SENTENCES}
SIZES = {"batch_size": 2, "batch_tokens": 10}

KINDS = {
    "Elmo": Kind(
        lambda: defaults(Elmo),
        of_elmo,
        {
            "options_file": "other",
            "weight_file": "other/weights.hdf5",
            "num_output_representations": 2,
            "requires_grad": True,
            "do_layer_norm": True,
            "dropout": 0.1,
            "vocab_to_cache": ["", "dog", "sat"],
            "keep_sentence_boundaries": True,
            "scalar_mix_parameters": [1.0, 0.0, 2.0],
            "module": ShownBy("tests/elmo/elmo_test.py::test_another_module"),
            "initial_state": "zero",
            "precision": "bfloat16",
            "max_cached_words": ShownBy(
                "tests/plugin/components/elmo_token_embedder_test.py::"
                "test_several_representations_side_by_side"
            ),
        },
    ),
    "ElmoEmbedder": Kind(
        lambda: defaults(ElmoEmbedder),
        of_embedder,
        {
            "options_file": "other",
            "weight_file": "other/weights.hdf5",
            "cuda_device": DEVICE,
            "vocab_to_cache": ["dog"],
            "initial_state": "carried",
            "precision": "bfloat16",
            "device": DEVICE,
            "model": instead("other", options_file=None),
        },
    ),
    "encode": Kind(
        lambda: defaults(ElmoEmbedder.encode),
        of_method("encode", **OF_SENTENCES),
        {
            "sentences": SENTENCES[1:],
            "pooling": "max",
            "layers": "top",
            "tokenizer": beside(list, sentences=["the cat"]),
            "batch_tokens": 10,
            "batch_size": 2,
            "show_progress_bar": ShownBy(f"{EMBEDDER}arguments_that_sentence_transformers_has"),
            "normalize_embeddings": True,
            "convert_to_tensor": True,
        },
    ),
    "embed_sentence": Kind(
        lambda: defaults(ElmoEmbedder.embed_sentence),
        of_method("embed_sentence", sentence=SENTENCES[0]),
        {"sentence": ["cat"], "output_format": "top"},
    ),
    "embed_batch": Kind(
        lambda: defaults(ElmoEmbedder.embed_batch),
        of_method("embed_batch", batch=SENTENCES),
        {"batch": SENTENCES[1:], "output_format": "average"},
    ),
    "embed_sentences": Kind(
        lambda: defaults(ElmoEmbedder.embed_sentences),
        of_method("embed_sentences", **OF_SENTENCES),
        {
            "sentences": SENTENCES[1:],
            "batch_size": 2,
            "output_format": "top",
            "show_progress_bar": ShownBy(f"{EMBEDDER}long_work_has_a_bar"),
        },
    ),
    "nearest": Kind(
        lambda: defaults(ElmoEmbedder.nearest),
        of_method("nearest", **NEAREST),
        {
            "word": "sat",
            "sentences": SENTENCES[1:],
            "queries": [["a", "cat"]],
            "n_nearest": 1,
            "max_occurrences": 2,
        },
    ),
    "embed_file": Kind(
        lambda: {
            **defaults(ElmoEmbedder.embed_file),
            **{
                f.name: f.default
                for f in fields(CorpusEmbedder)
                if f.name not in ("embedder", "batch_size")
            },
        },
        of_file,
        {
            "input_file": "heldout",
            "output_file_path": "elsewhere.hdf5",
            "output_format": "top",
            "batch_size": 2,
            "forget_sentences": True,
            "use_sentence_keys": beside(True, input_file="heldout"),
            "include_sentence_indices": True,
            "overwrite": ShownBy(f"{CORPUS}what_is_complete_stays"),
            "resume": ShownBy(f"{CORPUS}only_the_rest_is_embedded"),
            "batch_tokens": 40,
            "dtype": "float16",
            "compression": "gzip",
            "num_shards": ShownBy(f"{CORPUS}shards_at_the_same_time"),
            "shard_index": beside(1, num_shards=2),
            "pooling": "mean",
        },
    ),
    "options.json": Kind(
        lambda: {
            f.metadata["key"]: None if f.metadata["key"] in OPTIONS else f.default
            for kind in (BiLmOptions, CharCnnOptions)
            for f in fields(kind)
            if "key" in f.metadata
        },
        of_options,
        {
            "lstm.dim": 9,
            "lstm.projection_dim": 5,
            "lstm.n_layers": 1,
            "lstm.cell_clip": 0.01,
            "lstm.proj_clip": 0.01,
            "lstm.use_skip_connections": True,
            "bidirectional": False,
            "dropout": 0.5,
            "n_tokens_vocab": beside(41, base=OF_WORDS),
            "sample_softmax": beside(True, n_negative_samples_batch=5),
            "n_negative_samples_batch": beside(5, sample_softmax=True),
            "share_embedding_softmax": beside(True, base=OF_WORDS),
            "char_cnn.filters": [[1, 4], [3, 4]],
            "char_cnn.activation": "tanh",
            "char_cnn.embedding.dim": 5,
            "char_cnn.n_highway": 1,
            "char_cnn.max_characters_per_token": 5,
        },
    ),
    "LanguageModel": Kind(
        lambda: defaults(LanguageModel),
        of_model,
        {
            "options": nested({**OPTIONS, "lstm.dim": 9}),
            "words": WORDS[:9],
            "pretrained": ShownBy(
                "tests/commands/options_test.py::test_an_option_has_an_effect_or_is_refused"
            ),
            "num_samples": 5,
            "dropout": 0.5,
            "share_embedding_softmax": beside(True, options=nested(OF_WORDS)),
            "bidirectional": False,
            "variational_dropout": beside(True, dropout=0.5),
            "recurrent_dropout": 0.5,
            "state_reset": 0.9,
            "precision": "bfloat16",
            "source": refused("my.json", 'my.json: "lstm.dim" is missing', options={"a": 1}),
        },
    ),
    "TextBatches": Kind(
        lambda: defaults(TextBatches),
        of_texts,
        {
            "paths": "heldout",
            "words": WORDS[:9],
            "batch_size": 2,
            "num_steps": 3,
            "max_characters_per_token": 5,
            "bidirectional": False,
            "shuffle_sentences": True,
            "drop_last": False,
            "seed": beside(1, shuffle_sentences=True),
            "encoding_errors": instead("replace", paths="latin"),
            "contiguous": True,
            "max_rows": 4,
            "batches_per_epoch": 2,
            "read_ahead": ShownBy(
                "tests/training/text_batches_test.py::test_epochs_are_passes_over_the_text"
            ),
            "device": "meta",
            "rank": beside(1, world_size=2),
            "world_size": 2,
        },
    ),
    "Trainer": Kind(
        lambda: defaults(Trainer),
        of_trainer,
        {
            "model": {**OPTIONS, "lstm.dim": 9},
            "text": "text",
            "validation": "heldout",
            "folder": ShownBy("tests/commands/elmo_train_test.py::test_mistakes"),
            "num_epochs": 2,
            "patience": beside(1, optimizer="adam", learning_rate=0.1, num_epochs=4),
            "optimizer": "adam",
            "learning_rate": 0.01,
            "warmup_steps": beside(1, optimizer="adam", num_epochs=4),
            "grad_norm": 0.01,
            "num_gradient_accumulation_steps": 2,
            "validate_first": True,
            "save_every_num_batches": 2,
            "tensorboard": True if HAS_TENSORBOARD else refused(True, "tensorboard"),
            "device": ShownBy("tests/device_training_test.py::test_training"),
            "settings": {"a note": 1},
        },
    ),
    "elmoformanylangs.Embedder": Kind(
        lambda: {**defaults(Embedder), **defaults(Embedder.sents2elmo)},
        lambda model_dir="elmo", batch_size=64, sents=SENTENCES, **settings: Embedder(
            model_dir, batch_size
        ).sents2elmo(sents, **settings),
        {
            "model_dir": "other",
            "batch_size": ShownBy(
                "tests/adapters/elmoformanylangs_test.py::"
                "test_a_batch_has_as_many_sentences_as_asked"
            ),
            "sents": SENTENCES[1:],
            "output_layer": 0,
        },
    ),
    "ElmoSentences": Kind(
        lambda: defaults(ElmoSentences),
        lambda model="elmo", **settings: ElmoSentences(model, **settings).tokenize(["a cat"]),
        {"model": "other", "pooling": "max", "layers": "top"},
    ),
    "simple_elmo.load": Kind(
        lambda: defaults(ElmoModel.load),
        functools.partial(of_simple_elmo, "load"),
        {
            "directory": "other",
            "max_batch_size": refused(0, "batch_size is 0; it must be at least 1"),
            "limit": ignored(1),
            "full": refused(True, "to predict words"),
        },
    ),
    **{
        f"simple_elmo.{method}": Kind(
            functools.partial(defaults, getattr(ElmoModel, method)),
            functools.partial(of_simple_elmo, method),
            {"texts": SENTENCES[1:], "warmup": False, "layers": "top", "session": ignored(1)},
        )
        for method in ("get_elmo_vectors", "get_elmo_vector_average")
    },
}

SETTINGS = Settings(KINDS)


@pytest.mark.parametrize("kind", KINDS)
def test_each_setting_has_a_line_and_an_explicit_default_no_effect(kind):
    SETTINGS.check_names(kind)


@pytest.mark.parametrize("kind, name", SETTINGS.lines)
def test_a_setting_has_an_effect_or_is_refused(kind, name):
    SETTINGS.check_line(kind, name)
