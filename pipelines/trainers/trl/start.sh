#!/bin/sh
# pipelines/trainers/trl/start.sh [RUN.toml]: schedule, export, train. Needs a GPU for vLLM.
# MANIFEST, DATA and SCHEDULE reach the run; --print shows its arguments and stops.
set -eu
here=$(dirname "$0")
to=trl
. "$here/../prepare.sh"
[ "${1:-}" = --print ] && { print=yes; shift; } || print=
set -- "${1:-$here/synsql-token.toml}" "manifest=$manifest" "dataset=$data" "schedule=$schedule"
if [ -n "$print" ]; then printf '%s\n' "$@"; exit; fi
prepare
exec accelerate launch --num_processes "${PROCESSES:-1}" -m envbuild.train.trl_run "$@"
