# allennlp with ELMo, on Python 3.11 and torch 2:
#   docker build -t allennlp_elmo .
#   docker run --rm allennlp_elmo                                 # which ELMo is active: this one
#   docker run --rm -v "$PWD:/work" allennlp_elmo allennlp elmo sentences.txt layers.hdf5 --all
# With `--gpus all` after `run`, the GPUs are used. With `--user "$(id -u):$(id -g)"`, the files
# that it writes are yours.
FROM python:3.11-slim

# For each user, the home folder is one that anybody can write to: downloads are kept there.
ENV HOME=/home/elmo PIP_NO_CACHE_DIR=1
COPY . /opt/allennlp_elmo_plugin
RUN cd /opt/allennlp_elmo_plugin \
    && pip install -c constraints.txt . \
    && pip install --no-deps allennlp==2.10.1 allennlp-models==2.10.1 \
    && allennlp-elmo-plugin --activate \
    && chmod -R a+rwX "$HOME"

WORKDIR /work
CMD ["allennlp-elmo-plugin"]
