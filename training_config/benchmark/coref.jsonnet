// Coreference, small: the end-to-end model. For `allennlp elmo-benchmark`; docs/results.md has its
// scores. Trained on the first 30 sentences of each document.
local small = import 'small.libsonnet';
local context_dim = 2 * 100;
local feature_size = 20;
local span_dim = 2 * context_dim + small.dim + feature_size;
local feedforward(input_dim) = {
  input_dim: input_dim,
  num_layers: 1,
  hidden_dims: 100,
  activations: 'relu',
  dropout: 0.2,
};

small.data {
  dataset_reader: {
    type: 'coref',
    max_span_width: 8,
    max_sentences: 30,
    token_indexers: small.indexers,
  },
  validation_dataset_reader: self.dataset_reader { max_sentences: null },
  model: {
    type: 'coref',
    text_field_embedder: { token_embedders: small.embedders },
    context_layer: small.lstm(small.dim, hidden_size=context_dim / 2),
    mention_feedforward: feedforward(span_dim),
    antecedent_feedforward: feedforward(3 * span_dim + feature_size),
    lexical_dropout: 0.3,
    feature_size: feature_size,
    max_span_width: $.dataset_reader.max_span_width,
    spans_per_word: 0.4,
    max_antecedents: 50,
  },
  data_loader: {
    batch_sampler: { type: 'bucket', sorting_keys: ['text'], padding_noise: 0.0, batch_size: 1 },
  },
  trainer: small.trainer('coref_f1'),
}
