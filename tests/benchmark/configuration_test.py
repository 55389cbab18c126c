import gzip
import json
import shutil
from pathlib import Path
from typing import Any, Dict

import pytest
from allennlp.common.checks import ConfigurationError
from allennlp.common.plugins import import_plugins

from allennlp_elmo_plugin.benchmark.configuration import Configuration
from allennlp_elmo_plugin.benchmark.task import find_tasks
from allennlp_elmo_plugin.commands.elmo_benchmark import CONFIG_FOLDER
from tests.support.task_data import FIXTURES, write_task_data
from tests.support.testing import write_random_elmo

VECTORS = Path("vectors.txt")


@pytest.fixture(autouse=True)
def elmo(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import_plugins()
    monkeypatch.chdir(tmp_path)
    Path("elmo").mkdir()
    write_random_elmo("elmo")
    write_task_data(Path("data"))
    VECTORS.write_text("the 1 2 3\nfilm 4 5 6\n", encoding="utf-8")


def make(task: str = "sst5", data: str = "data", **changes: Any) -> Configuration:
    """The configuration of a task on made data."""
    tasks = find_tasks(Path(data), [task])
    return Configuration(tasks, **{"elmo": "elmo", "folder": CONFIG_FOLDER, **changes})


def words_of(configuration: Configuration, task: str, model: str) -> Dict[str, Any]:
    params = configuration.params(task, model, 1).as_dict(quiet=True)
    return params["model"]["text_field_embedder"]["token_embedders"]["tokens"]


def test_models_differ_in_their_words_and_runs_in_their_seeds(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("VECTORS", "theirs.txt")
    monkeypatch.setenv("WORD_DIM", "7")
    for vectors, dim in ((None, 50), (VECTORS, 3)):
        configuration = make(vectors=vectors)
        assert configuration.models == ["baseline", *["vectors"][: dim == 3], "elmo"]
        for model in configuration.models:
            words = words_of(configuration, "sst5", model)
            given = "vectors.txt" if dim == 3 and model != "baseline" else None
            assert (words["embedding_dim"], words.get("pretrained_file")) == (dim, given)
            params = configuration.params("sst5", model, 4)
            assert {params[f"{name}_seed"] for name in ("random", "numpy", "pytorch")} == {4}
            assert ("elmo" in str(params.as_dict(quiet=True))) == (model == "elmo")
    reviews = make("imdb", vectors=VECTORS)
    trained = [words_of(reviews, "imdb", model)["trainable"] for model in reviews.models]
    assert trained == [True, False, False]


@pytest.mark.parametrize("text", ["a 1 2 3\nb 4 5 6\n", "2 3\na 1 2 3\n", "a 1 2 3 \nb 4 5 6 \n"])
@pytest.mark.parametrize("name", ["v.txt", "v.txt.gz"])
def test_the_size_of_word_vectors_is_read(text: str, name: str) -> None:
    data = text.encode()
    Path(name).write_bytes(gzip.compress(data) if name.endswith(".gz") else data)
    assert words_of(make(vectors=Path(name)), "sst5", "vectors")["embedding_dim"] == 3


def test_digests_depend_on_contents_not_on_places() -> None:
    before = make(vectors=VECTORS).digests("sst5", "elmo")
    assert list(before) == ["config", "data", "elmo", "vectors"]
    assert list(make("srl").digests("srl", "baseline")) == ["config", "data"]
    Path("moved").mkdir()
    for name in ("elmo", "data", "vectors.txt"):
        Path(name).rename(Path("moved", name))

    def changed(**changes: Any) -> Any:
        moved = {"elmo": "moved/elmo", "vectors": Path("moved/vectors.txt"), "data": "moved/data"}
        found = make(**{**moved, **changes}).digests("sst5", "elmo")
        return {name for name, value in found.items() if value != before[name]}

    assert changed() == set()
    assert changed(overrides='{"trainer.num_epochs": 1}') == {"config"}
    assert changed(vectors=None) == {"config", "vectors"}
    assert "elmo" in changed(elmo="tiny")
    with Path("moved/vectors.txt").open("a") as file:
        file.write("a 1 2 3\n")
    assert changed() == {"vectors"}
    write_random_elmo("moved/elmo", seed=1)
    assert changed() == {"vectors", "elmo"}
    Path("moved/data/sst5/test.txt").write_text("(4 fine)", encoding="utf-8")
    assert changed() == {"vectors", "elmo", "data"}
    # A folder of files
    srl = make("srl", "moved/data", elmo="tiny").digests("srl", "baseline")["data"]
    with Path("moved/data/srl/test/made.gold_conll").open("a") as file:
        file.write("\n")
    assert make("srl", "moved/data", elmo="tiny").digests("srl", "baseline")["data"] != srl


@pytest.mark.parametrize(
    "task, split, text, message",
    [
        ("ner", "train", "-DOCSTART- -X- -X- O\n\n", "finds nothing in it"),
        ("snli", "test", '{"sentence1": "a", "sentence2": "b", "gold_label": "-"}\n', "finds noth"),
        ("chunking", "dev", "It PRP B-NP\n\nIt PRP I-NP\n", "stops after 1 instances: InvalidTag"),
        ("sst5", "dev", "(3 good", "stops after 0 instances: ValueError: "),
    ],
)
def test_bad_data_are_found_before_training(task: str, split: str, text: str, message: str) -> None:
    make(task).check([next(iter(make(task).tasks))])
    (file,) = Path("data").glob(f"{task}*/{split}*")
    file.write_text(text, encoding="utf-8")
    with pytest.raises(ConfigurationError, match=rf"{file}: AllenNLP's reader '\w+' {message}"):
        make(task).check([file.parent.name])


@pytest.mark.parametrize("reader", [{"type": "snli", "tokenizer": "whitespace"}, None])
def test_validation_and_test_data_may_have_a_reader_of_their_own(reader: Any) -> None:
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


@pytest.mark.parametrize(
    "changes, message",
    [
        ({"overrides": "epochs=1"}, "not a binary oper"),
        ({"overrides": '{"model.x.dropout": 0}'}, "x.dropout"),
        ({"elmo": "nowhere"}, "there is no nowhere"),
        ({"elmo": "vectors.txt"}, "vectors.txt.*no weights.hdf5 beside it"),
        ({"elmo": "cut"}, "weights.hdf5"),
        ({"folder": Path("elmo")}, "--configs elmo: there is no elmo/sst5.jsonnet"),
        ({"folder": Path("bad")}, "sst5.jsonnet.*Unknown variable: b"),
        ({"vectors": Path("missing.txt")}, "missing.txt"),
        ({"vectors": Path("not.gz")}, "Not a gzipped file"),
    ],
)
def test_mistakes(changes: Dict[str, Any], message: str) -> None:
    shutil.copytree("elmo", "cut")
    Path("cut", "weights.hdf5").write_bytes(b"")
    Path("bad").mkdir()
    Path("bad/sst5.jsonnet").write_text("{ a: b }", encoding="utf-8")
    Path("not.gz").write_bytes(b"not gzip")
    with pytest.raises((ValueError, ConfigurationError, OSError, RuntimeError), match=message):
        make(**changes).check(["sst5"])
