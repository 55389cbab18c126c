"""
Split a file of SQuAD's format into train, dev and test by whole articles, for
`allennlp elmo-benchmark`.

    python scripts/split_squad.py xquad.en.json DATA_DIR/squad

writes `train.json`, `dev.json` and `test.json`. Of each ten articles, the ninth goes to dev and the
tenth to test.
"""

import json
from pathlib import Path

from allennlp_elmo_plugin.exits import run_script
from allennlp_elmo_plugin.files.atomic import output_folder

PLACES = {"train.json": range(8), "dev.json": [8], "test.json": [9]}


def main(source: Path, output: Path) -> None:
    try:
        data = json.loads(source.read_text(encoding="utf-8"))
        articles_of_all = data["data"]
    except (ValueError, KeyError, TypeError) as error:
        raise ValueError(f"{source}: is not JSON of SQuAD's format ({error!r})") from None
    with output_folder(output, list(PLACES), force=True) as folder:
        for name, places in PLACES.items():
            articles = [article for n, article in enumerate(articles_of_all) if n % 10 in places]
            questions = [len(part["qas"]) for article in articles for part in article["paragraphs"]]
            text = json.dumps({**data, "data": articles})
            (folder / name).write_text(text, encoding="utf-8")
            print(f"{name}: {len(articles)} articles, {sum(questions)} questions")


if __name__ == "__main__":
    run_script(main, __doc__)
