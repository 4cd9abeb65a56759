#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Installs the Debian packages of the named groups that are missing.
#
#   tools/debian.sh build|test|bench ...
#
# As root or with a password-less sudo it runs apt-get; without, it prints the command to run and
# fails. Does nothing, quickly, when all are there. On a system without dpkg it only says so.
set -euo pipefail

build="g++ make cmake ninja-build python3-dev python3-venv libssl-dev libxxhash-dev libisal-dev
  libcrypt-dev libzstd-dev"
test="libgtest-dev clang libclang-rt-14-dev ccache"
bench="libbenchmark-dev redis-server"

if ! command -v dpkg-query >/dev/null; then
  echo "not a Debian system: install the equivalents of: $build $test $bench" >&2
  exit 0
fi

missing=()
for group in "$@"; do
  for package in ${!group}; do
    state=$(dpkg-query -W -f '${db:Status-Status}' "$package" 2>/dev/null || true)
    [ "$state" = installed ] || missing+=("$package")
  done
done
[ ${#missing[@]} -eq 0 ] && exit 0

as_root=()
if [ "$(id -u)" -ne 0 ]; then
  if ! command -v sudo >/dev/null || ! sudo -n true 2>/dev/null; then
    echo "these Debian packages are missing; run this, then make again:" >&2
    echo "  sudo apt-get install ${missing[*]}" >&2
    exit 1
  fi
  as_root=(sudo -n)
fi

echo "installing: ${missing[*]}"
export DEBIAN_FRONTEND=noninteractive
"${as_root[@]}" apt-get update -qq
"${as_root[@]}" env DEBIAN_FRONTEND=noninteractive \
  apt-get install -qq -y --no-install-recommends "${missing[@]}" >/dev/null
