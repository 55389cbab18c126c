"""Bad data are named before anything is trained."""

import gzip
import json
import shutil
from pathlib import Path

import pytest
from allennlp.common.checks import ConfigurationError

from allennlp_elmo_plugin.benchmark.data_folder import find_tasks
from tests.support.task_data import FIXTURES, write_task_data


@pytest.fixture
def data(tmp_path: Path) -> Path:
    return write_task_data(tmp_path / "data")


@pytest.mark.parametrize(
    "task, line, text, message",
    [
        ("sst5", 2, "(7 (2 a) (2 b))", "'7', where 0 to 4"),
        ("sst5", 3, "(3 (2 a)", "no tree"),
        ("ner_made", 4, "Holt NNP I-PER", "3 columns, where there must be 4"),
        ("ner_made", 4, "Holt NNP I-NP PER", "'PER'"),
        ("snli", 5, '{"sentence1": "a"', "no JSON"),
        ("snli", 1, '{"sentence1": "a", "gold_label": "neutral"}', '"sentence2" is missing'),
        (
            "snli",
            1,
            '{"sentence1": "a", "sentence2": "b", "gold_label": "yes"}',
            "'yes', where one of",
        ),
        ("sst5", 2, "(3 not bad ( really ) at all)", "'really', .*-LRB-"),
        ("sst5", 1, "\ufeff(3 good)", "byte order mark"),
        ("coref", 2, "made 0 0 Anna", "4 columns"),
        ("coref", 2, "made 0 0 Anna NNP * - - - - * 0)", "mention 0 ends, but has not begun"),
        ("coref", 2, "made 0 0 Anna NNP * - - - - * zero", "'zero', where '-' or mentions"),
        ("sst5", 2, "(3 )", "a sentence without words"),
        (
            "snli",
            1,
            '{"sentence1": " ", "sentence2": "b", "gold_label": "neutral"}',
            '"sentence1" has no words',
        ),
        ("imdb", 2, '{"text": "Fine .", "label": "pos"', "no JSON"),
        ("imdb", 2, '{"text": "Fine ."}', '"label" is missing, or no string'),
        ("imdb", 2, '{"text": " ", "label": "pos"}', '"text" is empty'),
        ("constituency", 2, "(S (NP (NN a)) (VP", "no tree, which must be one line"),
        ("constituency", 2, "(S (NP (-NONE- *)) (VP (VB go)))", "an empty element"),
        ("constituency", 2, "(S (NP the end) (VP (VB go)))", "'NP': each needs a tag"),
        ("constituency", 2, "(S (NP) (VP (VB go)))", "'NP' has no words"),
        ("constituency", 2, "(S ((NN a)) (VP (VB go)))", "a constituent without a label"),
        ("constituency", 2, "(TOP (UH Yes))", "a tagged word alone"),
        ("constituency", 2, "(TOP (S (VP (VB go))) (. .))", "'TOP' has 2 children"),
        ("constituency", 2, "(VROOT-x (NP (NN a)) (VP (VB go)))", "'VROOT-x' has 2 children"),
        ("constituency", 2, "( (S (VP (VB go))) (. .))", "a constituent without a label"),
    ],
)
def test_bad_data(task: str, line: int, text: str, message: str, data: Path) -> None:
    (file,) = (data / task).glob("dev*")
    lines = file.read_text(encoding="utf-8").split("\n")
    lines[line - 1] = text
    file.write_text("\n".join(lines), encoding="utf-8")
    with pytest.raises(ConfigurationError, match=message) as error:
        find_tasks(data, [task])
    assert f"{file}, line {line}: " in str(error.value)


@pytest.mark.parametrize(
    "old, new, message",
    [
        ('"answer_start": 0', '"answer_start": -83', "has the answer 'Anna Holt', which is not at"),
        ('"question": "Who sold it?"', '"question": " "', "question 'b' has no words"),
        ('"question": "Who sold it?", ', "", "not of SQuAD's format .*'question'"),
    ],
)
def test_bad_question(old: str, new: str, message: str, data: Path) -> None:
    file = data / "squad" / "train.json"
    text = file.read_text(encoding="utf-8")
    assert old in text
    file.write_text(text.replace(old, new), encoding="utf-8")
    with pytest.raises(ConfigurationError, match=message):
        find_tasks(data, ["squad"])


def test_compressed_data_and_folders(data: Path) -> None:
    file = data / "sst5" / "dev.txt"
    file.write_bytes(gzip.compress(file.read_bytes()))
    with pytest.raises(ConfigurationError, match=r"dev.txt: it is compressed \(gzip\)"):
        find_tasks(data, ["sst5"])
    file.unlink()
    file.mkdir()
    with pytest.raises(ConfigurationError, match="dev.txt is a folder; give a file"):
        find_tasks(data, ["sst5"])
    file = data / "squad" / "dev.json"
    file.unlink()
    file.mkdir()
    with pytest.raises(ConfigurationError, match="dev.json is a folder; give a file"):
        find_tasks(data, ["squad"])


