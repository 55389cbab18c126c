"""The files that readers of the documentation have, small and random."""

import gzip
import json
import random
import shutil
from pathlib import Path

from tests.conftest import REPOSITORY_ROOT
from tests.support.bilm_tf import REFERENCE
from tests.support.pretraining_data import write_pretraining_data
from tests.support.task_data import FIXTURES, write_task_data

WORDS = "the a match play film man she he is was good bad very dress struck to and not set".split()
JAPANESE = (
    "次のコマンドを実行します。",
    "等のパッケージングを補助するパッケージがあります。",
    "早い。実行速度です。",
    "実行ビットを削除します。",
)
TEXTS = [
    "my_train.txt",
    "my_text/train.txt",
    "film/train.txt",
    "wikitext2/train.txt",
    "novels/1.txt.gz",
    "corpus/1.txt",
    "text.txt",
]
HELD_OUT_TEXTS = [
    "my_valid.txt",
    "my_test.txt",
    "my_text/valid.txt",
    "film/validation.txt",
    "wikitext2/valid.txt",
    "wikitext2/test.txt",
    "test/1.txt",
    "news.txt",
]
MY_CONFIG = """
(import 'training_config/pretrain/small.jsonnet') {
  train_data_path: 'my_train.txt',
  validation_data_path: 'my_valid.txt',
  vocabulary+: { directory: 'my_vocab' },
  dataset_reader+: { batch_size: 2, num_steps: 5 },
}
"""
MAKE_MODELS = """
make --touch install
touch .venv/bin/activate
allennlp elmo-vocab my_train.txt --output my_vocab
allennlp train my_config.jsonnet -s my_model
allennlp train my_config.jsonnet -s model2 -o '{"pytorch_seed": 1}'
cp -r my_model model
mkdir killed
cp -r my_model killed/my_model
rm killed/my_model/{model.tar.gz,metrics.json}
allennlp elmo-export my_model/model.tar.gz my_elmo
allennlp elmo-export my_model/model.tar.gz stranger.zip --zip
cp my_model/model.tar.gz stranger.tar.gz
allennlp train training_config/ner/ner_elmo.jsonnet -s my_ner
cp my_ner/model.tar.gz my_old_model.tar.gz
"""


def _write_lines(path: Path, n_lines: int, seed: int = 0) -> None:
    random_ = random.Random(seed)
    lines = (" ".join(random_.choices(WORDS, k=random_.randint(3, 9))) for _ in range(n_lines))
    text = "".join(f"{line} .\n" for line in lines).encode()
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(gzip.compress(text) if path.suffix == ".gz" else text)


def write_readers_files(folder: Path) -> None:
    """Write what readers have when they begin to read: a clone, texts and data."""
    for name in ("Makefile", "constraints", "scripts", "setup.py"):
        (folder / name).symlink_to(REPOSITORY_ROOT / name)
    shutil.copytree(REPOSITORY_ROOT / "training_config", folder / "training_config")
    for name in ("srl/srl", "coref/coref", "snli/esim"):
        config = f"import 'training_config/{name}.jsonnet'"
        (folder / f"{Path(name).stem}.jsonnet").write_text(config, encoding="utf-8")

    for seed, name in enumerate(TEXTS):
        _write_lines(folder / name, 60, seed)
    for seed, name in enumerate(HELD_OUT_TEXTS):
        _write_lines(folder / name, 12, len(TEXTS) + seed)
    _write_lines(folder / "sentences.txt", 5)
    (folder / "japanese.txt").write_text(30 * "".join(f"{x}\n" for x in JAPANESE), encoding="utf-8")
    write_pretraining_data(folder / "data")
    _write_lines(folder / "data" / "novels" / "train-0.txt.gz", 60)  # words that are frequent

    tasks = write_task_data(folder / "tasks")
    (folder / "my_data").mkdir()
    for name in ("sst5", "ner_made", "snli", "srl", "coref", "squad"):
        (tasks / name).rename(folder / "my_data" / name)
    (tasks / "chunking").rename(folder / "conll2000")
    shutil.rmtree(tasks)
    for split in ("train", "test"):
        text = (FIXTURES / "srl" / "made.gold_conll").read_text(encoding="utf-8")
        (folder / "srl" / split).mkdir(parents=True)
        two_senses = text + text.replace(" 01 ", " 02 ")
        (folder / "srl" / split / "a.gold_conll").write_text(two_senses, encoding="utf-8")
    for split in ("train", "dev", "test"):
        trees = (FIXTURES / "sst.txt").read_text(encoding="utf-8")
        (folder / "sst").mkdir(exist_ok=True)
        (folder / "sst" / f"{split}.txt").write_text(20 * trees, encoding="utf-8")
    (folder / "wsj" / "02").mkdir(parents=True)
    shutil.copy(FIXTURES / "ptb.txt", folder / "wsj" / "02" / "wsj_0200.mrg")
    for part in ("train/pos", "train/neg", "train/unsup", "test/pos", "test/neg"):
        (folder / "aclImdb" / part).mkdir(parents=True)
        for number in range(10):
            review = folder / "aclImdb" / part / f"{number}_7.txt"
            review.write_text("It's good. I liked it.", encoding="utf-8")
    squad = json.loads((FIXTURES / "squad.json").read_text(encoding="utf-8"))
    articles = {**squad, "data": 10 * squad["data"]}
    (folder / "xquad.en.json").write_text(json.dumps(articles), encoding="utf-8")
    for split in ("train", "dev", "test"):
        shutil.copy(FIXTURES / "ner.txt", folder / f"{split}.conll")
    (folder / "train.tsv").write_text("Alice###N saw###V\nit###N\n", encoding="utf-8")
    for name in ("checkpoint", "bilm_tf_checkpoint_folder", "stranger_checkpoint"):
        shutil.copytree(REFERENCE / "checkpoint", folder / name)
        shutil.copy(REFERENCE / "data" / "vocab.txt", folder / name)
    shutil.copy(REFERENCE / "data" / "vocab.txt", folder)
    for name in ("config.jsonnet", "my_config.jsonnet"):
        (folder / name).write_text(MY_CONFIG, encoding="utf-8")
