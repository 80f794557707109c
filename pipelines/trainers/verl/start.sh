#!/bin/sh
# MANIFEST=manifest pipelines/trainers/verl/start.sh [synsql-token|synsql-sequence] [verl overrides]
set -eu
here=$(dirname "$0")
preset=${1:-synsql-token}
[ $# -eq 0 ] || shift
manifest=${MANIFEST:-manifest}
envbuild pool "$manifest" --schedule "${SCHEDULE:-synsql}" --write || [ $? -eq 1 ] # 1: a bucket is short
envbuild export "$manifest" --to verl --out "${DATA:-data/verl}"
overrides=$(sed -E 's/[[:space:]]+#.*$//; /^#/d; /^$/d; s/: /=/' "$here/$preset.yaml")
export ENVBUILD_MANIFEST=$manifest
# GPU: not run here
# shellcheck disable=SC2086
exec python -m verl.trainer.main_ppo $overrides "$@"
