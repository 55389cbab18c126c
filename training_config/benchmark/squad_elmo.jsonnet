local elmo = (import 'elmo.libsonnet') { dropout:: 0.2 };
local squad = import 'squad.jsonnet';

elmo.added_to(squad, encoder='phrase_layer', at_output=true) {
  model+: {
    num_highway_layers: 0,
    phrase_layer+: { num_highway_layers: squad.model.num_highway_layers },
    matrix_attention+: { tensor_1_dim+: elmo.dim, tensor_2_dim+: elmo.dim },
    modeling_layer+: { input_size+: 4 * elmo.dim },
    span_end_encoder+: { input_size+: 4 * elmo.dim },
  },
}
