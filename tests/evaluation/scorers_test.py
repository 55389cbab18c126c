"""Our counts against the official scripts, ports of them, or published examples."""

import random
import re
import shutil
import subprocess
from pathlib import Path
from typing import List, Tuple

import pytest
import torch
from allennlp.common.checks import ConfigurationError
from allennlp.data import Vocabulary
from allennlp.training.metrics import EvalbBracketingScorer, SpanBasedF1Measure
from allennlp.training.metrics.evalb_bracketing_scorer import DEFAULT_EVALB_DIR
from allennlp_models.coref.metrics.conll_coref_scores import ConllCorefScores, Scorer
from allennlp_models.structured_prediction.metrics.srl_eval_scorer import (
    DEFAULT_SRL_EVAL_PATH,
    SrlEvalScorer,
)
from allennlp_models.structured_prediction.models.srl import convert_bio_tags_to_conll_format
from conlleval import evaluate
from nltk import Tree
from scorch.scores import b_cubed, ceaf_e, conll2012, muc

from allennlp_elmo_plugin.evaluation import scorers
from allennlp_elmo_plugin.evaluation.bracketing_scorer import BracketingScorer

needs_compiler = pytest.mark.skipif(shutil.which("make") is None, reason="EVALB is in C")
needs_perl = pytest.mark.skipif(shutil.which("perl") is None, reason="srl-eval.pl needs perl")


@pytest.mark.parametrize(
    "tags",
    [
        ["O", "O", "B-LOC", "I-LOC", "B-PER", "I-PER", "I-ORG"],
        ["O", "I-LOC", "I-PER", "B-PER", "B-LOC"],
        ["O", "O", "B-A", "I-A", "B-B-c", "I-B-c"],
    ],
)
def test_conlleval_is_the_script(tags: List[str]) -> None:
    choose = random.Random(0)
    gold = [[choose.choice(tags) for _ in range(choose.randint(1, 12))] for _ in range(200)]
    predicted = [[choose.choice([a, a, choose.choice(tags)]) for a in row] for row in gold]
    lines = []
    for gold_tags, predicted_tags in zip(gold, predicted):
        lines += [f"word {pair[0]} {pair[1]}" for pair in zip(gold_tags, predicted_tags)] + [""]
    expected = evaluate(lines)
    scores = scorers.conlleval(gold, predicted)
    counts = expected["overall"]["tags"]["stats"]
    assert scores["accuracy"] == pytest.approx(100 * counts["correct"] / counts["gold"])
    of_all = {"": expected["overall"]["chunks"]}
    of_types = {f"-{kind}": found for kind, found in expected["slots"]["chunks"].items()}
    assert len(scores) == 1 + 3 * (1 + len(of_types))
    for suffix, found in {**of_all, **of_types}.items():
        assert 0.1 < found["evals"]["f1"] < 0.9
        for name, key in (("precision", "prec"), ("recall", "rec"), ("f1", "f1")):
            assert scores[name + suffix] == pytest.approx(100 * found["evals"][key])


def test_conlleval_example() -> None:
    # The numbers are those that the package seqeval (1.2.2), a port of the script, gives.
    gold = [["I-PER", "I-PER", "O", "I-LOC"], ["I-LOC", "B-LOC", "I-LOC", "O", "I-ORG"]]
    predicted = [["I-PER", "I-PER", "O", "I-ORG"], ["I-LOC", "I-LOC", "I-LOC", "O", "I-ORG"]]
    scores = scorers.conlleval(gold, predicted)
    assert scores["precision"] == pytest.approx(50.0)
    assert scores["recall"] == pytest.approx(40.0)
    assert scores["f1"] == pytest.approx(400 / 9)
    assert scores["accuracy"] == pytest.approx(100 * 7 / 9)
    assert [scores[f"f1-{kind}"] for kind in ("LOC", "ORG", "PER")] == pytest.approx(
        [0.0, 200 / 3, 100.0]
    )


def test_bioul_is_the_same_as_bio() -> None:
    bioul = [["B-PER", "L-PER", "O", "U-LOC"]]
    bio = [["B-PER", "I-PER", "O", "B-LOC"]]
    other = [["B-PER", "I-PER", "B-LOC", "O"]]
    assert scorers.conlleval(bioul, other) == scorers.conlleval(bio, other)


