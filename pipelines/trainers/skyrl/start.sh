#!/bin/sh
# MANIFEST=manifest DATA=data/skyrl pipelines/trainers/skyrl/start.sh [--print] [SkyRL overrides]
# --print: SkyRL's arguments, one a line, and nothing else.
set -euf
here=$(cd "$(dirname "$0")" && pwd)
to=skyrl
. "$here/../prepare.sh"
print=
[ "${1:-}" != --print ] || { print=yes; shift; }
[ -n "$print" ] || prepare
test=[]
[ ! -e "$data/test.parquet" ] || test="['$data/test.parquet']"
IFS='
'
# shellcheck disable=SC2046
set -- $(overrides "$here/synsql-token.yaml") "data.train_data=['$data/train.parquet']" \
    "data.val_data=$test" "trainer.ckpt_path=$(absolute runs/skyrl)" "$@"
[ -z "$print" ] || { printf '%s\n' "$@"; exit; }
export ENVBUILD_MANIFEST="$manifest"
# GPU: training not run here
exec python "$here/train.py" "$@"
