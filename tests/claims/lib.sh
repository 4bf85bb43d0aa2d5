# What the checks of scripts/claims.sh share; sourced. A check prints lines:
#   figure NAME COUNT      exact; equal names are added
#   measured NAME VALUE    depends on the machine; the largest of a name is kept
#   measured-min NAME VALUE  the same, but the smallest is kept: where larger is better
#   timing NAME VALUE      the same for times
#   pass TEXT | FAIL TEXT  a verdict; TEXT holds no number that varies
#   pass-timing TEXT | FAIL-timing TEXT  a verdict on times: counts where the machine is quiet, in runs by
#                          hand, not in --fast
#   note TEXT              anything else worth reading
#   not-run TEXT           why (a part of) it was left out
# Given by claims.sh: HYPER_SOURCE, HYPER_BUILD, HYPER_DEPS and WORK, an empty folder.
# shellcheck shell=bash
set -euo pipefail

# shellcheck disable=SC2034  # used by the checks
readonly hyperc="${HYPER_BUILD}/bin/hyperc"
# shellcheck disable=SC2034
readonly hyperrun="${HYPER_BUILD}/bin/hyperrun"
readonly oracle="${HYPER_DEPS}/oracle/bin/python"

# As root (containers) OpenMPI wants to be told that this is meant.
if [ "$(id -u)" = 0 ]; then
  export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
fi
# mpirun gives rank 0 a terminal of its own, hence a progress bar: one line each, nothing else.
mpi() { mpirun --oversubscribe "$@" | tr '\r' '\n' | sed 's/\x1b\[K//g'; }

# verdict TEXT COMMAND...: pass when the command succeeds.
verdict() {
  local text="$1"
  shift
  if "$@"; then echo "pass ${text}"; else echo "FAIL ${text}"; fi
}

timing_verdict() {
  local text="$1"
  shift
  if "$@"; then echo "pass-timing ${text}"; else echo "FAIL-timing ${text}"; fi
}

# A comparison of decimal numbers, as awk writes it: holds "1 < 2".
holds() { awk "BEGIN { exit !($1) }"; }

# gtest TEXT BINARY [FILTER]: runs a test binary of the build folder, passes its figures on. A run
# with the same filter by an earlier check counts.
gtest() {
  local log code=0
  log="$(log_of "$2" "${3:-*}")"
  if [ ! -e "${log}.code" ]; then
    (cd "${WORK}" && "${HYPER_BUILD}/tests/$2" "--gtest_filter=${3:-*}") >"${log}" 2>&1 || code=$?
    echo "${code}" >"${log}.code"
  fi
  # A crash behind the summary counts.
  code="$(cat "${log}.code")"
  grep -E '^(figure|measured|measured-min|timing) ' "${log}" || true
  # A filter that matches nothing would succeed.
  grep -qE '^\[  PASSED  \] [1-9]' "${log}" || code=1
  if grep -q '^\[  FAILED  \]' "${log}"; then code=1; fi
  [ "${code}" = 0 ] || tail -40 "${log}" >&2
  verdict "$1" [ "${code}" = 0 ]
}
log_of() { # BINARY [FILTER]
  local key
  key="$(basename "$1").${2:-*}"
  echo "${WORK}/../${key//[^A-Za-z0-9_.]/_}.log"
}
# Number of passed tests of a run.
passed() { # BINARY [FILTER]
  sed -n 's/^\[  PASSED  \] \([0-9]*\) test.*/\1/p' "$(log_of "$@")"
}

# ctests TEXT BUILD_FOLDER OPTION...: the chosen tests of a build folder.
ctests() {
  local text="$1" build="$2" log="${WORK}/ctest.log"
  shift 2
  local code=0
  ctest --test-dir "${build}" --no-tests=error --output-on-failure "$@" >"${log}" 2>&1 || code=$?
  [ "${code}" = 0 ] || tail -40 "${log}" >&2
  verdict "${text}" [ "${code}" = 0 ]
}

have_oracle() { [ -x "${oracle}" ]; }

# Median of numbers on stdin, one a line.
median() { sort -g | awk '{ v[NR] = $1 } END { if (NR) print v[int((NR + 1) / 2)] }'; }

# Step times of a metrics file past the first steps.
step_times() { # FILE
  sed -n 's/.*"step_ms": *\([0-9.e+-]*\).*/\1/p' "$1" | tail -n +4
}
