// Goes on training a language model on text of another domain: the second of ELMo's three steps.
// docs/fine_tuning.md leads through it.
//
// PRETRAINED_FILE says what to start from: an archive (model.tar.gz) of `allennlp train` or
//   `allennlp elmo-import`, a folder that `allennlp elmo-export` wrote, a folder with published
//   weights (options.json and weights.hdf5), or one with a checkpoint of bilm-tf and its vocabulary.
//   The model's options are those of the source. The other variables are those of every
//   configuration here (pretrain.libsonnet). For a source with token embeddings, add
//   -o '{"dataset_reader.max_characters_per_token": null,
//        "validation_dataset_reader.max_characters_per_token": null}'
// Reproduces: the fine-tuning of Peters et al. 2018, section 3.4 and appendix (on the text of the
//   task), with validation before the first update and an early end where it does not help any more.
// Expected: on a small text of film reviews, from the model of `make demo`, a validation perplexity of
//   233 before the first update and 61 after ten epochs (docs/results.md). Lower learning rates were
//   worse there.
// Hardware and time: a minute and a half on one CPU core for that; else as for the source.
// Source: Peters et al. 2018, "Deep contextualized word representations".
local pretrain = import 'pretrain.libsonnet';

// The options that matter here are in the source.
pretrain.config(options={ char_cnn: {} }, num_samples=0, batch_size=16, num_epochs=10) {
  model: { type: 'bidirectional_lm', pretrained_file: std.extVar('PRETRAINED_FILE') },
  trainer+: { patience: 2, validate_first: true },
  // With it, the archive needs the source no more.
  include_in_archive: ['options.json'],
}
