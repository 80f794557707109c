#!/bin/sh
# MANIFEST=manifest pipelines/trainers/openenv/start.sh [options of envbuild serve]
set -eu
exec envbuild serve "${MANIFEST:-manifest}" --openenv "$@"
