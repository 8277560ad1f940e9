#!/usr/bin/env bash
# The kernel and the extension under AddressSanitizer and UndefinedBehaviorSanitizer: first the kernel's own tests in C,
# with every instruction set that is here and without vectors, then the extension's tests in Python.
# Usage: tests/policy/sanitize.sh [python]
set -euo pipefail
cd "$(dirname "$0")/../.."
python=${1:-.venv/bin/python}
cc=${CC:-cc}
native=src/potstill/policy/native
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
strict="-Wall -Wextra -Werror -g -O2 -fno-omit-frame-pointer -fsanitize=address,undefined -fno-sanitize-recover=all"
export ASAN_OPTIONS=detect_leaks=0 UBSAN_OPTIONS=print_stacktrace=1

for plain in "" -DPOTSTILL_PLAIN; do
  # shellcheck disable=SC2086
  "$cc" -std=c99 -Wpedantic $strict $plain -I$native tests/policy/kernel_test.c -lm -o "$scratch/kernel_test"
  ASAN_OPTIONS=detect_leaks=1 "$scratch/kernel_test"
done

cp -r src "$scratch/src"
rm -f "$scratch"/src/potstill/policy/_native.*.so
suffix=$("$python" -c 'import sysconfig; print(sysconfig.get_config_var("EXT_SUFFIX"))')
include=$("$python" -c 'import sysconfig; print(sysconfig.get_path("include"))')
# shellcheck disable=SC2086
"$cc" -std=c11 $strict -Wno-missing-field-initializers -fPIC -shared -I"$include" \
  $native/{module,batch,build,request,kernel}.c -lm -o "$scratch/src/potstill/policy/_native$suffix"

# The sanitizers' libraries first, as the interpreter was built without them; malloc for all, so that they see every block.
preload=$("$cc" -print-file-name=libasan.so):$("$cc" -print-file-name=libubsan.so)
export PYTHONPATH="$scratch/src" PYTHONMALLOC=malloc POTSTILL_RUNTIME=native
LD_PRELOAD=$preload "$python" -c \
  "from potstill.policy import _native; assert _native.__file__.startswith('$scratch'), _native.__file__"
LD_PRELOAD=$preload "$python" -m pytest -q -p no:cacheprovider \
  tests/policy/test_native.py tests/policy/test_native_refusals.py tests/policy/test_native_kernel.py tests/policy/test_native_numbers.py
