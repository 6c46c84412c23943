#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# install.sh [VENV]: pdlab @VERSION@ and all that it needs into a virtual environment, from this folder alone.
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
venv=${1:-$here/venv}

(cd "$here" && sha256sum --check --quiet --strict SHA256SUMS)

python=
for version in @PYTHONS@; do
    for candidate in "python$version" "/usr/bin/python$version" python3 /usr/bin/python3; do
        if [ -z "$python" ] && "$candidate" -c "import sys; sys.exit('%d.%d' % sys.version_info[:2] != '$version')" 2>/dev/null; then
            python=$("$candidate" -c 'import sys; print(sys.executable)')
        fi
    done
done
if [ -z "$python" ]; then
    echo "install.sh: no Python of version @PYTHONS@ found; install one, or make the bundle for the one that is there" >&2
    exit 1
fi

uv=("$here/bin/uv" --offline --no-config --no-python-downloads)
"${uv[@]}" venv --quiet --clear --python "$python" "$venv"
from=(--quiet --no-index --find-links "$here/wheels" --python "$venv/bin/python")
"${uv[@]}" pip sync "${from[@]}" --require-hashes "$here/requirements/controller.txt"
"${uv[@]}" pip install "${from[@]}" --no-deps "pdlab==@VERSION@"
echo "pdlab is in $venv/bin/pdlab"
