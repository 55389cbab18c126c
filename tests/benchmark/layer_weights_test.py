from typing import Any, List

import pytest

from allennlp_elmo_plugin.benchmark.layer_weights import columns_by_place, draw_layer_weights

ROWS = [
    {"task": "squad", "layer_weights": [[0.1, 0.2, 0.7], [0.4, 0.4, 0.2]]},
    {"task": "ner", "layer_weights": [[0.3, 0.6, 0.1]]},
    {"task": "mine", "layer_weights": []},
]


def test_two_mixes_are_those_of_output_and_input() -> None:
    assert columns_by_place(ROWS) == {
        "input": [("squad", [0.4, 0.4, 0.2]), ("ner", [0.3, 0.6, 0.1])],
        "output": [("squad", [0.1, 0.2, 0.7])],
    }
    assert list(columns_by_place(ROWS)) == ["input", "output"]
    assert columns_by_place(ROWS[1:]) == {"input": [("ner", [0.3, 0.6, 0.1])]}
    assert columns_by_place(ROWS[2:]) == {}
    three = [{"task": "mine", "layer_weights": [[1.0]] * 3}]
    assert list(columns_by_place(three)) == ["mix 1", "mix 2", "mix 3"]


def test_the_picture_has_each_weight() -> None:
    pytest.importorskip("matplotlib")
    figure = draw_layer_weights({**columns_by_place(ROWS), "mix 1": [("small", [0.5, 0.5])]})
    panels: List[Any] = [axes for axes in figure.axes if axes.get_title()]
    assert [axes.get_title() for axes in panels] == ["input", "output", "mix 1"]
    assert [[text.get_text() for text in axes.get_xticklabels()] for axes in panels] == [
        ["squad", "ner"],
        ["squad"],
        ["small"],
    ]
    assert [text.get_text() for text in panels[0].texts] == "0.40 0.30 0.40 0.60 0.20 0.10".split()
    legend = [text.get_text() for text in figure.legends[0].get_texts()]
    assert legend == ["token layer", "LSTM 1", "LSTM 2"]
    assert [text.get_text() for text in panels[2].texts] == ["0.50", "0.50", ""]
