#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# `make lint`: the quick checks first, clang-tidy last. Needs what `make setup` installs. Stops at
# the first check that fails.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
bin=.venv/bin
jobs=${JOBS:-2}

echo "lint: clang-format"
git ls-files -z --cached --others --exclude-standard -- '*.cc' '*.h' |
  xargs -0 -r "$bin/clang-format" --dry-run -Werror

echo "lint: ruff"
"$bin/ruff" check -q .
"$bin/ruff" format -q --check .

echo "lint: mypy"
"$bin/mypy" --no-error-summary

python3 tools/tidy.py

# CMake runs clang-tidy beside the compiler, so only what changed is looked at again.
echo "lint: clang-tidy and lone headers"
mkdir -p build
if [ .clang-tidy -nt build/tidy/.configured ]; then rm -rf build/tidy; fi
cmake --preset tidy -DAEROKV_CLANG_TIDY="$PWD/$bin/clang-tidy" >build/tidy.log ||
  { cat build/tidy.log; exit 1; }
touch build/tidy/.configured
cmake --build --preset tidy -j "$jobs" -- --quiet
echo "lint: no findings"
