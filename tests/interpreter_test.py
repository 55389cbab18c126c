"""
The kernels in Triton on a CPU, in Triton's interpreter, which has to be asked for before Triton is
imported: in a process of its own.
"""

import subprocess
import sys

import pytest

KERNELS = "tests/bilm/kernels/triton_test.py"
TRAINING = "tests/plugin/components/bidirectional_lm_test.py::test_training_is_that_of_bilm_tf"
GROUPS = {
    "recurrence": [KERNELS, "-k", "recurrence or pieces or frozen"],
    "rows, types and models": [KERNELS, "-k", "not recurrence and not pieces and not frozen"],
    "bilm-tf and AllenNLP": [
        "tests/elmo/elmo_bilm_test.py::test_equals_bilm_tf",
        "tests/elmo/elmo_bilm_test.py::test_carried_states_by_allennlps_name",
    ],
    "training with words": [f"{TRAINING}[train_tokens]"],
    "training with characters": [f"{TRAINING}[train_charcnn]"],
}


@pytest.mark.timeout(1800)
@pytest.mark.parametrize("tests", GROUPS.values(), ids=GROUPS)
def test_in_tritons_interpreter(tests, repository_root, subprocess_environment):
    if tests[0] != KERNELS:
        pytest.importorskip("allennlp")
    options = pytest.importorskip("triton.backends.nvidia.compiler").CUDAOptions
    if "launch_cooperative_grid" not in options.__dataclass_fields__:
        pytest.skip("the package doesn't use this Triton, which comes with torch 2.6")
    ran = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "--timeout", "1800", *tests],
        cwd=repository_root,
        env={**subprocess_environment, "TRITON_INTERPRET": "1"},
        capture_output=True,
        text=True,
    )
    assert ran.returncode == 0 and "skipped" not in ran.stdout, ran.stdout
