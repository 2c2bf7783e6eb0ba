#!/usr/bin/env bash
# Installs the build into a fresh prefix, then uses it the way a stranger would: the examples
# through find_package, one of them again through pkg-config.
#   install_test.sh SOURCE_DIR BUILD_DIR CONFIG
set -euo pipefail
source_dir=$1 build_dir=$2 config=$3
cmake=${CMAKE:-cmake} cxx=${CXX:-c++}

work=$build_dir/install_test
prefix=$work/prefix
rm -rf "$work"  # a file of an earlier install must not stand in for one that is now missing
mkdir -p "$work"
unset DESTDIR

echo "== install"
"$cmake" --install "$build_dir" --config "$config" --prefix "$prefix"
"$prefix/bin/onepass" --help >/dev/null

echo "== find_package"
"$cmake" -S "$source_dir/examples" -B "$work/examples" -G Ninja \
  -DCMAKE_BUILD_TYPE=Release -DCMAKE_CXX_COMPILER="$cxx" -DCMAKE_PREFIX_PATH="$prefix"
# The package must come from the prefix, not from an older install somewhere on the system.
grep -qx "onepass_DIR:PATH=$prefix/.*" "$work/examples/CMakeCache.txt"
"$cmake" --build "$work/examples"
"$work/examples/softmax"
"$work/examples/cross_entropy"
"$work/examples/attention"

echo "== pkg-config"
PKG_CONFIG_PATH=$(dirname "$(find "$prefix" -name onepass.pc)")
export PKG_CONFIG_PATH
# Unquoted: these are lists of flags.
# shellcheck disable=SC2046
for static in "" --static; do
  "$cxx" -std=c++20 "$source_dir/examples/softmax.cpp" \
    $(pkg-config $static --cflags --libs onepass) \
    -Wl,-rpath,"$(pkg-config --variable=libdir onepass)" -o "$work/softmax_pkg_config"
  "$work/softmax_pkg_config"
done

if command -v dpkg-shlibdeps >/dev/null; then
  echo "== Debian package"
  cpack --config "$build_dir/CPackConfig.cmake" -C "$config" -B "$work/deb"
  package=$(find "$work/deb" -maxdepth 1 -name 'onepass_*.deb')
  dpkg-deb --field "$package" Depends | grep libgomp1 | grep libhwy-dev
  dpkg-deb --extract "$package" "$work/deb/root"
  "$work/deb/root/usr/bin/onepass" --version
  # The same files, and nothing of the build tree.
  diff <(cd "$prefix" && find . -type f | sort) <(cd "$work/deb/root/usr" && find . -type f | sort)
fi
