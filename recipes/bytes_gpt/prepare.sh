#!/bin/sh
# Makes the token files of this recipe from the manual pages of Debian's package perl-doc:
# one byte is one token; every twentieth file goes to the held-out text.
#   recipes/bytes_gpt/prepare.sh [FOLDER]        default: build/bytes_gpt
set -eu
export LC_ALL=C

out=${1:-build/bytes_gpt}
list=$(dpkg -L perl-doc 2>/dev/null | grep '\.pod$' | sort)
if [ -z "$list" ]; then
  echo "prepare.sh: no .pod files; install the package first: apt-get install perl-doc" >&2
  exit 1
fi
mkdir -p "$out"
# Written under other names first, so that an interrupted run leaves no half-made file behind.
printf '%s\n' "$list" | awk 'NR % 20 != 0' | xargs -d '\n' cat >"$out/train.bin.tmp"
printf '%s\n' "$list" | awk 'NR % 20 == 0' | xargs -d '\n' cat >"$out/heldout.bin.tmp"
mv "$out/train.bin.tmp" "$out/train.bin"
mv "$out/heldout.bin.tmp" "$out/heldout.bin"
wc -c "$out/train.bin" "$out/heldout.bin"
