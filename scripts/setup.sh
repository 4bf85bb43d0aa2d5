#!/usr/bin/env bash
# Installs everything the project builds and tests with. Idempotent: a second run only checks stamps.
#
#   scripts/setup.sh           build and test dependencies
#   scripts/setup.sh --slow    also the models from packages that slow tests train
#   scripts/setup.sh --fuzz    also Clang, whose libFuzzer scripts/fuzz.sh uses
#   scripts/setup.sh --oracle  also the Python environment with PyTorch that records parity numbers
#
# System packages come from apt; ONNX and oneDNN are put under $HYPER_DEPS (default: the user's cache
# folder), one folder per version, so that several clones share them.
set -euo pipefail

readonly onnx_version=1.22.0
readonly onednn_version=2023.2.0   # PyPI's number for oneDNN 3.2 built on libgomp
readonly cmake_version=3.31.6      # only to configure ONNX, which asks for at least 3.26
readonly deps="${HYPER_DEPS:-${XDG_CACHE_HOME:-${HOME}/.cache}/hyper}"

apt_packages=(
  build-essential ca-certificates ccache cmake git ninja-build pkg-config python3 python3-pip python3-venv
  clang-format clang-tidy
  libcli11-dev libfmt-dev libgmock-dev libgtest-dev libprotobuf-dev libssl-dev libyaml-cpp-dev nlohmann-json3-dev
  protobuf-compiler zlib1g-dev
  libopenmpi-dev openmpi-bin
  dataset-fashion-mnist libonnx-testdata perl-doc
)
[ "${1:-}" = --fuzz ] && apt_packages+=(clang libclang-rt-14-dev)

say() { printf '[setup] %s\n' "$*" >&2; }

as_root() {
  if [ "$(id -u)" = 0 ]; then "$@"; else sudo "$@"; fi
}

install_system_packages() {
  local missing=()
  local package
  local installed
  installed="$(dpkg-query -W -f '${db:Status-Abbrev} ${Package}\n' | awk '$1 == "ii" {print $2}')"
  for package in "${apt_packages[@]}"; do
    grep -qx "${package}" <<<"${installed}" || missing+=("${package}")
  done
  [ "${#missing[@]}" = 0 ] && return
  say "installing ${missing[*]}"
  as_root apt-get update -qq
  DEBIAN_FRONTEND=noninteractive as_root apt-get install -y -qq --no-install-recommends "${missing[@]}" >/dev/null
}

# Makes a virtual environment with Debian's python, whatever python3 is first on the path.
make_venv() {
  [ -x "$1/bin/pip" ] || /usr/bin/python3 -m venv "$1"
}

# Whether an ONNX that is new enough is installed where CMake looks.
onnx_is_installed() {
  local file version
  for file in {/usr/local,/usr}/lib{,64,/x86_64-linux-gnu}/cmake/ONNX/ONNXConfigVersion.cmake; do
    [ -e "${file}" ] || continue
    version="$(sed -n 's/^set(PACKAGE_VERSION "\(.*\)")/\1/p' "${file}")"
    [ "$(printf '%s\n' "${onnx_version}" "${version}" | sort -V | head -1)" = "${onnx_version}" ] &&
      return 0
  done
  return 1
}