ROLES = ["A0", "A1", "C-A1", "R-A0", "AM-TMP"]


def _random_frames(seed: int, n: int = 60) -> Tuple[List[List[str]], List[int], List, List]:
    choose = random.Random(seed)
    sentences, verbs, gold, predicted = [], [], [], []
    for _ in range(n):
        length, verb = choose.randint(4, 10), choose.randint(0, 3)
        sentences.append([f"w{i}" for i in range(length)])
        verbs.append(verb)
        pair = []
        for _ in range(2):
            tags = ["O"] * length
            tags[verb] = "B-V"
            position = verb + 1
            while position < length:
                role, end = choose.choice(ROLES), position + choose.randint(1, 3)
                if choose.random() < 0.7:
                    tags[position:end] = [f"B-{role}", *[f"I-{role}"] * (end - position - 1)]
                position = end
            pair.append(tags[:length])
        gold.append(pair[0])
        predicted.append(pair[0] if choose.random() < 0.6 else pair[1])
    return sentences, verbs, gold, predicted


@needs_perl
def test_srl_eval_is_the_script_and_allennlps_metric_adds_up_to_it() -> None:
    sentences, verbs, gold, predicted = _random_frames(1)
    scores = scorers.srl_eval(sentences, verbs, gold, predicted)
    metric = SrlEvalScorer(ignore_classes=["V"])
    for start in range(0, len(gold), 7):  # in batches, as in training
        batch = slice(start, start + 7)
        metric(
            verbs[batch],
            sentences[batch],
            list(map(convert_bio_tags_to_conll_format, predicted[batch])),
            list(map(convert_bio_tags_to_conll_format, gold[batch])),
        )
    found = metric.get_metric()
    assert 20 < scores["f1"] < 90
    for name, ours in (("precision", "precision"), ("recall", "recall"), ("f1-measure", "f1")):
        assert scores[ours] == pytest.approx(100 * found[f"{name}-overall"], abs=0.005)


@needs_perl
def test_span_f1_is_not_the_script() -> None:
    """AllenNLP's own count of spans, which is why `srl` has the script's."""
    sentences, verbs, gold, predicted = _random_frames(1)
    scores = scorers.srl_eval(sentences, verbs, gold, predicted)
    vocab = Vocabulary(non_padded_namespaces=["tags"])
    for tag in sorted({tag for tags in (*gold, *predicted) for tag in tags}):
        vocab.add_token_to_namespace(tag, "tags")
    metric = SpanBasedF1Measure(vocab, "tags", ignore_classes=["V"])
    for pair in zip(predicted, gold):
        ids = [torch.tensor([[vocab.get_token_index(tag, "tags") for tag in row]]) for row in pair]
        one_hot = torch.nn.functional.one_hot(ids[0], vocab.get_vocab_size("tags"))
        metric(one_hot.float(), ids[1])
    assert abs(100 * metric.get_metric()["f1-measure-overall"] - scores["f1"]) > 0.1


@needs_perl
def test_srl_eval_reads_the_line_of_the_script(tmp_path) -> None:
    (tmp_path / "gold").write_text("sold (V*)\n-    (A0*)\n\n")
    (tmp_path / "predicted").write_text("sold (V*)\n-    (A1*)\n\n")
    command = ["perl", DEFAULT_SRL_EVAL_PATH, tmp_path / "gold", tmp_path / "predicted"]
    output = subprocess.run(command, stdout=subprocess.PIPE, check=True, text=True).stdout
    (line,) = [line for line in output.splitlines() if "Overall" in line]
    assert re.split(r"\s+", line.strip())[4:] == ["0.00", "0.00", "0.00"]
    words = [["sold", "flour"]]
    scores = scorers.srl_eval(words, [0], [["B-V", "B-A0"]], [["B-V", "B-A1"]])
    assert scores == {"precision": 0.0, "recall": 0.0, "f1": 0.0}


@needs_perl
def test_srl_eval_of_a_predicate_written_as_a_dash() -> None:
    gold, predicted = [["B-A0", "B-V"]] * 2, [["B-A0", "B-V"], ["O", "B-V"]]
    scores = scorers.srl_eval([["we", "run"], ["he", "-"]], [1, 1], gold, predicted)
    assert (scores["precision"], scores["recall"]) == (100, 50)


