"""
The cost of reduced precisions: errors of the layers, and perplexity on held-out text.

```
python -m speed.precision my_elmo my_test.txt
```

`my_elmo` is a folder that `allennlp elmo-export` has written, with its softmax; the text is
tokenised, one sentence a line.
"""

import argparse
from pathlib import Path
from typing import List, Tuple

import torch

from allennlp_elmo_plugin.bilm.kernels.matrix_product import PRECISIONS
from allennlp_elmo_plugin.modules.elmo_bilm import ElmoBiLm
from scripts.compare_initial_states import (
    batches,
    perplexity,
    read_sentences,
    read_softmax,
    score,
)


def layers(elmo: str, precision: str, sentences: List[List[str]]) -> List[torch.Tensor]:
    """
    For each layer shape `(n_words, 2 * dim)`.
    """
    bilm = ElmoBiLm(elmo, None, initial_state="settled", precision=precision).eval()
    with torch.no_grad():
        outputs = [bilm.run_sentences(batch) for batch in batches(sentences, 64)]
    return [
        torch.cat([output.unpack(layer)[output.packing.mask()] for output in outputs])
        for layer in range(bilm.num_layers)
    ]


def errors(actual: torch.Tensor, expected: torch.Tensor) -> Tuple[float, float]:
    """
    The relative error of a layer, and the lowest cosine of a word.
    """
    error = ((actual - expected).norm() / expected.norm()).item()
    return error, torch.nn.functional.cosine_similarity(actual, expected).min().item()


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m speed.precision")
    parser.add_argument("elmo", type=Path, help="folder of an exported ELMo")
    parser.add_argument("text", type=Path, help="tokenised text, one sentence a line")
    parser.add_argument("--words", type=int, default=20000, help="words of it to read (20000)")
    args = parser.parse_args()
    sentences = read_sentences(args.text, args.words)
    softmax, ids = read_softmax(args.elmo)
    expected = layers(str(args.elmo), "float32", sentences)
    print("| precision | perplexity | relative error of layers 0, 1, 2 | lowest cosine of a word |")
    print("|---|---|---|---|")
    for precision in PRECISIONS:
        bilm = ElmoBiLm(str(args.elmo), None, initial_state="settled", precision=precision).eval()
        forward, backward = score(bilm, softmax, ids, sentences, 64)
        figures = [
            errors(*pair) for pair in zip(layers(str(args.elmo), precision, sentences), expected)
        ]
        print(
            f"| {precision} | {perplexity(forward.every, backward.every):.2f} | "
            f"{', '.join(f'{error:.2%}' for error, _ in figures)} | "
            f"{', '.join(f'{cosine:.4f}' for _, cosine in figures)} |"
        )


if __name__ == "__main__":
    main()