# ONNX's library unless one is installed, and its node-test data (opset 18 and newer).
build_onnx() {
  local prefix="${deps}/onnx-${onnx_version}"
  [ -e "${prefix}/.complete" ] && return
  local work
  work="$(mktemp -d)"
  make_venv "${deps}/tools"
  # pip download would run the package's build back end; the archive alone is enough.
  "${deps}/tools/bin/pip" download -q --no-deps --no-binary onnx -d "${work}" "onnx==${onnx_version}"
  tar -xf "${work}/onnx-${onnx_version}.tar.gz" -C "${work}"
  if ! onnx_is_installed; then
    say "building ONNX ${onnx_version} (about 3 minutes)"
    "${deps}/tools/bin/pip" install -q "cmake==${cmake_version}"
    "${deps}/tools/bin/cmake" -S "${work}/onnx-${onnx_version}" -B "${work}/build" -G Ninja \
      -DCMAKE_BUILD_TYPE=Release -DCMAKE_POSITION_INDEPENDENT_CODE=ON -DCMAKE_INSTALL_PREFIX="${prefix}" \
      -DCMAKE_CXX_STANDARD=17 -DONNX_USE_PROTOBUF_SHARED_LIBS=ON -DONNX_BUILD_PYTHON=OFF -DONNX_ML=ON \
      -DCMAKE_CXX_COMPILER_LAUNCHER=ccache >"${work}/configure.log" 2>&1 ||
      { cat "${work}/configure.log" >&2; return 1; }
    "${deps}/tools/bin/cmake" --build "${work}/build" >"${work}/build.log" 2>&1 ||
      { tail -50 "${work}/build.log" >&2; return 1; }
    "${deps}/tools/bin/cmake" --install "${work}/build" >/dev/null
  fi
  mkdir -p "${prefix}/share/onnx-testdata"
  cp -r "${work}/onnx-${onnx_version}/onnx/backend/test/data/." "${prefix}/share/onnx-testdata/"
  touch "${prefix}/.complete"
  rm -rf "${work}"
}

install_onednn() {
  local prefix="${deps}/onednn-${onednn_version}"
  [ -e "${prefix}/.complete" ] && return
  say "installing oneDNN ${onednn_version}"
  local work
  work="$(mktemp -d)"
  make_venv "${deps}/tools"
  "${deps}/tools/bin/pip" download -q --no-deps -d "${work}" \
    "onednn-cpu-gomp==${onednn_version}" "onednn-devel-cpu-gomp==${onednn_version}"
  local wheel
  for wheel in "${work}"/*.whl; do /usr/bin/python3 -m zipfile -e "${wheel}" "${work}/x"; done
  mkdir -p "${prefix}"
  cp -r "${work}"/x/*.data/data/. "${prefix}/"
  # Wheels carry the library three times instead of two links.
  ln -sf libdnnl.so.3 "${prefix}/lib/libdnnl.so"
  touch "${prefix}/.complete"
  rm -rf "${work}"
}

# Three trained models that lie in PyPI packages, for the tests of real files. None of their code runs.
install_real_files() {
  local folder="${deps}/real-files-1"
  [ -e "${folder}/.complete" ] && return
  say "fetching real models"
  local work
  work="$(mktemp -d)"
  make_venv "${deps}/tools"
  cat >"${work}/requirements.txt" <<'END'
magika==1.0.3 --hash=sha256:3e9b49134e8116ee40b431664dcbed9e199413efddcce1a173c734b4e0521529
rapidocr-onnxruntime==1.4.4 --hash=sha256:971d7d5f223a7a808662229df1ef69893809d8457d834e6373d3854bc1782cbf
basic-pitch==0.4.0 --hash=sha256:738adb503aae7fdfc7d1e1511aa0ce35052315f260a19531ef4c356708425db0
END
  "${deps}/tools/bin/pip" download -q --no-deps --only-binary :all: --platform manylinux_2_28_x86_64 \
    --platform any --require-hashes -d "${work}" -r "${work}/requirements.txt"
  local wheel
  for wheel in "${work}"/*.whl; do /usr/bin/python3 -m zipfile -e "${wheel}" "${work}/x"; done
  mkdir -p "${folder}"
  cp "${work}/x/magika/models/standard_v3_3/model.onnx" "${folder}/magika.onnx"
  cp "${work}/x/rapidocr_onnxruntime/models/ch_ppocr_mobile_v2.0_cls_infer.onnx" "${folder}/angle.onnx"
  cp "${work}/x/basic_pitch/saved_models/icassp_2022/nmp.onnx" "${folder}/pitch.onnx"
  touch "${folder}/.complete"
  rm -rf "${work}"
}

install_oracle() {
  local venv="${deps}/oracle"
  [ -e "${venv}/.complete" ] && return
  say "installing the PyTorch oracle (a few GB)"
  make_venv "${venv}"
  "${venv}/bin/pip" install -q numpy onnx onnxruntime onnxscript torch torchvision
  touch "${venv}/.complete"
}

install_system_packages
mkdir -p "${deps}"
install_onednn
build_onnx
[ "${1:-}" = --slow ] && install_real_files
[ "${1:-}" = --oracle ] && install_oracle
exit 0
