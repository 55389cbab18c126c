// The English model that this package contains: two LSTM layers of 512 cells, 128
// dimensions per direction.
//
// Reproduces nothing published: characters, layers and softmax are those of bilm-tf with fewer
//   filters and cells (2.6 million parameters without the softmax), the optimizer is Adam.
// Expected: a perplexity of 99.3 on the validation text, 84.8 on a held-out novel (docs/results.md).
// Hardware and time: 3.8 hours, one core of a machine busy with other work.
// Source: scripts/pretraining_text.py makes its text.
local pretrain = import 'pretrain.libsonnet';

pretrain.config(
  options=pretrain.options(lstm_dim=512, projection_dim=128, n_highway=1) {
    char_cnn+: { filters: [[1, 32], [2, 32], [3, 64], [4, 96], [5, 96]] },
  },
  num_samples=2048,
  num_epochs=3,
) + {
  validation_dataset_reader+: { batch_size: 32 },
  model+: { precision: 'bfloat16', state_reset: 0.05 },
  trainer+: { optimizer: 'adam', learning_rate: 0.002, warmup_steps: 300 },
}
