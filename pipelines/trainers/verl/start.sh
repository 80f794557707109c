#!/bin/sh
# MANIFEST=manifest DATA=data/verl pipelines/trainers/verl/start.sh [--print] [PRESET] [verl overrides]
# PRESET: synsql-token or synsql-sequence. --print: verl's arguments, one a line, and nothing else.
set -euf
here=$(cd "$(dirname "$0")" && pwd)
to=verl
. "$here/../prepare.sh"
print=
[ "${1:-}" != --print ] || { print=yes; shift; }
preset=${1:-synsql-token}
[ $# -eq 0 ] || shift
[ -e "$here/$preset.yaml" ] || { echo "no preset $preset: synsql-token or synsql-sequence" >&2; exit 2; }
[ -n "$print" ] || prepare
# verl wants a file even where it validates nothing
test=$data/test.parquet
[ -e "$test" ] || test=$data/train.parquet
IFS='
'
# shellcheck disable=SC2046
set -- $(overrides "$here/common.yaml" "$here/$preset.yaml") "data.train_files='$data/train.parquet'" \
    "data.val_files='$test'" "+data.envbuild_manifest='$manifest'" "trainer.experiment_name=$preset" "$@"
[ -z "$print" ] || { printf '%s\n' "$@"; exit; }
# GPU: not run here
exec python -m verl.trainer.main_ppo "$@"
