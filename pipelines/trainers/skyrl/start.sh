#!/bin/sh
# MANIFEST=manifest pipelines/trainers/skyrl/start.sh [SkyRL overrides]. GPU: training not run here.
set -eu
here=$(dirname "$0")
manifest=${MANIFEST:-manifest}
envbuild pool "$manifest" --schedule "${SCHEDULE:-synsql}" --write || [ $? -eq 1 ] # 1: a bucket is short
envbuild export "$manifest" --to skyrl --out "${DATA:-data/skyrl}"
export ENVBUILD_MANIFEST=$manifest
overrides=$(sed -E 's/[[:space:]]+#.*$//; /^#/d; /^$/d; s/: /=/' "$here/synsql-token.yaml")
# shellcheck disable=SC2086
exec python "$here/train.py" $overrides "$@"
