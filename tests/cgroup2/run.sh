#!/usr/bin/env bash
# Runs tests on a kernel of their own, whose control groups are of version 2 with all controllers, as systemd sets them up:
# that of User-mode Linux, a kernel that is a program (`apt-get install user-mode-linux`). It sees the files of this
# machine; what is in memory (/tmp, /run, /dev) is its own. It needs no rights beside those that its files need.
#
#     tests/cgroup2/run.sh [TEST FILE …]
set -euo pipefail
cd "$(dirname "$0")/../.."
command -v linux.uml >/dev/null || { echo "linux.uml is missing: apt-get install user-mode-linux" >&2; exit 2; }
[ "$(id -u)" = 0 ] || { echo "only root can lend its files to a kernel whose root is to run tests" >&2; exit 2; }
mkdir -p build
log=build/cgroup2.log
tests="${*:-tests/unit/job_kinds/test_cgroup2.py}"
timeout 1500 linux.uml mem=3G root=/dev/root rootfstype=hostfs rootflags=/ rw init="$PWD/tests/cgroup2/init.sh" \
    con=null con0=null,fd:1 PROJECT="$PWD" TESTS="${tests// /,}" >"$log" 2>&1 </dev/null || true
grep -aE "^(controllers|kernel): |[0-9] (passed|failed)|^FAILED|^ERROR" "$log" || true
grep -aq "^all tests passed" "$log" || { echo "not all is well: $log" >&2; exit 1; }
