// An English model for the comparisons of docs/results.md: the size of small.jsonnet, trained on novels,
// WikiText-2 and film reviews.
//
// Reproduces: the sizes of the published "small" model; the optimizer is Adam.
// Expected: a perplexity of 103.6 on the validation text, 108.2 on a held-out novel
//   (docs/results.md).
// Hardware and time: 2.3 to 3.7 hours a pass, one core of a machine busy with other work, 1.6 GB.
// Source: scripts/pretraining_text.py --reviews makes its text.
local pretrain = import 'pretrain.libsonnet';

pretrain.config(
  options=pretrain.options(lstm_dim=1024, projection_dim=128, n_highway=1),
  num_samples=8192,
  num_epochs=3,
) + {
  validation_dataset_reader+: { batch_size: 32 },
  model+: { precision: 'bfloat16', state_reset: 0.05 },
  trainer+: { optimizer: 'adam', learning_rate: 0.002, warmup_steps: 500 },
}