def test_srl_eval_without_perl(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "")
    with pytest.raises(ConfigurationError, match="perl"):
        scorers.srl_eval([["a"]], [0], [["B-V"]], [["B-V"]])


def test_coreference_example_of_pradhan_et_al() -> None:
    """Scoring Coreference Partitions of Predicted Mentions (2014), their worked example."""
    gold = [[["a", "b", "c"], ["d", "e", "f", "g"]]]
    predicted = [[["a", "b"], ["c", "d"], ["f", "g", "h", "i"]]]
    scores = scorers.coreference([_pairs(gold[0])], [_pairs(predicted[0])])
    assert scores["recall-muc"] == pytest.approx(40)
    assert scores["precision-muc"] == pytest.approx(40)
    assert scores["f1-muc"] == pytest.approx(40)
    assert scores["recall-b_cubed"] == pytest.approx(41.67, abs=0.01)
    assert scores["precision-b_cubed"] == pytest.approx(50)
    assert scores["f1-b_cubed"] == pytest.approx(45.45, abs=0.01)
    assert scores["recall-ceafe"] == pytest.approx(65)
    assert scores["precision-ceafe"] == pytest.approx(43.33, abs=0.01)
    assert scores["f1-ceafe"] == pytest.approx(52)
    mean = (scores["f1-muc"] + scores["f1-b_cubed"] + scores["f1-ceafe"]) / 3
    assert scores["f1"] == pytest.approx(mean)


def _pairs(clusters: List[List[str]]) -> List[List[Tuple[int, int]]]:
    return [[(ord(name), ord(name)) for name in cluster] for cluster in clusters]


def _random_clusters(choose: random.Random, smallest: int) -> List[List[Tuple[int, int]]]:
    mentions = [(i, i) for i in range(20) if choose.random() < 0.7]
    clusters = {}
    for mention in mentions:
        clusters.setdefault(choose.randint(0, 4), []).append(mention)
    return [cluster for cluster in clusters.values() if len(cluster) >= smallest]


@pytest.mark.parametrize("smallest", [1, 2])
def test_coreference_is_that_of_scorch(smallest: int) -> None:
    """Scorch takes one document; in one of all, the clusters of two still share no mention."""
    choose = random.Random(4)
    pairs = [[_random_clusters(choose, smallest) for _ in range(20)] for _ in range(2)]
    gold, predicted = (
        [
            {(n, *mention) for mention in cluster}
            for n, clusters in enumerate(documents)
            for cluster in clusters
        ]
        for documents in pairs
    )
    scores = scorers.coreference(*pairs)
    for name, metric in (("muc", muc), ("b_cubed", b_cubed), ("ceafe", ceaf_e)):
        expected = [100 * score for score in metric(gold, predicted)]
        found = [scores[f"{kind}-{name}"] for kind in ("recall", "precision", "f1")]
        assert found == pytest.approx(expected)
    assert scores["f1"] == pytest.approx(100 * conll2012(gold, predicted))


def test_coreference_is_allennlps_count_where_no_cluster_has_one_mention() -> None:
    choose = random.Random(3)
    gold = [_random_clusters(choose, 2) for _ in range(20)]
    predicted = [_random_clusters(choose, 2) for _ in range(20)]
    expected = _allennlp_coreference(gold, predicted)
    scores = scorers.coreference(gold, predicted)
    assert [scores[f"f1-{name}"] for name in ("muc", "b_cubed", "ceafe")] == pytest.approx(expected)


def test_clusters_of_one_mention_count() -> None:
    """As in the official scorer; AllenNLP's count gives the same with and without them."""
    gold, predicted = [[[(0, 0), (2, 2)], [(5, 5)]]], [[[(0, 0), (2, 2)]]]
    scores = scorers.coreference(gold, predicted)
    assert scores["recall-b_cubed"] == pytest.approx(200 / 3)
    assert scores["recall-ceafe"] == pytest.approx(50)
    muc, b_cubed, _ = _allennlp_coreference(gold, predicted)
    assert muc == b_cubed == 100


def _allennlp_coreference(gold: List, predicted: List) -> List[float]:
    found = [Scorer(metric) for metric in (Scorer.muc, Scorer.b_cubed, Scorer.ceafe)]
    for true, guess in zip(gold, predicted):
        clusters, mention_to_gold = ConllCorefScores.get_gold_clusters(true)
        guesses, mention_to_predicted = ConllCorefScores.get_gold_clusters(guess)
        for scorer in found:
            scorer.update(guesses, clusters, mention_to_predicted, mention_to_gold)
    return [100 * scorer.get_f1() for scorer in found]


