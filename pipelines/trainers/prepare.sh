# Read by each start.sh, behind `to=TRAINER`: $manifest and $data as absolute paths, since Ray's
# workers run elsewhere, and `prepare`, which writes the schedule and the export there.
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
