#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# lock.sh [--upgrade]: resolves every lock file of this repository from its pins. Needs uv and a package index.
# Without --upgrade, a locked version that still fits its pin stays.
set -euo pipefail
cd "$(dirname "$0")/.."
locks=roles/engine/files/locks

uv=$(command -v uv || echo "${VENV:-.venv}/bin/uv")
[ -x "$uv" ] || { echo "lock: no uv found; run: make dev" >&2; exit 1; }

# --no-config and the index by name: nothing of this machine may get into a lock.
unset UV_INDEX UV_EXTRA_INDEX_URL UV_INDEX_URL UV_DEFAULT_INDEX UV_FIND_LINKS UV_CONSTRAINT UV_OVERRIDE
resolve() {
    "$uv" pip compile --quiet --no-config --default-index https://pypi.org/simple --custom-compile-command "make lock" \
        --universal --python-version 3.11 --generate-hashes "$@"
}

resolve "$@" $locks/engine.in -o $locks/cuda13.txt

# cpu.txt starts from cuda13.txt, so that versions cannot differ.
cp $locks/cuda13.txt $locks/cpu.txt
leave_out=()
while read -r name; do leave_out+=(--no-emit-package "$name"); done < <(sed 's/#.*//; /^\s*$/d' $locks/cpu-leaves-out.txt)
resolve "${leave_out[@]}" $locks/engine.in -o $locks/cpu.txt

resolve "$@" roles/servers/files/supervisor.in -o roles/servers/files/supervisor.txt
resolve "$@" pyproject.toml -o requirements.txt
resolve "$@" pyproject.toml --group dev --extra parquet -c requirements.txt -o requirements-dev.txt
