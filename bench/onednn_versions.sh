#!/usr/bin/env bash
# Compares Debian's oneDNN with the one that scripts/setup.sh installs, in turn, three rounds.
#
#   bench/onednn_versions.sh        OMP_NUM_THREADS decides about threads (default: all cores)
set -euo pipefail
cd "$(dirname "$0")"

deps="${HYPER_DEPS:-${XDG_CACHE_HOME:-${HOME}/.cache}/hyper}"
ours="${deps}/onednn-2023.2.0"
work="$(mktemp -d)"
trap 'rm -rf "${work}"' EXIT

# Debian's packages are unpacked, not installed: their headers would get in the way of ours.
(cd "${work}" && apt-get download -qq libdnnl-dev libdnnl2 && for deb in *.deb; do dpkg -x "${deb}" .; done)
debian="${work}/usr"
flags=(-std=c++17 -O2 -fopenmp onednn_versions.cc)
c++ "${flags[@]}" -isystem "${debian}/include" -o "${work}/debian" \
  "${debian}/lib/x86_64-linux-gnu/libdnnl.so.2" -Wl,-rpath,"${debian}/lib/x86_64-linux-gnu"
c++ "${flags[@]}" -isystem "${ours}/include" -o "${work}/ours" "${ours}/lib/libdnnl.so.3" \
  -Wl,-rpath,"${ours}/lib"
for _ in 1 2 3; do
  "${work}/debian"
  "${work}/ours"
done
