// Semantic roles, small: two layers of alternating LSTMs. For `allennlp elmo-benchmark`;
// docs/results.md has its scores. Trained on the first 8,000 predicates, where a sentence without any
// counts as one.
local small = import 'small.libsonnet';

small.data {
  dataset_reader: { type: 'srl', token_indexers: small.indexers, max_instances: 8000 },
  validation_dataset_reader: self.dataset_reader { max_instances: null },
  model: {
    type: 'srl',
    text_field_embedder: { token_embedders: small.embedders },
    binary_feature_dim: 50,
    encoder: small.lstm(small.dim + 50, hidden_size=128, num_layers=2) { dropout: 0.2 },
  },
  data_loader: { batch_sampler: { type: 'bucket', sorting_keys: ['tokens'], batch_size: 64 } },
  trainer: small.trainer('f1-measure-overall'),
}
