// A biLM of some 400,000 words: two LSTM layers of 256 cells, 128 dimensions per direction, with more
// dropout than bilm-tf has, and Adam.
//
// Reproduces: nothing published.
// Expected: a validation perplexity of 178.3 with the first 399,939 words of WikiText-2
//   (docs/results.md).
// Hardware and time: 10 minutes of one thread of a busy CPU with AVX-512, 1.1 GB.
// Source: small_corpus.jsonnet, which is for more text, and has larger layers and more passes.
local pretrain = import 'pretrain.libsonnet';

pretrain.config(
  options=pretrain.options(lstm_dim=256, projection_dim=128, n_highway=1) {
    char_cnn+: { filters: [[1, 32], [2, 32], [3, 64], [4, 96], [5, 96]] },
    dropout: 0.3,
  },
  num_samples=2048,
  batch_size=32,
  num_epochs=5,
) + {
  model+: { precision: 'bfloat16', state_reset: 0.05 },
  trainer+: {
    optimizer: { type: 'dense_sparse_adam', lr: 0.002 },
    learning_rate_scheduler: { type: 'linear_with_warmup', warmup_steps: 300 },
  },
}
