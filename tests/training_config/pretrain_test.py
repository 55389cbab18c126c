"""The configurations of pretraining and fine-tuning, at a small size."""

import json
import shutil
from pathlib import Path

import pytest
from allennlp.commands.evaluate import evaluate_from_archive
from allennlp.commands.train import train_model
from allennlp.common import Params

from allennlp_elmo_plugin import ElmoEmbedder
from allennlp_elmo_plugin.commands.elmo_export import export
from allennlp_elmo_plugin.commands.elmo_vocab import make_vocabulary
from allennlp_elmo_plugin.pretrained.checkpoints.training_run import set_options
from tests.support.corpora import write_text
from tests.support.training_runs import metrics

FOLDER = Path(__file__).parents[2] / "training_config" / "pretrain"
NAMES = "original medium small small_corpus tiny_corpus tiny english token_embeddings demo"
CONFIGS = NAMES.split()
SMALL = {
    **{f"{which}dataset_reader.batch_size": 4 for which in ("", "validation_")},
    **{f"{which}dataset_reader.num_steps": 5 for which in ("", "validation_")},
    "model.num_samples": 20,
    "model.options.lstm.dim": 12,
    "model.options.lstm.projection_dim": 8,
    "model.options.char_cnn.filters": [[1, 4], [2, 4], [3, 8]],
    "model.options.char_cnn.embedding.dim": 4,
    "trainer.num_epochs": 2,
}
LEFT_OUT = {"fine_tune": "model.", "token_embeddings": "model.options.char_cnn."}


@pytest.fixture(scope="module")
def config(tmp_path_factory):
    """Reads a configuration with small sizes, and what else is given, overridden."""
    folder = tmp_path_factory.mktemp("corpus")
    for name, seed, n_sentences in (("train", 1, 60), ("validation", 2, 11)):
        write_text(folder / f"{name}.txt", seed, n_sentences)
        text = (folder / f"{name}.txt").read_text(encoding="utf-8")
        new_text = text.replace("word3", "neu").replace("word1", "ﬁlm")
        (folder / f"new_{name}.txt").write_text(new_text, encoding="utf-8")
    make_vocabulary(folder / "train.txt", folder / "vocab")
    make_vocabulary([folder / "train.txt", folder / "new_train.txt"], folder / "new_vocab")

    def read(name, source="", domain="", **changes):
        variables = {
            "PRETRAINED_FILE": source,
            "TRAIN_DATA_PATH": str(folder / f"{domain}train.txt"),
            "VALIDATION_DATA_PATH": str(folder / f"{domain}validation.txt"),
            "VOCABULARY_PATH": str(folder / f"{domain}vocab"),
        }
        left_out = LEFT_OUT.get(name, "nothing")
        small = {key: value for key, value in SMALL.items() if not key.startswith(left_out)}
        overrides = json.dumps({**small, **changes})
        return Params.from_file(FOLDER / f"{name}.jsonnet", overrides, variables)

    return read


@pytest.mark.parametrize("name", CONFIGS)
def test_config_makes_all_of_a_training(name, config, tmp_path):
    train_model(config(name), str(tmp_path / "model"), dry_run=True)


def test_configs_have_the_published_sizes_and_train_like_bilm_tf():
    names = sorted([*CONFIGS, "fine_tune", "original_distributed"])
    assert sorted(path.stem for path in FOLDER.glob("*.jsonnet")) == names
    variables = dict.fromkeys(("TRAIN_DATA_PATH", "VALIDATION_DATA_PATH", "VOCABULARY_PATH"), "x")
    sizes = {"original": (4096, 512, 2), "medium": (2048, 256, 1), "small": (1024, 128, 1)}
    published = {
        name: Params.from_file(FOLDER / f"{name}.jsonnet", ext_vars=variables).as_dict(quiet=True)
        for name in (*sizes, "original_distributed")
    }
    distributed = {**published["original"], "distributed": {"cuda_devices": [0, 1, 2]}}
    assert published["original_distributed"] == distributed
    for name, (dim, projection_dim, n_highway) in sizes.items():
        params = published[name]
        assert params["model"]["options"] == {
            "bidirectional": True,
            "char_cnn": {
                "activation": "relu",
                "embedding": {"dim": 16},
                "filters": [[1, 32], [2, 32], [3, 64], [4, 128], [5, 256], [6, 512], [7, 1024]],
                "max_characters_per_token": 50,
                "n_characters": 262,
                "n_highway": n_highway,
            },
            "dropout": 0.1,
            "lstm": {
                "cell_clip": 3,
                "dim": dim,
                "n_layers": 2,
                "proj_clip": 3,
                "projection_dim": projection_dim,
                "use_skip_connections": True,
            },
        }
        set_options(values := {}, params["model"], n_words=793_471)
        assert values["sample_softmax"] and values["n_negative_samples_batch"] == 8192
        reader, trainer = params["dataset_reader"], params["trainer"]
        assert reader.pop("shuffle_sentences") and reader == {
            "type": "truncated_bptt_lm",
            "batch_size": 128,
            "num_steps": 20,
            "max_characters_per_token": 50,
        }
        assert params["validation_dataset_reader"] == {**reader, "drop_last": False}
        size = json.loads((FOLDER / "sizes.json").read_text(encoding="utf-8"))[name]
        # The loop's defaults are bilm-tf's.
        assert size["training"] == {"num_epochs": 10, "optimizer": "adagrad", "learning_rate": 0.2}
        assert trainer == {"type": "language_model", **size["training"]}


def test_training_fine_tuning_and_evaluation_agree(config, tmp_path):
    """Before its first update, a fine-tuned model is its source; then it needs that no more."""
    first, second, run = (tmp_path / name for name in ("first", "second", "run"))
    train_model(config("small", **{"model.num_samples": 0, "trainer.num_epochs": 3}), first)
    archive, trained = f"{first}/model.tar.gz", metrics(first)
    assert 1 < trained["best_validation_perplexity"] < 0.8 * 43  # words
    evaluated = evaluate_from_archive(archive, config("small")["validation_data_path"])
    train_model(config("fine_tune", archive, **{"trainer.num_epochs": 1}), second)
    for name in ("perplexity", "forward_perplexity", "backward_perplexity", "loss"):
        expected = trained[f"best_validation_{name}"]
        assert evaluated[name] == pytest.approx(expected, rel=1e-5)
        assert metrics(second)[f"initial_validation_{name}"] == pytest.approx(expected, rel=1e-6)

    export(archive, tmp_path / "source")
    train_model(config("fine_tune", str(tmp_path / "source"), "new_"), run)
    shutil.rmtree(tmp_path / "source")
    before, best = (metrics(run)[f"{when}_validation_perplexity"] for when in ("initial", "best"))
    assert "start fresh" in Path(run, "out.log").read_text(encoding="utf-8")
    assert best < before
    archive, text = f"{run}/model.tar.gz", config("small", "", "new_")["validation_data_path"]
    assert evaluate_from_archive(archive, text)["perplexity"] == pytest.approx(best, rel=1e-5)
    export(archive, tmp_path / "exported")
    layers = ElmoEmbedder(str(tmp_path / "exported")).embed_sentence(["neu", "ﬁlm"])
    assert layers.shape == (3, 2, 16)
