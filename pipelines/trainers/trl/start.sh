#!/bin/sh
# pipelines/trainers/trl/start.sh [RUN.toml]: schedule, export, train. Needs a GPU for vLLM.
set -eu
run=${1:-$(dirname "$0")/synsql-token.toml}
manifest=${MANIFEST:-manifest}
envbuild pool "$manifest" --schedule "${SCHEDULE:-synsql}" --write || [ $? -eq 1 ] # 1: a bucket is short
envbuild export "$manifest" --to trl --out "${DATA:-data/trl}"
exec accelerate launch --num_processes "${PROCESSES:-1}" -m envbuild.train.trl_run "$run"
