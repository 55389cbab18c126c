"""
What pyproject.toml can't say: the repository's folder of configs becomes a folder of the package,
and in a release the README's links lead to the repository at REPOSITORY_URL.
"""

import os
import re
from pathlib import Path

from setuptools import find_namespace_packages, setup

PACKAGE = "allennlp_elmo_plugin"
CONFIGS = f"{PACKAGE}.training_config"

readme = (Path(__file__).parent / "README.md").read_text(encoding="utf-8")
repository = os.environ.get("REPOSITORY_URL", "")
if repository:
    readme = re.sub(r"(!\[[^]]*\]\()(?!https:)", rf"\1{repository}/raw/HEAD/", readme)
    readme = re.sub(r"(\]\()(?!https:|#)", rf"\1{repository}/blob/HEAD/", readme)

setup(
    long_description=readme,
    long_description_content_type="text/markdown",
    project_urls={"Repository": repository} if repository else {},
    packages=[
        *find_namespace_packages(include=[PACKAGE, f"{PACKAGE}.*"], exclude=["*.__pycache__"]),
        CONFIGS,
        *(f"{CONFIGS}.{name}" for name in find_namespace_packages("training_config")),
    ],
    py_modules=["allennlp_elmo_spacy"],
    package_dir={CONFIGS: "training_config"},
    package_data={
        PACKAGE: ["py.typed"],
        f"{PACKAGE}.pretrained": ["*/*"],
        CONFIGS: ["*.libsonnet", "*/*.json", "*/*.libsonnet", "*/*.jsonnet"],
    },
)
