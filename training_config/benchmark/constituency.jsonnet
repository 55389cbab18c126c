// Constituency trees, small: spans of a BiLSTM, scored one by one. The tags of the words are no
// input. For `allennlp elmo-benchmark`; docs/results.md has its scores.
local small = import 'small.libsonnet';
local hidden = 100;

small.data {
  dataset_reader: {
    type: 'ptb_trees',
    // For the words of predicted trees, in which the score leaves out punctuation by its tags.
    use_pos_tags: true,
    convert_parentheses: true,
    token_indexers: small.indexers,
  },
  model: {
    type: 'constituency_parser',
    text_field_embedder: { token_embedders: small.embedders },
    encoder: small.lstm(small.dim, hidden_size=hidden, num_layers=2) { dropout: 0.2 },
    span_extractor: { type: 'bidirectional_endpoint', input_dim: 2 * hidden },
    feedforward: {
      input_dim: 2 * hidden,
      num_layers: 1,
      hidden_dims: 100,
      activations: 'relu',
      dropout: 0.2,
    },
  },
  data_loader: { batch_sampler: { type: 'bucket', sorting_keys: ['tokens'], batch_size: 16 } },
  trainer: small.trainer('evalb_f1_measure', patience=5),
}
