#!/usr/bin/env bash
# `make setup`: Java, Maven and Python by apt (or brew), packages to .venv, jars to .jars. What is there and up to date
# is left alone: a warm run compares checksums and runs neither pip nor Maven. Each installing command is printed first.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../../.."

say() { printf 'setup: %s\n' "$*"; }
fail() { printf 'setup: %s\n' "$*" >&2; exit 1; }
have() { command -v "$1" >/dev/null 2>&1; }
loudly() { say "$*"; "$@"; }

# Mirrors stumble: three tries, 5 s apart, and then the last error stands.
thrice() { "$@" || { sleep 5; "$@"; } || { sleep 5; "$@"; }; }

as_root() {
    if [ "$(id -u)" = 0 ]; then loudly "$@"
    elif have sudo; then loudly sudo "$@"
    else fail "needs root for: $*"; fi
}

java_runs() {
    local version
    version=$("${JAVA_HOME:+$JAVA_HOME/bin/}java" -version 2>&1 | sed -n 's/.*version "\([0-9]*\).*/\1/p' | head -1)
    [ "${version:-0}" -ge 17 ]
}

python_for_venv() { # the first Python that pyproject.toml allows
    local name
    for name in python3.12 python3.13 python3.11 python3; do
        if have "$name" && "$name" -c 'import sys; sys.exit(not (3, 11) <= sys.version_info[:2] < (3, 14))' 2>/dev/null
        then command -v "$name"; return; fi
    done
    return 1
}

# -- is it done already? ----------------------------------------------------------------------------------------------
# By checksum of what decides it, and of the path: an editable install of a moved clone points nowhere.
stamp() { { pwd; cat "$@"; } | cksum; }
venv_wanted=$(stamp requirements.lock pyproject.toml)
jars_wanted=$(stamp spark/pom.xml docker/kafka/pom.xml)
venv_done() { [ "$(cat .venv/.done 2>/dev/null)" = "$venv_wanted" ] && .venv/bin/python -c '' 2>/dev/null; }
jars_done() { [ "$(cat .jars/.done 2>/dev/null)" = "$jars_wanted" ]; }

# -- what the system must have ----------------------------------------------------------------------------------------
missing_by_apt() {
    local java=openjdk-17-jre-headless
    java_runs || { apt-cache show "$java" >/dev/null 2>&1 || java=openjdk-21-jre-headless; echo "$java"; }
    jars_done || have mvn || echo maven
    have python3 || echo python3
    venv_done || have uv || { python_for_venv >/dev/null && "$(python_for_venv)" -c 'import ensurepip' 2>/dev/null; } || echo python3-venv
}

missing_by_brew() { # written from brew's documentation, not tried on a Mac
    java_runs || echo openjdk@17
    jars_done || have mvn || echo maven
    python_for_venv >/dev/null || echo python@3.12
}

system() {
    local packages
    if have apt-get; then
        [ -n "$(missing_by_apt)" ] || return 0
        as_root apt-get update -qq
        packages=$(missing_by_apt) # again: only now are apt's lists sure to be there
        # shellcheck disable=SC2086
        as_root env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends $packages >/dev/null
        java_runs || fail "Java is still not there; JAVA_HOME is '${JAVA_HOME:-}', unset or correct it"
    elif have brew; then
        packages=$(missing_by_brew)
        [ -n "$packages" ] || return 0
        say "macOS: this part is untested"
        # shellcheck disable=SC2086
        loudly brew install $packages
        if ! java_runs; then
            fail "brew keeps Java to itself: export JAVA_HOME=\"\$(brew --prefix openjdk@17)\", then make setup again"
        fi
    else
        java_runs || fail "needs Java 17, and there is neither apt-get nor brew here to install it with"
        jars_done || have mvn || fail "needs Maven, and there is neither apt-get nor brew here to install it with"
    fi
}

# -- what the repo keeps for itself -----------------------------------------------------------------------------------
packages() {
    local python uv how
    rm -rf include/*.egg-info # of an older install: with it on Python's path, Airflow finds the plugin twice
    if venv_done; then return; fi
    say "packages to .venv"
    rm -f .venv/.done
    if ! .venv/bin/python -c '' 2>/dev/null; then
        rm -rf .venv
        if ! python=$(python_for_venv); then
            have uv || fail "needs Python 3.11, 3.12 or 3.13 (or uv, which can fetch one); here is $(python3 --version 2>&1)"
            python=3.12
        fi
        if have uv; then uv venv -q --python "$python" .venv; else "$python" -m venv .venv; fi
    fi
    uv=$(command -v uv || true)
    if [ -z "$uv" ] && .venv/bin/python -m pip install -q uv; then uv=.venv/bin/uv; fi
    for how in ${uv:+by_uv by_uv_with_system_certificates} by_pip; do
        if "$how" -r requirements.lock && "$how" --no-deps -e .; then
            echo "$venv_wanted" >.venv/.done
            return
        fi
    done
    fail "packages could not be installed; the errors above say why"
}

by_uv() { "$uv" pip install -q --python .venv/bin/python "$@"; }
by_uv_with_system_certificates() { UV_SYSTEM_CERTS=1 by_uv "$@"; } # a company's proxy signs with its own
by_pip() { .venv/bin/python -m pip install -q "$@"; }

maven() { # silent unless it fails: even a quiet Maven prints escape codes
    local said
    said=$(mvn -q -B -f "$1" package "-Djars=$2" 2>&1) || { printf '%s\n' "$said" >&2; return 1; }
}

jars() {
    local pom name target
    if jars_done; then return; fi
    rm -f .jars/.done
    for pom in spark/pom.xml docker/kafka/pom.xml; do
        name=$(basename "$(dirname "$pom")")
        target="$PWD/.jars/$name"
        say "jars of $pom to .jars/$name"
        rm -rf "$target.new"
        thrice maven "$pom" "$target.new"
        rm -rf "$target" # whole, so that no jar of an older pin stays beside its successor
        mv "$target.new" "$target"
    done
    echo "$jars_wanted" >.jars/.done
}

classes() { # not needed, but every JVM starts sooner with them
    archive spark .jars/.classes
    archive kafka .jars/.classes-kafka
}

archive() {
    local wanted
    wanted=$(printf '%s\n' "$venv_wanted" "$jars_wanted" "$(java_version)" | cksum)
    if [ "$(cat "$2" 2>/dev/null)" = "$wanted" ]; then return; fi
    say "class archive of the JVM of $1 to .jars/$1.jsa"
    .venv/bin/python -m tally.embedded.classes "$1" >/dev/null 2>".jars/classes-$1.log" ||
        say "no class archive (.jars/classes-$1.log says why); each JVM of $1 starts some seconds later"
    echo "$wanted" >"$2"
}

java_version() { "${JAVA_HOME:+$JAVA_HOME/bin/}java" -version 2>&1; } # an archive is of one Java only

system
packages
jars
classes
say "ready"
