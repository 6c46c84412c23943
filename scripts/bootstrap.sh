#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# bootstrap.sh VENV LOCK [PYTHON]: a virtual environment that is exactly what LOCK says, with this checkout in it.
# Safe to repeat: does nothing when the environment was made from the same lock. Works with or without root.
set -euo pipefail
venv=$1 lock=$2 wanted=${3:-}
uv_version=0.13.9
cd "$(dirname "$0")/.."

say() { printf 'bootstrap: %s\n' "$*" >&2; }

find_python() {
    local candidate
    for candidate in ${wanted:-python3 python3.13 python3.12 python3.11}; do
        if "$candidate" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; then
            "$candidate" -c 'import sys; print(sys.executable)'
            return
        fi
    done
    say "no Python 3.11 or newer found (looked for: ${wanted:-python3 python3.13 python3.12 python3.11})"
    say "install one, for example: sudo apt-get install python3 python3-venv"
    exit 1
}

make_venv() { # needs neither pip nor the package python3-venv
    local python=$1
    if command -v uv >/dev/null; then
        uv venv --quiet --clear --python "$python" "$venv"
    elif "$python" -m venv --clear "$venv" >/dev/null 2>&1; then
        "$venv/bin/python" -m pip install --quiet --disable-pip-version-check "uv==$uv_version"
    else
        "$python" -m venv --clear --without-pip "$venv"
        "$venv/bin/python" scripts/get_uv.py "$uv_version" "$lock" "$venv/bin"
    fi
}

python=$(find_python)
stamp="$(sha256sum "$lock" pyproject.toml build_collection.py | sha256sum | cut -d' ' -f1) $python"
if [ "$(cat "$venv/.bootstrap" 2>/dev/null || true)" = "$stamp" ] && [ -x "$venv/bin/pdlab" ]; then
    exit 0
fi
say "making $venv from $lock on $python"
make_venv "$python"
uv=$(command -v "$venv/bin/uv" || command -v uv)
# The lock brings uv itself, so from here on the environment has its own.
# Compiled now, since where Python is told to write no bytecode every command would compile all that it loads again.
"$uv" pip sync --quiet --compile-bytecode --require-hashes --python "$venv/bin/python" "$lock"
uv="$venv/bin/uv"
"$uv" pip install --quiet --no-deps --python "$venv/bin/python" --editable .
printf '%s\n' "$stamp" >"$venv/.bootstrap"
