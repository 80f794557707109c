#!/bin/sh
# pipelines/trainers/verifiers/start.sh MODEL BASE_URL [vf-eval options]: evaluates a served model
set -eu
here=$(cd "$(dirname "$0")" && pwd)
model=${1:?"usage: start.sh MODEL BASE_URL"}
base_url=${2:?"usage: start.sh MODEL BASE_URL"}
shift 2
export PYTHONPATH="$here${PYTHONPATH:+:$PYTHONPATH}" ENVBUILD_MANIFEST="${MANIFEST:-manifest}"
# ran against a scripted endpoint; without --no-push verifiers uploads the run to its own platform
exec vf-eval --no-push --model "$model" --client.base-url "$base_url" --env.taskset.id envbuild-verifiers \
    --env.taskset.export "${DATA:-data/verifiers}" --env.agent.harness.id envbuild-verifiers \
    --env.agent.runtime.type subprocess "$@"
