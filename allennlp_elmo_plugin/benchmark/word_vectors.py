"""The word vectors of a benchmark's second baseline."""

from pathlib import Path

import numpy as np
from allennlp.common.checks import ConfigurationError

from allennlp_elmo_plugin.files.text_lines import open_lines

_UNREADABLE = (".h5", ".hdf5", ".bz2", ".xz", ".bin")


def check_word_vectors(path: Path) -> int:
    """
    Check a file of word vectors: a word and its numbers a line, as in GloVe, with or without
    word2vec's first line of sizes. It may be compressed (gzip) if its name ends with ".gz", which
    AllenNLP goes by.

    # Returns

    `int`
        The size of a vector.
    """
    if not path.is_file():
        raise ConfigurationError(f"--vectors {path}: there is no such file")
    if path.suffix in _UNREADABLE:
        raise ConfigurationError(f"--vectors {path}: give a text file, plain or .gz")
    dim = 0
    with open_lines(path, ConfigurationError) as text:
        if text.is_gzip != (path.suffix == ".gz"):
            what = "is" if text.is_gzip else "isn't"
            raise ConfigurationError(
                f"--vectors {path}: the file {what} compressed by gzip, but its name says "
                "otherwise; rename it"
            )
        for raw in iter(text.read_line, b""):
            fields = text.decode(raw).rstrip().split(" ")
            if text.number == 1 and len(fields) <= 2 and all(map(str.isdecimal, fields)):
                continue  # the sizes
            dim = dim or len(fields) - 1
            if dim < 2 or len(fields) <= dim:
                raise ConfigurationError(
                    f"--vectors {path}, line {text.number}: {len(fields) - 1} numbers after the "
                    f"word, where {dim if dim > 1 else 'at least 2'} must be"
                )
            if len(fields) > dim + 1:
                continue  # a word with spaces in it, of which AllenNLP skips the line
            try:
                finite = np.isfinite(np.array(fields[1:], dtype=np.float32)).all()
            except ValueError as error:
                raise ConfigurationError(
                    f"--vectors {path}, line {text.number}: not a number ({error})"
                ) from error
            if not finite:
                raise ConfigurationError(
                    f"--vectors {path}, line {text.number}: the vector of {fields[0]!r} contains "
                    "NaN or infinity"
                )
    if not dim:
        raise ConfigurationError(f"--vectors {path}: there are no vectors in it")
    return dim
