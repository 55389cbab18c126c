# AllenNLP with ELMo, on Python 3.11:
#   docker build -t allennlp_elmo .
#   docker run --rm allennlp_elmo                                 # which ELMo is active: this one
#   docker run --rm --user "$(id -u):$(id -g)" -v "$PWD:/work" allennlp_elmo \
#       allennlp elmo sentences.txt layers.hdf5 --all
# Add `--gpus all` after `run` to use GPUs.
FROM python:3.11-slim

WORKDIR /opt/allennlp_elmo_plugin
# A layer of some GB, which is built again only when one of these two files changes.
COPY pyproject.toml constraints.txt ./
RUN pip install --no-cache-dir uv \
    && uv pip install --system --no-cache -c constraints.txt -r pyproject.toml --extra allennlp --group allennlp
COPY . .
RUN pip install --no-cache-dir --no-deps .

# Any user may write to this home folder: downloads are kept there. A user may have no name.
ENV HOME=/home/elmo USER=elmo
RUN useradd --create-home elmo && allennlp-elmo-plugin --activate && chmod -R a+rwX "$HOME"
USER elmo
WORKDIR /work
CMD ["allennlp-elmo-plugin"]
