#!/usr/bin/env bash
# Looks for what would stop a build halfway, before it begins. Each finding is one line that says
# what to do.
#   scripts/preflight.sh [FOLDER]    the folder that is built in (build)
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

folder="${1-build}"
needed_mib=2048  # all trees of `make test`
least_mib=256    # of that, where most is built already

fail() {
  echo "preflight: $*" >&2
  exit 1
}

mkdir -p "$folder" 2>/dev/null && probe="$(mktemp "$folder/.preflight.XXXXXX" 2>/dev/null)" ||
  fail "cannot write to $folder/: copy the tree to a place that you may write to," \
    "or make $folder a link to one"
rm -f "$probe"

free_mib="$(df -Pm "$folder" | awk 'NR == 2 {print $4}')"
built_mib="$(du -sm "$folder" 2>/dev/null | cut -f1)" || true
still_mib=$((needed_mib - ${built_mib:-0}))
((still_mib >= least_mib)) || still_mib=$least_mib
((free_mib >= still_mib)) ||
  fail "$free_mib MiB are free for $folder/, $still_mib are needed: free some," \
    "or make $folder a link to another disk"

# CMake refuses a tree that was copied or moved, in words that say neither whose nor what to do.
here="$(pwd -P)"
for cache in "$folder"/*/CMakeCache.txt; do
  [[ -e "$cache" ]] || continue
  home="$(sed -n 's/^CMAKE_HOME_DIRECTORY:INTERNAL=//p' "$cache")"
  [[ -z "$home" || "$(realpath -q "$home" || echo "$home")" == "$here" ]] ||
    fail "${cache%/*} was configured for the sources in $home:" \
      "remove it (rm -r ${cache%/*}) and try again"
done
