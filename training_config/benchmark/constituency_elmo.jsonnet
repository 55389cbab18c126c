local elmo = (import 'elmo.libsonnet') { dropout:: 0.2 };

elmo.added_to(import 'constituency.jsonnet', encoder='encoder')
