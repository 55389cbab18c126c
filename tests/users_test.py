"""What hurt the users of bilm-tf: each of these was a question or a crash there."""

import tracemalloc
from pathlib import Path

import pytest

from allennlp_elmo_plugin.data.truncated_bptt_reader import TruncatedBpttLmReader


@pytest.mark.parametrize("shuffle", [False, True])
def test_memory_does_not_grow_with_a_file(shuffle: bool, tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setattr("allennlp_elmo_plugin.data.text.BLOCK_BYTES", 2**16)
    peaks = []
    for n_lines in (3_000, 7_500):  # 2.7 and 6.8 MB, more than two blocks
        path = tmp_path / f"{n_lines}.txt"
        path.write_text((" ".join(["word" * 25] * 9) + "\n") * n_lines, "utf-8")
        reader = TruncatedBpttLmReader(16, 80, None, shuffle_sentences=shuffle)
        tracemalloc.start()
        n_rows = 16 * sum(1 for _ in reader.batches(str(path)))
        peaks.append(tracemalloc.get_traced_memory()[1])
        tracemalloc.stop()
        assert n_rows > 0.9 * n_lines * 10 / 80
    assert peaks[1] < 1.1 * peaks[0]
