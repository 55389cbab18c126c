// What the small models of `allennlp elmo-benchmark` share: data from the command, and words and
// characters of its own, learned in training. (AllenNLP's vocabulary has the words of all splits.)
// With --vectors the command sets WORD_DIM, the size of the vectors, and VECTORS, their file; for the
// baseline without them VECTORS is empty.
local variable = (import '../data.libsonnet').path;
local vectors = variable('VECTORS', '');
local word_dim = std.parseInt(variable('WORD_DIM', '50'));

{
  data: {
    train_data_path: std.extVar('TRAIN_DATA_PATH'),
    validation_data_path: std.extVar('VALIDATION_DATA_PATH'),
    test_data_path: std.extVar('TEST_DATA_PATH'),
    evaluate_on_test: false,
    vocabulary: {
      // A word that is in the data once has no vector of its own,
      min_count: { tokens: 2 },
      // unless it comes with one.
      [if vectors != '' then 'pretrained_files']: { tokens: vectors },
    },
  },

  indexers: {
    tokens: { type: 'single_id', lowercase_tokens: true },
    token_characters: { type: 'characters', min_padding_length: 3 },
  },
  local n_filters = 50,
  embedders: {
    tokens: {
      type: 'embedding',
      embedding_dim: word_dim,
      [if vectors != '' then 'pretrained_file']: vectors,
    },
    token_characters: {
      type: 'character_encoding',
      embedding: { embedding_dim: 16, vocab_namespace: 'token_characters' },
      encoder: {
        type: 'cnn',
        embedding_dim: 16,
        num_filters: n_filters,
        ngram_filter_sizes: [3],
        conv_layer_activation: 'relu',
      },
    },
  },
  // Of a word's embedding, and of all embeddings of a token.
  word_dim: word_dim,
  dim: word_dim + n_filters,

  // In both directions.
  lstm(input_size, hidden_size=100, num_layers=1): {
    type: 'padded_lstm',
    input_size: input_size,
    hidden_size: hidden_size,
    num_layers: num_layers,
  },

  // Until the metric hasn't become better for `patience` epochs.
  trainer(metric, patience=4, lr=0.001): {
    num_epochs: 100,
    patience: patience,
    grad_norm: 5.0,
    validation_metric: '+' + metric,
    optimizer: { type: 'adam', lr: lr },
    checkpointer: { keep_most_recent_by_count: 1 },
  },
}
