#!/bin/sh
# MANIFEST=manifest pipelines/trainers/nemo/start.sh: schedule and export; NeMo Gym starts the rest
set -eu
manifest=${MANIFEST:-manifest}
envbuild pool "$manifest" --schedule "${SCHEDULE:-synsql}" --write || [ $? -eq 1 ] # 1: a bucket is short
exec envbuild export "$manifest" --to nemo --out "${DATA:-data/nemo}" \
    --prompts "$(dirname "$0")/prompts.toml"
