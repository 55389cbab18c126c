// A biLM on whole words: a token embedding in place of the characters, which is the softmax's
// weight, too. It knows no words outside its vocabulary but as <UNK>.
//
// Reproduces: bilm-tf without `char_cnn` and with `share_embedding_softmax`, at the LSTM sizes of
//   small.jsonnet. No such model was published.
// Expected, hardware and time: not measured.
// Source: https://github.com/allenai/bilm-tf, bilm/training.py
local pretrain = import 'pretrain.libsonnet';

pretrain.config(
  options={
    bidirectional: true,
    dropout: 0.1,
    lstm: pretrain.options(lstm_dim=1024, projection_dim=128, n_highway=1).lstm,
    share_embedding_softmax: true,
  },
  num_samples='auto',
)
