#!/bin/sh
# Installs torch and the operators with their prebuilt kernels for x86-64 CPUs into the environment of `python`; no compiler.
#   install.sh WHEELS      WHEELS: the folder that `nox -s wheels` fills
# TORCH_INDEX is where torch comes from; empty: from the package index that pip is configured for.
set -eu
wheels=$1
index=${TORCH_INDEX-https://download.pytorch.org/whl/cpu}

python -m pip install --no-cache-dir ${index:+--index-url "$index"} torch
python -m pip install --no-cache-dir numpy
python -m pip install --no-cache-dir --no-index --find-links "$wheels" "tile-ops[cpu]"
