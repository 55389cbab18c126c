// Question answering, small: BiDAF. For `allennlp elmo-benchmark`; docs/results.md has its scores.
local small = import 'small.libsonnet';
local hidden = 50;

small.data {
  dataset_reader: {
    type: 'squad1',
    tokenizer: { type: 'letters_digits' },
    token_indexers: small.indexers,
  },
  model: {
    type: 'bidaf',
    text_field_embedder: { token_embedders: small.embedders },
    num_highway_layers: 1,
    phrase_layer: small.lstm(small.dim, hidden_size=hidden),
    matrix_attention: {
      type: 'linear',
      combination: 'x,y,x*y',
      tensor_1_dim: 2 * hidden,
      tensor_2_dim: 2 * hidden,
    },
    modeling_layer: small.lstm(4 * 2 * hidden, hidden_size=hidden),
    span_end_encoder: small.lstm((4 + 3) * 2 * hidden, hidden_size=hidden),
    dropout: 0.2,
  },
  data_loader: {
    batch_sampler: { type: 'bucket', sorting_keys: ['passage', 'question'], batch_size: 16 },
  },
  trainer: small.trainer('f1'),
}
