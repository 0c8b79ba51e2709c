#!/bin/sh
# Holds an installation against the binary interface: guard.py over its libraries, plugins and programs.
#   tests/abi/installed.sh BUILD-DIRECTORY
set -eu
source=$(cd "$(dirname "$0")/../.." && pwd)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
DESTDIR=$work meson install -C "$1" --no-rebuild >"$work/install.log" 2>&1 ||
    { tail -n 20 "$work/install.log" >&2; exit 1; }

# Every ELF file that is there, sorted by what it must promise; paths have no spaces.
library=
plugins=
programs=
for file in $(find "$work" -type f | sort); do
    [ "$(head -c 4 "$file" | tail -c 3)" = ELF ] || continue
    case $file in
    */libattn.so.*) library=$file ;;
    */libattn-*.so) plugins="$plugins $file" ;;
    *) programs="$programs $file" ;;
    esac
done
if [ -z "$library" ] || [ -z "$plugins" ] || [ -z "$programs" ]; then
    echo "installed.sh: the installation lacks a library, a plugin or a program" >&2
    exit 1
fi
headers=$(dirname "$(find "$work" -name version.h)")
# shellcheck disable=SC2086 # lists of words
"$source/tests/abi/guard.py" --installed "$headers" "$source/core/libattn.map" "$library" $plugins -- $programs
