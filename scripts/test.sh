#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# test.sh all|lint|unit|browser|integration|e2e: the project's tests. Installs what they need when it runs as root.
# All: e2e, which waits much, runs beside the others. Each says what it has to say as a whole, and which part failed
# is said at the end.
set -euo pipefail
cd "$(dirname "$0")/.."
what=${1:-all}
bin=$PWD/.venv/bin
export PATH=$bin:$PATH ANSIBLE_CONFIG=$PWD/ansible.cfg
# Tests start pdlab and ansible a thousand times: its own modules are compiled once.
unset PYTHONDONTWRITEBYTECODE
# A file of tests stays with one worker: what a file shares is made once, and its tests keep their order.
spread=(-n auto --maxprocesses 8 --dist loadfile)

say() { printf '\n== %s\n' "$*"; }

needs() { # needs COMMAND PACKAGE: install a Debian package for a command that is missing
    command -v "$1" >/dev/null && return
    if [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null; then
        [ -n "${apt_updated:-}" ] || apt-get update -qq
        apt_updated=1
        DEBIAN_FRONTEND=noninteractive apt-get install -qq -y --no-install-recommends "$2" >/dev/null
    else
        printf 'missing: %s (sudo apt-get install %s)\n' "$1" "$2" >&2
        exit 1
    fi
}

browser_needs() { needs chromium chromium; }

host_needs() {
    needs systemd-nspawn systemd-container
    needs sshd openssh-server
    needs ip iproute2
    needs numactl numactl
    needs logrotate logrotate
}

lint() {
    say "ruff"
    ruff check .
    ruff format --check .
    say "mypy"
    mypy pdlab plugins roles/rehearsal/files/src scripts benchmarks
    say "yamllint"
    yamllint --strict .
    say "ansible-lint, profile production"
    ansible-lint --offline --profile production
    say "shell"
    bash -n scripts/*.sh pdlab/bundle_files/*.sh .ci/run tests/testbed/*.sh
}

interpreter() { # interpreter VERSION: a Python of that version, from PATH or from pyenv
    local candidate
    for candidate in "python$1" "/usr/bin/python$1" "$HOME/.pyenv/versions/$1".*/bin/python; do
        if "$candidate" -c "import sys; sys.exit('%d.%d' % sys.version_info[:2] != '$1')" 2>/dev/null; then
            "$candidate" -c 'import sys; print(sys.executable)'
            return
        fi
    done
    return 1
}

unit() {
    say "unit tests"
    python -m pytest tests/unit -q "${spread[@]}"
    # Every other Python that a controller may have. One that is not installed is said to be untested.
    local version python other
    for version in 3.11 3.12 3.13; do
        if [ "$(python -c 'import sys; print("%d.%d" % sys.version_info[:2])')" = "$version" ]; then
            continue
        fi
        if ! python=$(interpreter "$version"); then
            say "Python $version is not on this machine: controllers with it are NOT TESTED"
            continue
        fi
        say "controller on Python $version"
        other=.venv-$version
        scripts/bootstrap.sh "$other" requirements-dev.txt "$python"
        "$other/bin/python" -m pytest tests/unit/controller tests/unit/topology tests/unit/report -q "${spread[@]}"
        "$other/bin/pdlab" plan --json >/dev/null
        "$other/bin/ansible-playbook" --syntax-check site.yml
    done
}

browser() {
    browser_needs
    say "reports in a headless Chromium"
    python -m pytest tests/browser -q
}

integration() {
    if [ "$(id -u)" != 0 ]; then
        say "integration tests need root (systemd hosts in namespaces): NOT RUN"
        return
    fi
    host_needs
    say "integration tests on systemd hosts"
    python -m pytest tests/integration -q "${spread[@]}"
}

e2e() {
    browser_needs
    # For the host with systemd; without root its tests are skipped.
    [ "$(id -u)" != 0 ] || host_needs
    say "the rehearsal, end to end"
    python -m pytest tests/e2e -v
}

# in_turn PART...: one after the other, to the first that fails.
in_turn() {
    local part
    for part; do
        echo "$part" >"$notes/failed-$1"
        "$part"
    done
    rm "$notes/failed-$1"
}

stop() { # With the tests' own cleaning up, which an interrupt lets them do.
    local lane try
    for lane in $(jobs -pr); do kill -INT -- "-$lane" 2>/dev/null || true; done
    # Who was started where interrupts are ignored, as by nohup, does not hear it.
    for ((try = 0; try < 150; try++)); do
        [ -n "$(jobs -pr)" ] || break
        sleep 0.5
    done
    for lane in $(jobs -pr); do kill -KILL -- "-$lane" 2>/dev/null || true; done
    rm -rf "$notes"
}

all() {
    # One after the other: two package managers at once would refuse each other.
    browser_needs
    [ "$(id -u)" != 0 ] || host_needs
    notes=$(mktemp -d)
    trap stop EXIT
    trap 'exit 130' INT
    trap 'exit 143' TERM
    # With job control each lane is a process group, so that all of it can be stopped.
    set -m
    in_turn e2e >"$notes/e2e" 2>&1 </dev/null &
    local aside=$! before=0 beside=0
    in_turn lint unit browser integration </dev/null &
    wait "$!" || before=$?
    wait "$aside" || beside=$?
    cat "$notes/e2e"
    if [ "$((before + beside))" != 0 ]; then
        say "FAILED: $(cat "$notes"/failed-* | tr '\n' ' ')"
        exit 1
    fi
    say "all passed"
}

case $what in
# Never joined with && or ||: that would switch errexit off inside the functions.
all | lint | unit | browser | integration | e2e) "$what" ;;
*) printf 'test.sh: unknown: %s (all, lint, unit, browser, integration, e2e)\n' "$what" >&2 && exit 2 ;;
esac
