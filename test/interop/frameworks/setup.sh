#!/usr/bin/env bash
# Makes the environments of the agent frameworks, each by itself since their
# packages do not agree with each other, and prints where they are:
#
#   AGL_TEST_FRAMEWORKS=$(bash test/interop/frameworks/setup.sh) go test -run Framework ./test/interop
#
# The line is NAME=INTERPRETER:NAME=INTERPRETER:… as ../setup.sh makes them, and
# its variables hold here too. Everything but the line goes to stderr.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

line=
add() { line+=${line:+:}$(basename "$(dirname "$1")")=$2; }
for list in frameworks/*/requirements.txt; do add "$list" "$(bash setup.sh "$list")"; done
for list in frameworks/*/package.json; do add "$list" "$(bash node/setup.sh "$(dirname "$list")")"; done
printf '%s\n' "$line"
