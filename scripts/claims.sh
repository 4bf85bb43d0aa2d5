#!/usr/bin/env bash
# Measures again what an issue promised and writes the figures to docs/claims/ISSUE.md.
#
#   scripts/claims.sh ISSUE [CHECK...]   runs all checks (or these) and rewrites their sections;
#                                        fails when a line does not hold
#   scripts/claims.sh ISSUE --fast [CHECK...]   runs the checks under a minute; fails when a line does
#                                        not hold or differs in an exact figure from the committed file
#                                        (verdicts on times are printed, but do not count)
#   scripts/claims.sh ISSUE --list       names the checks
#
# The checks are tests/claims/ISSUE/*.sh, described in tests/claims/README.md. HYPER_BUILD is the
# build folder whose binaries run (default: build/ci), HYPER_DEPS where scripts/setup.sh installs.
set -euo pipefail
cd "$(dirname "$0")/.."

issue="${1:?usage: scripts/claims.sh ISSUE [--fast | --list | CHECK...]}"
shift
readonly folder="tests/claims/${issue}"
readonly document="docs/claims/${issue}.md"
[ -d "${folder}" ] || { echo "claims.sh: no folder ${folder}" >&2; exit 2; }

fast=
if [ "${1:-}" = --fast ]; then fast=1; shift; fi
if [ "${1:-}" = --list ]; then
  for script in "${folder}"/*.sh; do
    printf '%-20s %s\n' "$(basename "${script}" .sh | cut -d- -f2)" \
      "$(sed -n 's/^# speed: //p' "${script}")"
  done
  exit 0
fi

HYPER_SOURCE="$(pwd)"
HYPER_BUILD="$(realpath -m "${HYPER_BUILD:-build/ci}")"
HYPER_DEPS="${HYPER_DEPS:-${XDG_CACHE_HOME:-${HOME}/.cache}/hyper}"
export HYPER_SOURCE HYPER_BUILD HYPER_DEPS
[ -x "${HYPER_BUILD}/bin/hyperc" ] ||
  { echo "claims.sh: ${HYPER_BUILD} holds no build; set HYPER_BUILD" >&2; exit 2; }
work="$(mktemp -d)"
trap 'rm -rf "${work}"' EXIT

# The lines of one section of a document.
section() { # FILE NAME
  [ -e "$1" ] || return 0
  awk -v name="## $2" '/^## / { inside = $0 == name } inside' "$1"
}

# What must be the same on every machine; verdicts on times are not.
exact() { grep -E '^(- (pass|FAIL) |\| exact \|)' | grep -v '^- [a-zA-Z]* (timing) ' || true; }

# Output lines of a check -> a section of the document.
render() { # SCRIPT NAME OUTPUT
  printf '## %s\n\n' "$2"
  sed -n 's/^#> */> /p' "$1"
  local verdict=holds
  grep -qE '^FAIL(-timing)? ' "$3" && verdict='does not hold'
  [ "${verdict}" = holds ] && grep -q '^not-run ' "$3" && verdict='holds in part'
  grep -qE '^(pass|FAIL) ' "$3" || verdict='not run'
  printf '\n**%s** (%s, %s cores)\n\n' "${verdict}" \
    "$(sed -n 's/^model name[^:]*: //p' /proc/cpuinfo | head -1)" "$(nproc)"
  sed -nE -e 's/^(pass|FAIL|not-run|note) (.*)/- \1 \2/p' \
    -e 's/^(pass|FAIL)-timing (.*)/- \1 (timing) \2/p' "$3"
  # Counts of one name add up; of measurements the worst is kept: the largest, or the smallest where
  # larger is better.
  awk '
    $1 == "figure" { exact[$2] += $3; seen[$2] = 1 }
    $1 == "measured-min" {
      kind[$2] = "measured"
      if (!($2 in value) || $3 + 0 < value[$2] + 0) value[$2] = $3
    }
    $1 == "measured" || $1 == "timing" {
      kind[$2] = $1
      if (!($2 in value) || $3 + 0 > value[$2] + 0) value[$2] = $3
    }
    END {
      for (name in exact) printf "| exact | %s | %d |\n", name, exact[name]
      for (name in value) printf "| %s | %s | %s |\n", kind[name], name, value[name]
    }' "$3" | LC_ALL=C sort >"${work}/rows"
  if [ -s "${work}/rows" ]; then
    printf '\n| kind | figure | value |\n|---|---|---|\n'
    cat "${work}/rows"
  fi
  printf '\n'
}

failures=0
scripts=("${folder}"/*.sh)
names=()
for script in "${scripts[@]}"; do
  base="$(basename "${script}" .sh)"
  names+=("${base#*-}")
done
for wanted in "$@"; do
  [[ " ${names[*]} " == *" ${wanted} "* ]] ||
    { echo "claims.sh: no check '${wanted}'; there are: ${names[*]}" >&2; exit 2; }
done

for i in "${!scripts[@]}"; do
  script="${scripts[i]}"
  name="${names[i]}"
  if [ $# -gt 0 ] && [[ " $* " != *" ${name} "* ]]; then continue; fi
  if [ -n "${fast}" ] && ! grep -q '^# speed: fast' "${script}"; then continue; fi
  printf '[claims] %s\n' "${name}" >&2
  mkdir -p "${work}/${name}"
  code=0
  WORK="${work}/${name}" bash "${script}" >"${work}/${name}.out" 2>"${work}/${name}.err" || code=$?
  if [ "${code}" != 0 ]; then
    echo "FAIL the check itself ended with exit code ${code}" >>"${work}/${name}.out"
    tail -5 "${work}/${name}.err" >&2
  fi
  render "${script}" "${name}" "${work}/${name}.out" >"${work}/${name}.md"
  sed -n 's/^- FAIL /  FAIL /p' "${work}/${name}.md" >&2
  if [ -n "${fast}" ]; then
    section "${document}" "${name}" | exact >"${work}/committed"
    exact <"${work}/${name}.md" >"${work}/now"
    diff -u --label "${document}" --label now "${work}/committed" "${work}/now" >&2 ||
      failures=$((failures + 1))
  fi
  # Other work on the machine can make any time too long: such a verdict counts in a run by hand only.
  counted='^- FAIL '
  if [ -n "${fast}" ]; then counted='^- FAIL [^(]'; fi
  if grep -q "${counted}" "${work}/${name}.md"; then failures=$((failures + 1)); fi
done

if [ -z "${fast}" ]; then
  {
    printf '# Claims of %s\n\n' "${issue}"
    printf 'Written by scripts/claims.sh %s; do not edit. Rows marked "exact" and the verdicts are\n' \
      "${issue}"
    printf 'the same on every machine; "measured" and "timing" rows are those of one run on the named one.\n\n'
    for name in "${names[@]}"; do
      if [ -e "${work}/${name}.md" ]; then cat "${work}/${name}.md"
      else section "${document}" "${name}"; fi
    done
  } >"${work}/document.md"
  mkdir -p "$(dirname "${document}")"
  cp "${work}/document.md" "${document}"
  printf '[claims] wrote %s\n' "${document}" >&2
fi
[ "${failures}" = 0 ]
