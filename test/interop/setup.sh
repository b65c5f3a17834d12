#!/usr/bin/env bash
# Makes the virtual environment that the tests of this folder drive, unless it
# is there already, and prints the path of its interpreter:
#
#   AGL_TEST_PYTHON=$(bash test/interop/setup.sh) go test ./test/interop
#
# The tests of release 1.0 have a list of packages of their own, and want Python
# 3.12 or newer:
#
#   AGL_TEST_PYTHON_1_0=$(bash test/interop/setup.sh release1/requirements.txt) go test ./test/interop
#
# and so do those of exported runs, which are read by TensorBoard and MLflow:
#
#   AGL_TEST_PYTHON_TRACKING=$(bash test/interop/setup.sh tracking/requirements.txt) go test ./test/interop
#
# AGL_INTEROP_CACHE names the folder that keeps it, by default
# ${XDG_CACHE_HOME:-~/.cache}/agl-interop. PYTHON names the interpreter to make
# it with, by default python3; it must be 3.11 to 3.13. Everything but the last
# line goes to stderr.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")"
exec 3>&1 >&2

readonly cache=${AGL_INTEROP_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/agl-interop}
readonly python=${PYTHON:-python3}
readonly list=${1:-requirements.txt}
least=3.11
if [[ $list == release1/* || $list == frameworks/* ]]; then least=3.12; fi

# Debian ships an interpreter without the means to make environments.
if ! "$python" -c 'import ensurepip, venv' 2>/dev/null; then
  if [[ $(id -u) != 0 ]] || ! command -v apt-get >/dev/null; then
    echo "$python cannot make virtual environments: install Python $least to 3.13 with its venv module, or name one in PYTHON"
    exit 1
  fi
  apt-get update -q && apt-get install -q -y --no-install-recommends python3 python3-venv
fi
version=$("$python" -c 'import sys; print("%d.%d" % sys.version_info[:2])')
case $version in
  3.12 | 3.13 | "$least") ;;
  *) echo "$python is $version: the packages of $list are for $least to 3.13; name another interpreter in PYTHON"; exit 1 ;;
esac

# A changed list of packages gets an environment of its own.
pins=$(sha256sum "$list")
readonly home=$cache/py$version-${pins:0:12}
mkdir -p "$cache"
exec 9>"$home.lock"
flock 9 # two runs at once make it once

if [[ ! -e $home/complete ]]; then
  rm -rf "$home"
  "$python" -m venv "$home"
  # The list is complete, so nothing is left to resolve.
  "$home/bin/python" -m pip install --quiet --disable-pip-version-check --no-input --no-deps --requirement "$list"
  "$home/bin/python" -m pip check --disable-pip-version-check
  touch "$home/complete"
fi
printf '%s\n' "$home/bin/python" >&3
