#!/bin/sh
# One trainer's tests in an environment of its own: tests/adapters/run.sh NAME [pytest arguments]
# NAME: trl, verl, verifiers, openenv; nemo and skyrl with PYTHON=python3.12. The environment lies in .venv-NAME ($ENVBUILD_VENVS
# elsewhere) and is kept; remove the folder to start afresh.
set -eu
name=${1:?"usage: tests/adapters/run.sh trl|verl|skyrl|verifiers|openenv|nemo"}
shift
root=$(cd "$(dirname "$0")/../.." && pwd)
venv=${ENVBUILD_VENVS:-$root}/.venv-$name
case $name in
    trl) needs="trl==1.16.0 transformers>=5.13 datasets>=5.0 accelerate" torch=yes tests=tests/adapters/trl ;;
    verl) needs="verl==0.9.1 transformers>=5.5.3,<5.11 tensordict<=0.10.0 TransferQueue cachetools uvicorn fastapi datasets>=5.0" torch=yes tests=tests/adapters/verl ;;
    skyrl) needs="skyrl==0.4.* skyrl-gym==0.4.* ray==2.57.0 loguru hydra-core omegaconf tensordict jaxtyping accelerate torchdata fastapi uvicorn func_timeout orjson pybase64" torch=yes tests=tests/adapters/skyrl ;;
    verifiers) needs="verifiers==0.4.*" torch=no tests=tests/adapters/verifiers ;;
    openenv) needs="openenv>=0.10,<0.11" torch=no tests=tests/adapters/openenv ;;
    nemo) needs="nemo-gym==0.4.*" torch=no tests=tests/adapters/nemo ;;
    *) echo "no adapter $name: trl, verl, skyrl, verifiers, openenv or nemo" >&2; exit 2 ;;
esac
if [ ! -e "$venv/ready" ]; then
    "${PYTHON:-python3}" -m venv "$venv"
    # a plain `torch` may be a CUDA build of several GB: pin one that is small on your machine
    [ $torch = no ] || "$venv/bin/pip" install -q "${ENVBUILD_TORCH:-torch==2.13.0}"
    # shellcheck disable=SC2086
    "$venv/bin/pip" install -q $needs pytest
    "$venv/bin/pip" install -q -e "$root"
    touch "$venv/ready"
fi
cd "$root"
# tiny tensors: more threads only wait for each other
OMP_NUM_THREADS=1 exec "$venv/bin/python" -m pytest -q "$tests" tests/adapters/test_conformance.py "$@"
