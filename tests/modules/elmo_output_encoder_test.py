import torch
from allennlp.common import Params
from allennlp.modules import Highway, Seq2SeqEncoder

from allennlp_elmo_plugin.modules import ElmoOutputEncoder

LSTM = {"type": "lstm", "input_size": 3, "hidden_size": 4, "bidirectional": True}


def test_elmo_goes_round_the_encoder() -> None:
    encoder = Seq2SeqEncoder.from_params(
        Params({"type": "elmo_output", "elmo_dim": 2, "encoder": dict(LSTM)})
    )
    assert isinstance(encoder, ElmoOutputEncoder)
    assert (encoder.get_input_dim(), encoder.get_output_dim()) == (5, 10)
    assert encoder.is_bidirectional()
    inputs = torch.randn(2, 6, 5)
    mask = torch.arange(6) < torch.tensor([[6], [4]])
    output = encoder(inputs, mask)
    assert torch.equal(output[..., :2], inputs[..., :2])
    assert torch.equal(output[..., 2:], encoder._encoder(inputs[..., 2:], mask))


def test_highway_is_that_of_bidaf() -> None:
    encoder = ElmoOutputEncoder(Seq2SeqEncoder.from_params(Params(dict(LSTM))), 2, 2)
    inputs = torch.randn(2, 6, 5)
    highway = Highway(3, 2)
    highway.load_state_dict(encoder._highway.state_dict())
    expected = encoder._encoder(highway(inputs[..., 2:]), None)
    torch.testing.assert_close(encoder(inputs)[..., 2:], expected)
