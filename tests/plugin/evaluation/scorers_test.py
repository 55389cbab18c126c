"""Our counts against the official scripts, ports of them, or published examples."""

import random
import shutil
import subprocess

import pytest
from allennlp.training.metrics import EvalbBracketingScorer
from allennlp.training.metrics.evalb_bracketing_scorer import DEFAULT_EVALB_DIR
from conlleval import evaluate
from nltk import Tree
from scorch.scores import b_cubed, ceaf_e, conll2012, muc

from allennlp_elmo_plugin.plugin.evaluation import scorers

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
def test_conlleval_is_the_script(tags):
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
    of_types = {f"-{kind}": result for kind, result in expected["slots"]["chunks"].items()}
    assert len(scores) == 1 + 3 * (1 + len(of_types))
    for suffix, result in {**of_all, **of_types}.items():
        assert 0.1 < result["evals"]["f1"] < 0.9
        for name, key in (("precision", "prec"), ("recall", "rec"), ("f1", "f1")):
            assert scores[name + suffix] == pytest.approx(100 * result["evals"][key])


@needs_perl
def test_srl_eval_is_the_script():
    """As the script prints: the predicate doesn't count."""
    gold, predicted = [["B-A0", "B-V"]] * 2, [["B-A0", "B-V"], ["O", "B-V"]]
    scores = scorers.srl_eval([1, 1], gold, predicted)
    assert scores == {"precision": 100, "recall": 50, "f1": 66.67}
    scores = scorers.srl_eval([0], [["B-V", "B-A0"]], [["B-V", "B-A1"]])
    assert scores == {"precision": 0, "recall": 0, "f1": 0}
    gold = [["B-A0", "I-A0", "B-V", "B-A1", "B-C-A1", "B-AM-TMP"]]
    predicted = [["B-A0", "B-A0", "B-V", "B-A1", "B-C-A1", "B-AM-LOC"]]
    scores = scorers.srl_eval([2], gold, predicted)
    assert scores == {"precision": 25, "recall": 33.33, "f1": 28.57}


def test_coreference_example_of_pradhan_et_al():
    """Scoring Coreference Partitions of Predicted Mentions (2014), their worked example."""
    scores = scorers.coreference([["abc", "defg"]], [["ab", "cd", "fghi"]])
    expected = {"muc": (40, 40, 40), "b_cubed": (41.67, 50, 45.45), "ceafe": (65, 43.33, 52)}
    for name, numbers in expected.items():
        actual = [scores[f"{kind}-{name}"] for kind in ("recall", "precision", "f1")]
        assert actual == pytest.approx(numbers, abs=0.01)
    assert scores["f1"] == pytest.approx((40 + 45.45 + 52) / 3, abs=0.01)


@pytest.mark.parametrize("smallest", [1, 2])
def test_coreference_is_that_of_scorch(smallest):
    """Scorch takes one document; in one of all, the clusters of two still share no mention."""
    choose = random.Random(4)

    def document():
        clusters = {}
        for i in range(20):
            clusters.setdefault(choose.randint(0, 6), []).append((i, i))
        return [spans for key, spans in clusters.items() if len(spans) >= smallest and key < 5]

    pairs = [[document() for _ in range(20)] for _ in range(2)]
    gold, predicted = (
        [{(n, *span) for span in cluster} for n, doc in enumerate(documents) for cluster in doc]
        for documents in pairs
    )
    scores = scorers.coreference(*pairs)
    for name, metric in (("muc", muc), ("b_cubed", b_cubed), ("ceafe", ceaf_e)):
        expected = [100 * score for score in metric(gold, predicted)]
        actual = [scores[f"{kind}-{name}"] for kind in ("recall", "precision", "f1")]
        assert actual == pytest.approx(expected)
    assert scores["f1"] == pytest.approx(100 * conll2012(gold, predicted))