def test_nothing_predicted() -> None:
    assert scorers.coreference([[[(0, 0), (1, 1)]]], [[]])["f1"] == 0
    assert scorers.conlleval([["B-LOC"]], [["O"]])["f1"] == 0
    assert set(scorers.conlleval([[]], [[]]).values()) == {0}


def test_squad() -> None:
    # By hand, with the official rules: articles, punctuation and case do not count.
    scores = scorers.squad(
        [["old mill"], ["the two fields", "fields"], ["the harbour"]],
        ["The Old Mill!", "two fields near", "rain"],
    )
    assert scores["em"] == pytest.approx(100 / 3)
    assert scores["f1"] == pytest.approx(100 * (1 + 0.8 + 0) / 3)


def test_class_accuracy() -> None:
    gold, predicted = ["0", "0", "1", "1", "1", "4"], ["0", "1", "1", "3", "1", "0"]
    assert scorers.class_accuracy(gold, predicted) == pytest.approx(
        {"accuracy": 50, "accuracy-0": 50, "accuracy-1": 200 / 3, "accuracy-4": 0}
    )


def _random_tree(choose: random.Random, words: List[Tuple[str, str]]) -> Tree:
    """A tree over tagged words, with unary chains."""
    if len(words) == 1:
        tree = Tree(words[0][1], [words[0][0]])
        labels = choose.sample(
            ["NP", "ADVP", "PRT", "WHNP-1", "ADJP=2"], choose.choice([0, 0, 1, 2])
        )
    else:
        place = choose.randrange(1, len(words))
        parts = _random_tree(choose, words[:place]), _random_tree(choose, words[place:])
        flat = choose.random() < 0.3 and isinstance(parts[0][0], Tree)
        tree = Tree("NP", [*parts[0], parts[1]] if flat else list(parts))
        labels = choose.choices(["S", "VP", "NP", "TOP", "ADVP", "PRT"], k=choose.choice([0, 1, 2]))
    for label in labels:
        tree = Tree(label, [tree])
    return tree


@needs_compiler
def test_evalb_is_the_program(tmp_path: Path) -> None:
    shutil.copytree(DEFAULT_EVALB_DIR, tmp_path / "EVALB")
    subprocess.run(["make"], cwd=tmp_path / "EVALB", check=True, capture_output=True)
    choose = random.Random(0)
    tags = ["NN", "VB", ",", ".", ":", "``", "''", "PRP$", "-LRB-"]
    gold, predicted = [], []
    for _ in range(150):
        words = [(f"w{n}", choose.choice(tags)) for n in range(choose.randint(1, 14))]
        gold.append(Tree("S", [_random_tree(choose, words)]))
        other = _random_tree(choose, words)
        predicted.append(gold[-1] if choose.random() < 0.3 else Tree("S", [other]))
    program, ours = EvalbBracketingScorer(str(tmp_path / "EVALB")), BracketingScorer()
    for scorer in (program, ours):
        for begin in range(0, 150, 50):
            scorer(predicted[begin : begin + 50], gold[begin : begin + 50])
    expected = program.get_metric(reset=True)
    assert 0.3 < expected["evalb_f1_measure"] < 0.9
    assert ours.get_metric(reset=True) == expected
    scores = scorers.evalb(gold, predicted)
    assert scores["f1"] == pytest.approx(100 * expected["evalb_f1_measure"])
    assert ours.get_metric()["evalb_f1_measure"] == 0


def test_evalb_example() -> None:
    gold = Tree.fromstring("(S (NP (DT The) (NN end)) (VP (VBZ drags) (PRT (RP on))) (. .))")
    # The full stop is not counted, nor where it is attached; PRT is ADVP.
    predicted = "(S (DT The) (NN end) (VP (NP (VBZ drags)) (ADVP (RP on)) (. .)))"
    scores = scorers.evalb([gold, gold], [Tree.fromstring(predicted), gold])
    assert scores["precision"] == pytest.approx(100 * 7 / 8)
    assert scores["recall"] == pytest.approx(100 * 7 / 8)
    assert scores["complete"] == 50
