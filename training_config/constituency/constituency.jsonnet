// Constituency parsing, Penn Treebank: spans of a BiLSTM, scored one by one (Stern et al. 2017, as
// simplified by AllenNLP). The baseline of constituency_elmo.jsonnet.
//
// Paper: none; ELMo's paper has no parsing.
// AllenNLP: no score in the model cards of allennlp-models.
// Score, hardware, time: not measured (the treebank is not free).
// Data: PTB_TRAIN_DATA_PATH, PTB_VALIDATION_DATA_PATH: bracketed trees; GLOVE (optional:
//   glove.6B.100d).
// Metric: `evalb_f1_measure`, counted by `official_brackets`. In `allennlp evaluate`, it is that of
//   AllenNLP's EVALB, which needs a C compiler and omits sentences with brackets as words; see
//   `official-f1` instead.
local data = import '../data.libsonnet';

{
  dataset_reader: {
    type: 'ptb_trees',
    use_pos_tags: true,
    convert_parentheses: true,
    token_indexers: { tokens: { type: 'single_id', lowercase_tokens: true } },
  },
  train_data_path: data.path('PTB_TRAIN_DATA_PATH'),
  validation_data_path: data.path('PTB_VALIDATION_DATA_PATH'),
  model: {
    type: 'constituency_parser',
    text_field_embedder: {
      token_embedders: {
        tokens: data.word_vectors(100),
      },
    },
    pos_tag_embedding: { embedding_dim: 50, vocab_namespace: 'pos' },
    encoder: {
      type: 'lstm',
      input_size: 100 + $.model.pos_tag_embedding.embedding_dim,
      hidden_size: 250,
      num_layers: 2,
      bidirectional: true,
      dropout: 0.2,
    },
    span_extractor: { type: 'bidirectional_endpoint', input_dim: 500 },
    feedforward: {
      input_dim: 500,
      num_layers: 1,
      hidden_dims: 250,
      activations: 'relu',
      dropout: 0.1,
    },
    initializer: {
      regexes: [
        ['tag_projection_layer.*weight', { type: 'xavier_normal' }],
        ['feedforward_layer.*weight', { type: 'xavier_normal' }],
        ['encoder._module.weight_ih.*', { type: 'xavier_normal' }],
        ['encoder._module.weight_hh.*', { type: 'orthogonal' }],
      ],
    },
  },
  data_loader: {
    batch_sampler: { type: 'bucket', sorting_keys: ['tokens'], batch_size: 64 },
  },
  trainer: {
    num_epochs: 150,
    patience: 20,
    grad_norm: 5.0,
    validation_metric: '+evalb_f1_measure',
    callbacks: ['official_brackets'],
    optimizer: { type: 'adadelta', lr: 1.0, rho: 0.95 },
  },
  evaluation: { type: 'official', task: 'constituency' },
}