def test_valid_data(data: Path) -> None:
    pairs = [
        # AllenNLP leaves "-" out.
        {"sentence1": "", "sentence2": "b", "gold_label": "-"},
        {"sentence1": "\u4e2d", "sentence2": "b", "gold_label": "neutral"},
    ]
    with (data / "snli" / "dev.jsonl").open("a", encoding="utf-8") as file:
        file.writelines(json.dumps(pair) + "\n" for pair in pairs)
    # As the release of CoNLL-2012 calls its files
    made = data / "srl" / "dev" / "made.gold_conll"
    made.rename(made.with_name("made.v4_gold_conll"))
    # A comment at the end of a document
    file = data / "coref" / "dev.gold_conll"
    text = file.read_text(encoding="utf-8")
    file.write_text(text.replace("#end", "# checked\n#end"), encoding="utf-8")
    assert list(find_tasks(data, ["snli", "srl", "coref"])) == ["snli", "srl", "coref"]


def test_srl_without_predicates(data: Path) -> None:
    file = data / "srl" / "test" / "made.gold_conll"
    rows = [line.split() for line in file.read_text(encoding="utf-8").splitlines()]
    without = [" ".join(row if row[:1] == ["#"] else [*row[:11], *row[-1:]]) for row in rows]
    file.write_text("\n".join(without) + "\n", encoding="utf-8")
    with pytest.raises(ConfigurationError, match="test: there is no predicate in it"):
        find_tasks(data, ["srl"])


def test_bad_folder_of_conll_files(data: Path) -> None:
    file = data / "srl" / "train" / "made.gold_conll"
    file.write_bytes(file.read_bytes().replace(b"The DT", b"The\xff DT"))
    with pytest.raises(ConfigurationError, match="line 2: byte 0xff is not UTF-8"):
        find_tasks(data, ["srl"])
    file.unlink()
    with pytest.raises(ConfigurationError, match="without"):
        find_tasks(data, ["srl"])


def test_open_brackets(data: Path) -> None:
    file = data / "srl" / "train" / "made.gold_conll"
    text = file.read_text(encoding="utf-8")
    file.write_text(text.replace("(V*)", "(V*", 1), encoding="utf-8")
    with pytest.raises(
        ConfigurationError, match=r"line 7: .* open brackets \(column or mention 12"
    ):
        find_tasks(data, ["srl"])


def test_srl_of_files(data: Path) -> None:
    shutil.copy(data / "srl" / "dev" / "made.gold_conll", data / "srl" / "train.gold_conll")
    shutil.rmtree(data / "srl" / "train")
    with pytest.raises(ConfigurationError, match="train.gold_conll: AllenNLP reads a folder"):
        find_tasks(data, ["srl"])


def test_srl_without_perl(data: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "")
    with pytest.raises(ConfigurationError, match="needs perl"):
        find_tasks(data, ["srl"])


def test_documents_without_an_end(data: Path) -> None:
    file = data / "coref" / "test.gold_conll"
    text = file.read_text(encoding="utf-8")
    file.write_text(text.replace("#end document", ""), encoding="utf-8")
    with pytest.raises(ConfigurationError, match="0 '#end document'"):
        find_tasks(data, ["coref"])
    file.unlink()
    shutil.copytree(data / "srl" / "test", file)
    with pytest.raises(ConfigurationError, match="test.gold_conll is a folder"):
        find_tasks(data, ["coref"])


def test_a_kind_is_all_its_folders(data: Path) -> None:
    shutil.copytree(data / "ner_made", data / "ner")
    assert list(find_tasks(data, ["ner"])) == ["ner", "ner_made"]
    assert list(find_tasks(data, ["ner_made"])) == ["ner_made"]
    with pytest.raises(ConfigurationError, match="names no task"):
        find_tasks(data, [])


def test_bad_questions(data: Path) -> None:
    file = data / "squad" / "test.json"
    file.write_text(file.read_text(encoding="utf-8").replace(": 31", ": 30"), encoding="utf-8")
    with pytest.raises(
        ConfigurationError, match="question 'a' has the answer '1903', which is not at 30"
    ):
        find_tasks(data, ["squad"])
    questions = json.loads((FIXTURES / "squad.json").read_text(encoding="utf-8"))
    questions["data"][0]["paragraphs"][0]["qas"][0]["answers"] = []
    file.write_text(json.dumps(questions), encoding="utf-8")
    with pytest.raises(ConfigurationError, match="question 'a' has no answer"):
        find_tasks(data, ["squad"])
    file.write_text('{"data": [{}]}', encoding="utf-8")
    with pytest.raises(ConfigurationError, match="format"):
        find_tasks(data, ["squad"])


def test_missing_data(data: Path) -> None:
    with pytest.raises(ConfigurationError, match="no known kind"):
        find_tasks(data, ["pos"])
    with pytest.raises(ConfigurationError, match="'ner_other'"):
        find_tasks(data, ["ner_other"])
    (data / "sst5" / "train.txt").unlink()
    with pytest.raises(ConfigurationError, match="train"):
        find_tasks(data, ["sst5"])
    (data / "chunking" / "valid.txt").touch()
    with pytest.raises(ConfigurationError, match=r"dev.txt.*valid.txt"):
        find_tasks(data, ["chunking"])
    with pytest.raises(ConfigurationError, match="nowhere"):
        find_tasks(data / "nowhere", ["sst5"])
    (data / "ner_made" / "test.conll4.txt").write_text("\n", encoding="utf-8")
    with pytest.raises(ConfigurationError, match="nothing in it"):
        find_tasks(data, ["ner_made"])
