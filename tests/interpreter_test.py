"""
The kernels in Triton on a CPU, in Triton's interpreter, which has to be asked for before Triton is
imported: in a process of its own. Most of them run at night, or if a kernel has changed.
"""

import shutil
import subprocess
import sys

import pytest

from tests.conftest import REPOSITORY_ROOT

KERNELS = "tests/bilm/kernels/triton_test.py"
TRAINING = "tests/training/language_model_test.py::test_training_is_that_of_bilm_tf"
PATHS = "allennlp_elmo_plugin/bilm/kernels", KERNELS, "tests/support/interpreter.py"
# By the newest commit, or since then. Without git, or in a clone without history, it is unknown.
CHANGE = ["git", "-C", REPOSITORY_ROOT, "diff", "--quiet", "HEAD~1", "--", *PATHS]
HAVE_CHANGED = bool(shutil.which("git")) and subprocess.call(CHANGE, stderr=subprocess.DEVNULL) == 1
GROUPS = {
    "recurrence and training": [KERNELS, "-k", "recurrence or language_model"],
    "other kernels": [KERNELS, "-k", "not recurrence and not language_model"],
    "bilm-tf and AllenNLP": [
        "tests/elmo/elmo_bilm_test.py::test_equals_bilm_tf",
        "tests/elmo/elmo_bilm_test.py::test_carried_states_by_allennlps_name",
    ],
    "training with words": [f"{TRAINING}[train_tokens]"],
    "training with characters": [f"{TRAINING}[train_charcnn]"],
}


@pytest.mark.timeout(1800)
@pytest.mark.parametrize(
    "name",
    [
        pytest.param(name, marks=() if i == 0 or HAVE_CHANGED else pytest.mark.nightly)
        for i, name in enumerate(GROUPS)
    ],
)
def test_in_tritons_interpreter(name, subprocess_environment):
    tests, options = GROUPS[name], ["-p", "tests.support.interpreter", "--timeout", "1800"]
    if tests[0] == KERNELS:
        options.append("--noconftest")  # which imports AllenNLP
    elif tests[0].startswith("tests/elmo"):
        pytest.importorskip("allennlp")
    triton_options = pytest.importorskip("triton.backends.nvidia.compiler").CUDAOptions
    if "launch_cooperative_grid" not in triton_options.__dataclass_fields__:
        pytest.skip("the package doesn't use this Triton, which comes with torch 2.6")
    ran = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", *options, *tests],
        cwd=REPOSITORY_ROOT,
        env={**subprocess_environment, "TRITON_INTERPRET": "1"},
        capture_output=True,
        text=True,
    )
    assert ran.returncode == 0 and "skipped" not in ran.stdout, ran.stdout
