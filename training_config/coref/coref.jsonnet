// Coreference, OntoNotes 5.0 (CoNLL-2012): the end-to-end model of Lee et al. (2017). The baseline
// of coref_elmo.jsonnet.
//
// Paper: average F1 67.2 on the test set (Peters et al. 2018, table 1).
// AllenNLP: no score in the model cards of allennlp-models.
// Differs: AllenNLP's `coref`; one model, while theirs are from Lee et al.'s code.
// Score, hardware, time: not measured (OntoNotes is not free). docs/results.md has small data.
// Data: COREF_TRAIN_DATA_PATH, COREF_VALIDATION_DATA_PATH: one *.gold_conll file each; GLOVE
//   (optional: glove.840B.300d).
// Metric: `coref_f1`, the mean of MUC, B-cubed and CEAFe.
local data = import '../data.libsonnet';
local text_dim = 300 + 100;
local context_dim = 2 * 200;
local feature_size = 20;
// Both ends of a span in context, the words in it attended to, its width.
local span_dim = 2 * context_dim + text_dim + feature_size;
local feedforward(input_dim) = {
  input_dim: input_dim,
  num_layers: 2,
  hidden_dims: 150,
  activations: 'relu',
  dropout: 0.2,
};

{
  dataset_reader: {
    type: 'coref',
    max_span_width: 10,
    token_indexers: {
      tokens: { type: 'single_id' },
      token_characters: { type: 'characters', min_padding_length: 5 },
    },
  },
  train_data_path: data.path('COREF_TRAIN_DATA_PATH'),
  validation_data_path: data.path('COREF_VALIDATION_DATA_PATH'),
  model: {
    type: 'coref',
    text_field_embedder: {
      token_embedders: {
        tokens: data.word_vectors(300, trainable=false),
        token_characters: {
          type: 'character_encoding',
          embedding: { embedding_dim: 8, vocab_namespace: 'token_characters' },
          encoder: {
            type: 'cnn',
            embedding_dim: 8,
            num_filters: 100,
            ngram_filter_sizes: [5],
          },
        },
      },
    },
    context_layer: {
      type: 'lstm',
      bidirectional: true,
      input_size: text_dim,
      hidden_size: context_dim / 2,
      num_layers: 1,
    },
    mention_feedforward: feedforward(span_dim),
    // Two spans, their product, their distance.
    antecedent_feedforward: feedforward(3 * span_dim + feature_size),
    initializer: {
      regexes: [
        ['.*linear_layers.*weight', { type: 'xavier_normal' }],
        ['.*scorer.weight', { type: 'xavier_normal' }],
        ['_distance_embedding.weight', { type: 'xavier_normal' }],
        ['_span_width_embedding.weight', { type: 'xavier_normal' }],
        ['_context_layer._module.weight_ih.*', { type: 'xavier_normal' }],
        ['_context_layer._module.weight_hh.*', { type: 'orthogonal' }],
      ],
    },
    lexical_dropout: 0.5,
    feature_size: feature_size,
    max_span_width: $.dataset_reader.max_span_width,
    spans_per_word: 0.4,
    max_antecedents: 100,
  },
  data_loader: {
    batch_sampler: { type: 'bucket', sorting_keys: ['text'], padding_noise: 0.0, batch_size: 1 },
  },
  trainer: {
    num_epochs: 150,
    patience: 10,
    grad_norm: 5.0,
    validation_metric: '+coref_f1',
    learning_rate_scheduler: { type: 'reduce_on_plateau', factor: 0.5, mode: 'max', patience: 2 },
    optimizer: { type: 'adam', lr: 0.001 },
  },
  evaluation: { type: 'official', task: 'coref' },
}
