"""
Split a file of SQuAD's format into train, dev and test by whole articles, for
`allennlp elmo-benchmark`.

    python scripts/split_squad.py xquad.en.json DATA_DIR/squad

writes `train.json`, `dev.json` and `test.json`: of ten articles, the last but one goes to dev and
the last to test.
"""

import argparse
import json
from pathlib import Path

from allennlp_elmo_plugin.files.whole_file import whole_file


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("source", type=Path)
    parser.add_argument("output", type=Path, help="folder to write to")
    arguments = parser.parse_args()
    data = json.loads(arguments.source.read_text(encoding="utf-8"))
    arguments.output.mkdir(parents=True, exist_ok=True)
    for split, places in (("train", range(8)), ("dev", [8]), ("test", [9])):
        articles = [article for n, article in enumerate(data["data"]) if n % 10 in places]
        questions = sum(len(part["qas"]) for article in articles for part in article["paragraphs"])
        path = arguments.output / f"{split}.json"
        with whole_file(path) as staged:
            Path(staged).write_text(json.dumps({**data, "data": articles}), encoding="utf-8")
        print(f"{path}: {len(articles)} articles, {questions} questions")


if __name__ == "__main__":
    main()
