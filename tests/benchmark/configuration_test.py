import gzip
import json
import shutil
from pathlib import Path
from typing import Any, Dict

import pytest
from allennlp.common.checks import ConfigurationError
from allennlp.common.plugins import import_plugins

from allennlp_elmo_plugin.benchmark.configuration import Configuration
from allennlp_elmo_plugin.commands.elmo_benchmark import CONFIG_FOLDER
from tests.support.task_data import FIXTURES, write_task_data
from tests.support.testing import write_random_elmo


@pytest.fixture(autouse=True)
def elmo(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import_plugins()
    monkeypatch.chdir(tmp_path)
    Path("elmo").mkdir()
    write_random_elmo("elmo")
    write_task_data(Path("data"))
    Path("vectors.txt").write_text("the 1 2 3\nfilm 4 5 6\n", encoding="utf-8")


SPLITS = {"train": "train", "validation": "dev", "test": "test"}


def make(task: str = "sst5", data: str = "data", **changes: Any) -> Configuration:
    """The configuration of a task on made data."""
    place = Path(data, "ner_made" if task == "ner" else task)
    found = {split: next(place.glob(f"{name}*")) for split, name in SPLITS.items()}
    given = {"elmo": "elmo", "folder": CONFIG_FOLDER, "overrides": "{}", **changes}
    return Configuration({task: found}, **given)


@pytest.mark.parametrize("reader", [{"type": "snli", "tokenizer": "whitespace"}, None])
def test_the_reader_of_validation_data(reader: Any) -> None:
    """It reads them and the test data, as in AllenNLP; they may have another format."""
    for name in ("dev", "test"):
        shutil.copy(FIXTURES / "snli.jsonl", f"data/sst5/{name}.txt")
    config: Dict[str, Any] = {"dataset_reader": {"type": "sst_tokens"}}
    if reader:
        config["validation_dataset_reader"] = reader
    for name in ("sst5", "sst5_elmo"):
        Path(f"{name}.jsonnet").write_text(json.dumps(config), encoding="utf-8")
    configuration = make(folder=Path())
    if reader:
        configuration.check(["sst5"])
    else:
        with pytest.raises(ConfigurationError, match="dev.txt: AllenNLP's reader 'sst_tokens'"):
            configuration.check(["sst5"])


def test_seeds_and_variables(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("VECTORS", "theirs.txt")
    monkeypatch.setenv("WORD_DIM", "7")
    for vectors, dim in ((None, 50), (Path("vectors.txt"), 3)):
        configuration = make(vectors=vectors)
        assert configuration.models == ["baseline", *["vectors"][: dim == 3], "elmo"]
        for model in configuration.models:
            params = configuration.params("sst5", model, 4).as_dict(quiet=True)
            assert {params[f"{name}_seed"] for name in ("random", "numpy", "pytorch")} == {4}
            words = params["model"]["text_field_embedder"]["token_embedders"]["tokens"]
            given = "vectors.txt" if dim == 3 and model != "baseline" else None
            assert (words["embedding_dim"], words.get("pretrained_file")) == (dim, given)


def test_digests() -> None:
    """They depend on contents, not on places, and on no seed."""
    before = make(vectors=Path("vectors.txt")).digests("sst5", "elmo")
    assert list(before) == ["config", "data", "elmo", "vectors"]
    Path("moved").mkdir()
    for name in ("elmo", "data", "vectors.txt"):
        Path(name).rename(Path("moved", name))

    moved = {"elmo": "moved/elmo", "vectors": Path("moved/vectors.txt"), "data": "moved/data"}
    assert make(**moved).digests("sst5", "elmo") == before

    def changed(**changes: Any) -> Any:
        found = make(**{**moved, **changes}).digests("sst5", "elmo")
        return {name for name, value in found.items() if value != before[name]}

    assert changed(overrides='{"trainer.num_epochs": 1}') == {"config"}
    assert changed(vectors=None) == {"config", "vectors"}
    with Path("moved/vectors.txt").open("a") as file:
        file.write("a 1 2 3\n")
    assert changed() == {"vectors"}
    write_random_elmo("moved/elmo", seed=1)
    assert changed() == {"vectors", "elmo"}
    Path("moved/data/sst5/test.txt").write_text("(4 fine)", encoding="utf-8")
    assert changed() == {"vectors", "elmo", "data"}


def test_digests_of_folders() -> None:
    before = make("srl").digests("srl", "baseline")
    assert list(before) == ["config", "data"]
    made = Path("data/srl/test/made.gold_conll")
    made.write_text(made.read_text("utf-8") + "\n", encoding="utf-8")
    assert make("srl").digests("srl", "baseline")["data"] != before["data"]


@pytest.mark.parametrize(
    "task, split, text, message",
    [
        ("ner", "train", "-DOCSTART- -X- -X- O\n\n", "finds nothing in it"),
        ("snli", "test", '{"sentence1": "a", "sentence2": "b", "gold_label": "-"}\n', "finds noth"),
        ("chunking", "dev", "It PRP B-NP\n\nIt PRP I-NP\n", "stops after 1 instances: InvalidTag"),
        ("sst5", "dev", "(3 good", "stops after 0 instances: ValueError: "),
    ],
)
def test_bad_data(task: str, split: str, text: str, message: str) -> None:
    (file,) = Path("data").glob(f"{task}*/{split}*")
    file.write_text(text, encoding="utf-8")
    with pytest.raises(ConfigurationError, match=rf"{file}: AllenNLP's reader '\w+' {message}"):
        make(task).check([task])


@pytest.mark.parametrize(
    "changes, message",
    [
        ({"overrides": "epochs=1"}, "--overrides epochs=1: .*not a binary operator"),
        ({"overrides": "[]"}, r"--overrides \[\]: it must be a JSON object"),
        ({"overrides": '{"model.x.dropout": 0}'}, "sst5.jsonnet with --overrides: .*x.dropout"),
        ({"elmo": "nowhere"}, "--elmo nowhere: .*there is no"),
        ({"elmo": "vectors.txt"}, "--elmo vectors.txt: .* needs its weight_file"),
        ({"folder": Path("elmo")}, "--configs elmo: there is no elmo/sst5.jsonnet"),
        ({"folder": Path("bad")}, "sst5.jsonnet with --overrides: .*Unknown variable: b"),
        ({"vectors": Path("missing.txt")}, "missing.txt"),
        ({"vectors": Path("not.gz")}, "Not a gzipped file"),
        ({"vectors": Path("words")}, "--vectors words: each line must be a word and its numbers"),
    ],
)
def test_mistakes(changes: Dict[str, Any], message: str) -> None:
    Path("bad").mkdir()
    Path("bad/sst5.jsonnet").write_text("{ a: b }", encoding="utf-8")
    Path("not.gz").write_bytes(b"not gzip")
    Path("words").write_text("the\nfilm\n", encoding="utf-8")
    with pytest.raises((ConfigurationError, OSError), match=message):
        make(**changes).check(["sst5"])


@pytest.mark.parametrize("text", ["a 1 2 3\nb 4 5 6\n", "2 3\na 1 2 3\n", "a 1 2 3 \nb 4 5 6 \n"])
@pytest.mark.parametrize("name", ["v.txt", "v.txt.gz", "v.vec"])
def test_sizes_of_word_vectors(text: str, name: str) -> None:
    data = text.encode()
    Path(name).write_bytes(gzip.compress(data) if name.endswith(".gz") else data)
    params = make(vectors=Path(name)).params("sst5", "vectors", 1).as_dict(quiet=True)
    words = params["model"]["text_field_embedder"]["token_embedders"]["tokens"]
    assert words["embedding_dim"] == 3


def test_word_vectors_of_reviews_are_not_trained() -> None:
    configuration = make("imdb", vectors=Path("vectors.txt"))
    trained = {}
    for model in configuration.models:
        settings = configuration.params("imdb", model, 1).as_dict(quiet=True)["model"]
        trained[model] = settings["text_field_embedder"]["token_embedders"]["tokens"]["trainable"]
    assert trained == {"baseline": True, "vectors": False, "elmo": False}
