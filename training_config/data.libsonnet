// Where the data of the configs are. An environment variable wins over the public address, which is
// that of AllenNLP's own configs. Without either, the error says what to set.
local path(name, default=null) =
  local f = std.native('ext_var_or_empty');
  if f == null then
    error 'This config needs the plugin allennlp_elmo_plugin: run `allennlp-elmo-plugin --activate` '
          + 'once, or import the plugin before Params.from_file'
  else if f(name) != '' then f(name)
  else if default != null then default
  else error 'Set the environment variable ' + name + '; the head of the config says what it is';
local address = 'https://allennlp.s3.amazonaws.com/datasets/';

{
  path:: path,
  public(name, file):: path(name, address + file),

  // Word vectors: `GLOVE`, a file or an address such as
  // https://allennlp.s3.amazonaws.com/datasets/glove/glove.6B.50d.txt.gz; without it, from random
  // ones, which are always trained.
  word_vectors(dim, trainable=true)::
    local glove = path('GLOVE', '');
    {
      type: 'embedding',
      embedding_dim: dim,
      [if glove != '' then 'pretrained_file']: glove,
      trainable: trainable || glove == '',
    },
}
