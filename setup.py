"""
Packaging of allennlp_elmo_plugin.

AllenNLP 2.10.1 pins versions that do not exist for the supported Pythons (torch<1.13, spacy<3.4,
...) although it works with newer ones. So it is not required here: what it imports is listed below,
and AllenNLP is itself installed with `pip install --no-deps`. `make install` does this with the
exact versions of `constraints.txt`.
"""

import runpy
from pathlib import Path

from setuptools import find_packages, setup

ROOT = Path(__file__).resolve().parent
PACKAGE = "allennlp_elmo_plugin"
# In the wheel, the folder training_config of the repository is a folder of the package.
CONFIGS = f"{PACKAGE}.training_config"
VERSIONS = runpy.run_path(str(ROOT / PACKAGE / "version.py"))

# fmt: off
REQUIRED = [
    "torch>=2.6",
    "torchvision",             # allennlp.data imports it; must be built for the same torch
    "numpy>=1.26",
    "spacy>=3.8,<3.9",
    "transformers>=4.46,<4.50",  # the last with transformers.AdamW
    "huggingface_hub<1",
    "cached-path>=1.7",
    "fairscale>=0.4.6",
    "jsonnet>=0.20",
    "nltk>=3.8,<3.9.3",        # later ones refuse the corpus paths AllenNLP uses
    "setuptools<80.9",         # py-rouge needs pkg_resources, which later ones warn about
    "h5py",
    "google-crc32c>=1.1",      # checksums of TensorFlow checkpoints; cached-path needs it, too
    "scipy",
    "scikit-learn",
    "tensorboardX",
    "lmdb",
    "more-itertools",
    "termcolor",
    "dill",
    "base58",
    "tqdm>=4.62",
    "requests>=2.28",
    "pytest>=6.2.5",           # allennlp.common.testing imports it
    # allennlp-models
    "conllu>=4.4.2",
    "word2number>=1.1",
    "py-rouge==1.1",
    "ftfy",
]
# fmt: on

PLOT = ["matplotlib>=3.5", "plotly>=5.20"]
RAY = ["ray>=2.40"]  # allennlp elmo --ray-workers
VECTORS = ["gensim>=4.3"]  # scripts/word_vectors.py
DOCS = ["mkdocs-material>=9.5", "mkdocstrings[python]>=0.26"]  # make docs
DEV = [
    "pytest>=7",
    "pytest-timeout>=2.3",
    "pytest-xdist>=3",
    "hypothesis>=6.100",
    "conlleval>=0.2",  # a port of the script, as an oracle
    "scorch>=0.2",  # scores of coreference, as an oracle
    "tensorboard>=2.10",  # the reader of what training logs
    "ruff>=0.5",
    "mypy>=1.8",
    "ipykernel",
    "nbclient>=0.10",
    *DOCS,
    *PLOT,
    *RAY,
]


setup(
    name=PACKAGE,
    version=VERSIONS["__version__"],
    description="ELMo for AllenNLP: train, fine-tune, import, export and use bidirectional LMs",
    long_description=(ROOT / "README.md").read_text(encoding="utf-8"),
    long_description_content_type="text/markdown",
    license="Apache-2.0 AND CC-BY-SA-3.0",  # the code, and the weights of `tiny`
    keywords="ELMo AllenNLP NLP bidirectional language model contextual word representations",
    classifiers=[
        "Intended Audience :: Science/Research",
        "Programming Language :: Python :: 3",
        "Programming Language :: Python :: 3.11",
        "Programming Language :: Python :: 3.12",
        "Programming Language :: Python :: 3.13",
        "Topic :: Scientific/Engineering :: Artificial Intelligence",
    ],
    packages=[*find_packages(include=[PACKAGE, f"{PACKAGE}.*"]), CONFIGS],
    package_dir={CONFIGS: "training_config"},
    package_data={
        PACKAGE: ["py.typed", "pretrained/*/*"],
        CONFIGS: ["*.libsonnet", "*/*.libsonnet", "*/*.jsonnet"],
    },
    py_modules=[f"{PACKAGE}_activation"],
    entry_points={
        "console_scripts": ["allennlp-elmo-plugin = allennlp_elmo_plugin_activation:main"]
    },
    python_requires=">=3.11",
    install_requires=REQUIRED,
    extras_require={"dev": DEV, "docs": DOCS, "plot": PLOT, "ray": RAY, "vectors": VECTORS},
)
