import json

import pytest

from speed import pipeline
from speed.workload import Corpus


@pytest.mark.parametrize("arguments", [[], ["--shuffle"]])
def test_reads_the_text_to_its_end(tmp_path, monkeypatch, arguments):
    monkeypatch.setattr(pipeline.torch, "set_num_threads", lambda _: None)
    output = tmp_path / "rows.json"
    pipeline.main(["--words", "40000", "--distinct", "500", "--output", str(output), *arguments])
    rows = json.loads(output.read_text())["rows"]
    assert 10 <= len(rows) <= 12
    assert rows[-1]["n_words"] > 40000
    assert all(row["words_per_second"] > 0 and row["memory"] > 0 for row in rows)


def test_text(tmp_path):
    n_words = pipeline.write_text(str(tmp_path / "text"), Corpus(50), 1000)
    lines = (tmp_path / "text").read_text().splitlines()
    assert sum(len(line.split()) for line in lines) == n_words >= 1000
    assert all(lines)
