# Read by each start.sh, behind `to=TRAINER`: $manifest and $data as absolute paths, since Ray's
# workers run elsewhere, and `prepare`, which writes the schedule and the export there.
# A run reports to nobody: not to Ray, vLLM or the hub.
export RAY_USAGE_STATS_ENABLED="${RAY_USAGE_STATS_ENABLED:-0}" VLLM_NO_USAGE_STATS="${VLLM_NO_USAGE_STATS:-1}"
export HF_HUB_DISABLE_TELEMETRY="${HF_HUB_DISABLE_TELEMETRY:-1}"
absolute() { case $1 in /*) echo "$1" ;; *) echo "$PWD/$1" ;; esac; }
manifest=$(absolute "${MANIFEST:-manifest}")
data=$(absolute "${DATA:-data/$to}")
schedule=${SCHEDULE:-synsql}
prepare() {
    envbuild pool "$manifest" --schedule "$schedule" --write || [ $? -eq 1 ] # 1: a bucket is short
    envbuild export "$manifest" --to "$to" --out "$data" "$@"
}
# NAME=VALUE for each line of these files, which say NAME: VALUE # why
overrides() { cat "$@" | sed -E 's/[[:space:]]+#.*$//; /^#/d; /^$/d; s/: /=/'; }
