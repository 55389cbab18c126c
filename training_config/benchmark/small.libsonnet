// What the small models of `allennlp elmo-benchmark` share: data from the command, and words and
// characters of its own, learned in training. (AllenNLP's vocabulary has the words of all splits.)
{
  data: {
    train_data_path: std.extVar('TRAIN_DATA_PATH'),
    validation_data_path: std.extVar('VALIDATION_DATA_PATH'),
    test_data_path: std.extVar('TEST_DATA_PATH'),
    evaluate_on_test: false,
    // A word that is in the data once has no vector of its own.
    vocabulary: { min_count: { tokens: 2 } },
  },

  indexers: {
    tokens: { type: 'single_id', lowercase_tokens: true },
    token_characters: { type: 'characters', min_padding_length: 3 },
  },
  local word_dim = 50,
  local n_filters = 50,
  embedders: {
    tokens: { type: 'embedding', embedding_dim: word_dim },
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
  // Of a token's embeddings.
  dim: word_dim + n_filters,

  lstm(input_size, hidden_size=100, num_layers=1): {
    type: 'lstm',
    input_size: input_size,
    hidden_size: hidden_size,
    num_layers: num_layers,
    bidirectional: true,
  },

  trainer(metric, num_epochs=12, patience=3, lr=0.001): {
    num_epochs: num_epochs,
    patience: patience,
    grad_norm: 5.0,
    validation_metric: '+' + metric,
    optimizer: { type: 'adam', lr: lr },
    checkpointer: { keep_most_recent_by_count: 1 },
  },
}
