// ELMo for a config of your own. The environment variable ELMO names the model: a folder with
// options.json and weights.hdf5, an archive of them, `tiny`, or one of the published models, `small`,
// `medium`, `original` and `original-5.5b` (docs/embedding.md, "Which model"). All sizes follow from its options.json.
//
//   local elmo = import 'elmo.libsonnet';
//   elmo.added_to(import 'my_model.jsonnet', encoder='encoder')
//
// is my_model.jsonnet with ELMo beside its other embeddings, and `model.encoder.input_size` larger
// by ELMo's size. docs/adding_elmo.md leads through it. What is set here is changed by
// `(import 'elmo.libsonnet') { dropout:: 0.2 }`.
local native(name) =
  local f = std.native(name);
  if f == null then
    error 'This config needs the plugin allennlp_elmo_plugin: run `allennlp-elmo-plugin --activate` '
          + 'once, or import the plugin before Params.from_file'
  else f;

{
  local elmo = self,
  local settings = ['name', 'dropout', 'l2', 'requires_grad', 'initial_state'],
  local parts = ['dim', 'indexer', 'files', 'embedder', 'embedder_of_two', 'regularizer'],
  local functions = ['reader_added_to', 'added_to'],
  assert std.setDiff(std.objectFieldsAll(self), std.set(settings + parts + functions)) == [] :
         'elmo.libsonnet has no setting '
         + std.join(', ', std.setDiff(std.objectFieldsAll(self), std.set(settings + parts + functions)))
         + '; there are ' + std.join(', ', settings),
  local model = native('elmo_model')(elmo.name),

  name::
    local name = native('ext_var_or_empty')('ELMO');
    if name != '' then name
    else error 'Set the environment variable ELMO: a folder with options.json and weights.hdf5, an '
               + 'archive of them, or the name of a published model',
  // Of the representation, while the task is trained.
  dropout:: 0.5,
  // The paper's lambda: of the squares of the layers' weights before the softmax.
  l2:: 0.001,
  // Whether the language model is trained with the task.
  requires_grad:: false,
  // What a sentence starts from: "carried", "settled" or "zero".
  initial_state:: 'carried',

  // Size of a token's representation.
  dim:: model.dim,

  indexer:: { type: 'elmo_characters' },

  files:: {
    options_file: model.options_file,
    weight_file: model.weight_file,
    dropout: elmo.dropout,
    requires_grad: elmo.requires_grad,
    // Left out, so that archives load without the plugin too.
    [if elmo.initial_state != 'carried' then 'initial_state']: elmo.initial_state,
  },

  embedder:: { type: 'elmo_token_embedder' } + elmo.files,

  // Two representations of a token, one for the input of an encoder and one for its output.
  embedder_of_two:: elmo.embedder { num_output_representations: 2 },

  regularizer:: { regexes: [['scalar_parameters', { type: 'l2', alpha: elmo.l2 }]] },

  // A dataset reader with ELMo's characters beside its other indexers.
  reader_added_to(config)::
    local indexed(key) =
      assert std.objectHas(config[key], 'token_indexers') :
             key + ' has no token_indexers; write out its default, which ELMo would replace: '
             + 'token_indexers: { tokens: { type: "single_id" } }';
      { token_indexers+: { elmo: elmo.indexer } };
    config { dataset_reader+: indexed('dataset_reader') } +
    if std.objectHas(config, 'validation_dataset_reader')
    then { validation_dataset_reader+: indexed('validation_dataset_reader') }
    else {},

  // A config with ELMo in it. `encoder` is the key of the model that gets the embeddings; null if
  // it is to be changed by hand. With `at_output`, ELMo is also set beside what the encoder puts
  // out, and the layers after it have to be made wider by hand.
  added_to(config, encoder=null, at_output=false)::
    local with_reader = elmo.reader_added_to(config);
    assert std.objectHas(config.model, 'text_field_embedder') :
           'the model has no text_field_embedder: put elmo.embedder where its embeddings are';
    local names = std.objectFields(config.model.text_field_embedder.token_embedders);
    assert !at_output || std.sort(names + ['elmo'])[0] == 'elmo' :
           'at_output: "elmo" must come first in the alphabet, but there are ' + names;
    assert encoder == null || std.objectHas(config.model, encoder) :
           'the model has no key "' + encoder + '"; there are '
           + std.join(', ', std.objectFields(config.model));
    with_reader {
      model+: {
        text_field_embedder+: {
          token_embedders+: { elmo: if at_output then elmo.embedder_of_two else elmo.embedder },
        },
        regularizer+: { regexes+: elmo.regularizer.regexes },
      },
    } +
    if encoder == null then {}
    else if at_output then {
      model+: {
        [encoder]: {
          type: 'elmo_output',
          elmo_dim: elmo.dim,
          encoder: config.model[encoder] { input_size+: elmo.dim },
        },
      },
    }
    else { model+: { [encoder]+: { input_size+: elmo.dim } } },
}
