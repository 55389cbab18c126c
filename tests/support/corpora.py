"""Small corpora, and what a language model reads of them, made in the plainest way."""

import gzip
import random

import torch

LINES = [" ".join(f"{i}.{j}" for j in range(i % 7)) for i in range(300)]

SPACES = (" ", "  ", "\t", "\r", "\x0b", " \x0c")  # that separate words

Rows = list[list[str]]


def write_corpus(folder, lines=LINES):
    """Write lines to three files, the second compressed, and an empty one beside them."""
    folder.mkdir()
    size = -(-len(lines) // 3)
    for number in range(3):
        content = "".join(f"{line}\n" for line in lines[size * number :][:size]).encode()
        if number == 1:
            (folder / f"{number}.gz").write_bytes(gzip.compress(content))
        else:
            (folder / f"{number}.txt").write_bytes(content)
    (folder / "empty").touch()
    return folder


def write_text(path, seed, n_sentences):
    """Write random sentences, one a line. Rarer words are further back, as the sampler assumes."""
    rng = random.Random(seed)
    with open(path, "w", encoding="utf-8") as file:
        for _ in range(n_sentences):
            words = (f"word{int(40 * rng.random() ** 2)}" for _ in range(rng.randint(1, 9)))
            file.write(" ".join(words) + "\n")


# The lengths around 8 and 15 bytes, where the keys of words change; NUL bytes, which fill keys.
WORDS = [
    *("x" * n for n in (1, 7, 8, 9, 14, 15, 16, 17, 70, 255, 256, 257, 263, 271)),
    *("x" * n + "\0" for n in (1, 6, 7, 8, 13, 14, 15)),
    *("\0" * n for n in (1, 2, 8, 9, 15, 16)),
    *("東京", "é" * 7, "é" * 8, "a\x1c\x85\xa0b", "<S>", "</S>", "<UNK>"),
]


def random_lines(random_):
    """Some without words, and some with words that look like marks."""
    words = [*random_.sample(WORDS, 10), *(str(i) for i in range(40))]
    return [
        random_.choice(SPACES).join(["", *random_.choices(words, k=random_.choice([0, 1, 3, 20]))])
        for _ in range(random_.randint(1, 60))
    ]


def split_line(line):
    return [word.decode() for word in line.encode().split()]


def words_of(lines):
    """A vocabulary with the words of lines."""
    return list(dict.fromkeys(["<S>", "</S>", "<UNK>", *split_line(" ".join(lines))]))


def plain_windows(lines, n_rows, num_steps, reverse=False, drop_last=True, contiguous=False):
    """The words of each row, and for each of them the one to predict, window by window."""
    marked = [["<S>", *split_line(line), "</S>"] for line in lines]
    if reverse:
        marked = [words[::-1] for words in marked]
    pairs_of_lines = [list(zip(words, words[1:])) for words in marked]
    rows = [[] for _ in range(n_rows)]
    if contiguous:
        pairs = sum(reversed(pairs_of_lines) if reverse else pairs_of_lines, [])
        pairs_of_lines = []
        bounds = [row * len(pairs) // n_rows for row in range(n_rows + 1)]
        rows = [pairs[start:end] for start, end in zip(bounds, bounds[1:])]
    windows = []
    while True:
        window = [], []
        for row in rows:
            while len(row) < num_steps and pairs_of_lines:
                row += pairs_of_lines.pop(0)
            taken, row[:] = row[:num_steps], row[num_steps:]
            for words_of, side in zip(zip(*taken) if taken else ((), ()), window):
                side.append(list(words_of))
        lengths = [len(words) for words in window[0]]
        if not any(lengths) or (drop_last and min(lengths) < num_steps):
            return windows
        windows.append(window)


def padded_ids(window, num_steps, words):
    """What a window reads and predicts as vocabulary ids."""
    ids = {word: index for index, word in enumerate(words)}
    tensors = []
    for side, padding in zip(window, (0, -100)):
        rows = [[ids.get(word, ids["<UNK>"]) for word in row] for row in side]
        tensors.append(torch.tensor([row + [padding] * (num_steps - len(row)) for row in rows]))
    return tensors
