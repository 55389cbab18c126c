"""What this machine's processor can do."""

import pytest
import torch

from allennlp_elmo_plugin.bilm.kernels.matrix_product import has_onednn

HAS_BFLOAT16 = has_onednn(torch.bfloat16)
needs_bfloat16 = pytest.mark.skipif(not HAS_BFLOAT16, reason="bfloat16 needs AVX-512")
