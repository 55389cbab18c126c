// Natural language inference, small: ESIM. For `allennlp elmo-benchmark`; docs/results.md has its
// scores.
local small = import 'small.libsonnet';
local hidden = 100;
local feedforward(input_dim) = {
  input_dim: input_dim,
  num_layers: 1,
  hidden_dims: hidden,
  activations: 'relu',
};

small.data {
  dataset_reader: {
    type: 'snli',
    tokenizer: { type: 'letters_digits' },
    token_indexers: small.indexers,
  },
  model: {
    type: 'esim',
    dropout: 0.3,
    text_field_embedder: { token_embedders: small.embedders },
    encoder: small.lstm(small.dim),
    matrix_attention: { type: 'dot_product' },
    projection_feedforward: feedforward(4 * 2 * hidden),
    inference_encoder: small.lstm(hidden),
    output_feedforward: feedforward(4 * 2 * hidden) { dropout: 0.3 },
    output_logit: { input_dim: hidden, num_layers: 1, hidden_dims: 3, activations: 'linear' },
  },
  data_loader: {
    batch_sampler: { type: 'bucket', sorting_keys: ['premise', 'hypothesis'], batch_size: 64 },
  },
  trainer: small.trainer('accuracy'),
}
