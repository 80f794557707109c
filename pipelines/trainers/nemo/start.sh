#!/bin/sh
# MANIFEST=manifest pipelines/trainers/nemo/start.sh: schedule and export; NeMo Gym starts the rest
set -eu
here=$(dirname "$0")
to=nemo
. "$here/../prepare.sh"
prepare --prompts "$here/prompts.toml"