def test_bioul_and_nothing_at_all():
    bioul, bio = [["B-PER", "L-PER", "O", "U-LOC"]], [["B-PER", "I-PER", "O", "B-LOC"]]
    assert set(scorers.conlleval(bioul, bio).values()) == {100}
    assert scorers.coreference([[[(0, 0), (1, 1)]]], [[]])["f1"] == 0
    assert scorers.conlleval([["B-LOC"]], [["O"]])["f1-LOC"] == 0
    assert set(scorers.conlleval([[]], [[]]).values()) == {0}


def test_squad():
    # By hand, with the official rules: articles, punctuation and case do not count.
    scores = scorers.squad(
        [["old mill"], ["the two fields", "fields"], ["the harbour"]],
        ["The Old Mill!", "two fields near", "rain"],
    )
    assert scores["em"] == pytest.approx(100 / 3)
    assert scores["f1"] == pytest.approx(100 * (1 + 0.8 + 0) / 3)


def test_class_accuracy():
    gold, predicted = ["0", "0", "1", "1", "1", "4"], ["0", "1", "1", "3", "1", "1"]
    assert scorers.class_accuracy(gold, predicted) == pytest.approx(
        {"accuracy": 50, "accuracy-0": 50, "accuracy-1": 200 / 3, "accuracy-4": 0}
    )


def _random_tree(choose, words):
    """A tree over tagged words, with unary chains."""
    labels = ["NP", "ADVP", "PRT", "WHNP-1", "ADJP=2", "S", "TOP"]
    if len(words) == 1:
        tree = Tree(words[0][1], [words[0][0]])
    else:
        place = choose.randrange(1, len(words))
        parts = _random_tree(choose, words[:place]), _random_tree(choose, words[place:])
        flat = choose.random() < 0.3 and isinstance(parts[0][0], Tree)
        tree = Tree("VP", [*parts[0], parts[1]] if flat else list(parts))
    for label in choose.sample(labels, choose.choice([0, 0, 1, 2])):
        tree = Tree(label, [tree])
    return tree


@needs_compiler
def test_evalb_is_the_program(tmp_path):
    shutil.copytree(DEFAULT_EVALB_DIR, tmp_path / "EVALB")
    subprocess.run(["make"], cwd=tmp_path / "EVALB", check=True, capture_output=True)
    choose = random.Random(1)
    tags = ["NN", "VB", ",", ".", ":", "``", "''", "PRP$", "-LRB-"]
    gold, predicted = [], []
    for _ in range(150):
        words = [(f"w{n}", choose.choice(tags)) for n in range(choose.randint(1, 14))]
        gold.append(Tree("S", [_random_tree(choose, words)]))
        other = _random_tree(choose, words)
        predicted.append(gold[-1] if choose.random() < 0.3 else Tree("S", [other]))
    program, ours = EvalbBracketingScorer(str(tmp_path / "EVALB")), scorers.BracketingScorer()
    for scorer in (program, ours):
        scorer(predicted[:50], gold[:50])
        scorer(predicted[50:], gold[50:])
    expected = program.get_metric(reset=True)
    assert 0.3 < expected["evalb_f1_measure"] < 0.9
    assert ours.get_metric(reset=True) == expected
    scores = scorers.evalb(gold, predicted)
    for name, key in (("precision", "precision"), ("recall", "recall"), ("f1", "f1_measure")):
        assert scores[name] == pytest.approx(100 * expected[f"evalb_{key}"])
    assert ours.get_metric()["evalb_f1_measure"] == 0


def test_evalb_example():
    gold = Tree.fromstring("(S (NP (DT The) (NN end)) (VP (VBZ drags) (PRT (RP on))) (. .))")
    # The full stop is not counted, nor where it is attached; PRT is ADVP.
    predicted = Tree.fromstring("(S (DT The) (NN end) (VP (VBZ drags) (ADVP (RP on)) (. .)))")
    scores = scorers.evalb([gold] * 3, [predicted, gold, gold])
    assert scores["precision"] == 100 and scores["recall"] == pytest.approx(100 * 11 / 12)
    assert scores["complete"] == pytest.approx(200 / 3)
