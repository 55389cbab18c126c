// Sentiment in five classes, small: biattentive classification network, trained on sentences alone.
// For `allennlp elmo-benchmark`; docs/results.md has its scores.
local small = import 'small.libsonnet';
local hidden = 100;

small.data {
  // Also where the data lack a class.
  vocabulary+: { tokens_to_add: { labels: ['0', '1', '2', '3', '4'] } },
  dataset_reader: {
    type: 'sst_tokens',
    granularity: '5-class',
    token_indexers: small.indexers,
  },
  model: {
    type: 'bcn',
    text_field_embedder: { token_embedders: small.embedders },
    embedding_dropout: 0.5,
    pre_encode_feedforward: {
      input_dim: small.dim,
      num_layers: 1,
      hidden_dims: [hidden],
      activations: ['relu'],
      dropout: [0.5],
    },
    encoder: small.lstm(hidden),
    integrator: small.lstm(3 * 2 * hidden),
    integrator_dropout: 0.3,
    output_layer: {
      input_dim: 4 * 2 * hidden,
      num_layers: 2,
      output_dims: [hidden, 5],
      pool_sizes: 4,
      dropout: [0.5, 0.0],
    },
  },
  data_loader: { batch_sampler: { type: 'bucket', sorting_keys: ['tokens'], batch_size: 64 } },
  trainer: small.trainer('accuracy'),
}
