import json
import math

import pytest
import torch
from allennlp.common import Params
from allennlp.evaluation import Evaluator

from allennlp_elmo_plugin.plugin.components import TruncatedBpttDataLoader, TruncatedBpttLmReader
from allennlp_elmo_plugin.plugin.components.bidirectional_lm import BidirectionalLanguageModel
from allennlp_elmo_plugin.training.evaluation import metrics_table
from tests.support.bilm_tf import OPTIONS, read_vocabulary


def test_the_metrics_of_all_words_are_written_and_printed(tmp_path, capsys):
    vocab = read_vocabulary(tmp_path / "vocabulary")
    model = BidirectionalLanguageModel(vocab, options=OPTIONS["tokens"]).eval()
    torch.nn.init.normal_(model.softmax.bias)
    # Three batches, the last of which has a single word.
    text = "the cat sat\n" * 4 + "dog xyz\n"
    words = text.split()
    (tmp_path / "test.txt").write_text(text, encoding="utf-8")
    reader = TruncatedBpttLmReader(4, 2, None, drop_last=False)
    loader = TruncatedBpttDataLoader(reader, str(tmp_path / "test.txt"))
    loader.index_with(vocab)
    losses = [model(**batch)["loss"].item() for batch in loader]  # like an evaluation that failed
    model.train()
    path = tmp_path / "metrics.json"
    metrics = Evaluator.from_params(Params({}))(model, loader, metrics_output_file=path)
    assert math.exp(metrics["loss"]) == pytest.approx(metrics["perplexity"], rel=1e-12)
    assert abs(metrics["loss"] - sum(losses) / len(losses)) > 1e-4  # Batches differ in size.
    unknown = [word not in vocab._token_to_index["lm_tokens"] for word in words]
    assert metrics["unknown_words"] == sum(unknown) / 14 > 0
    assert json.loads(path.read_text(encoding="utf-8")) == metrics
    output = capsys.readouterr()
    assert output.out == metrics_table({"test.txt": {**metrics, "predicted_words": 19}}) + "\n"


def test_table():
    test = {"loss": 2.0, "predicted_words": 1, "unknown_words": 0.25}
    columns = {"training": {"perplexity": 12345.678}, "test": test}
    assert metrics_table(columns) == (
        "                  training    test\n"
        "perplexity       12,345.68\n"
        "loss                        2.0000\n"
        "predicted_words                  1\n"
        "unknown_words               25.00%"
    )
