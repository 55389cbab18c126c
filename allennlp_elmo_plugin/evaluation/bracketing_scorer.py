"""AllenNLP's metric of trees without its program in C."""

from typing import Any, Iterable, List

from allennlp.training.metrics import EvalbBracketingScorer
from nltk import Tree
from torch import nn

from allennlp_elmo_plugin.evaluation.scorers import bracket_counts


class BracketingScorer(EvalbBracketingScorer):
    """
    The counts of AllenNLP's `EvalbBracketingScorer` (with COLLINS.prm, its default), which runs a
    program of C for each batch and compiles it at its first use. This one needs neither.
    """

    def __call__(  # type: ignore[override]
        self, predicted_trees: List[Tree], gold_trees: List[Tree]
    ) -> None:
        for gold, predicted in zip(gold_trees, predicted_trees):
            right, in_gold, in_predicted = bracket_counts(gold, predicted)
            self._correct_predicted_brackets += right
            self._gold_brackets += in_gold
            self._predicted_brackets += in_predicted


def replace_evalb(model: nn.Module) -> None:
    """Let a parser that scores its trees by EVALB do without the program."""
    modules: Iterable[Any] = model.modules()
    for module in modules:
        if isinstance(getattr(module, "_evalb_score", None), EvalbBracketingScorer):
            module._evalb_score = BracketingScorer()
