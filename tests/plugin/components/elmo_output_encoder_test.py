import pytest
import torch
from allennlp.common import Params
from allennlp.modules import Highway, Seq2SeqEncoder

LSTM = {"type": "lstm", "input_size": 3, "hidden_size": 4, "bidirectional": True}


@pytest.mark.parametrize("settings", [{}, {"num_highway_layers": 2}])
def test_elmo_bypasses_the_encoder_and_the_highway_layers_of_bidaf(settings):
    params = {"type": "elmo_output", "elmo_dim": 2, "encoder": dict(LSTM), **settings}
    encoder = Seq2SeqEncoder.from_params(Params(params))
    assert (encoder.get_input_dim(), encoder.get_output_dim()) == (5, 10)
    assert encoder.is_bidirectional()
    inputs = torch.randn(2, 6, 5)
    mask = torch.arange(6) < torch.tensor([[6], [4]])
    highway = Highway(3, settings.get("num_highway_layers", 0))
    highway.load_state_dict(encoder._highway.state_dict())
    output = encoder(inputs, mask)
    assert torch.equal(output[..., :2], inputs[..., :2])
    torch.testing.assert_close(output[..., 2:], encoder._encoder(highway(inputs[..., 2:]), mask))
