#!/usr/bin/env bash
# The first process of the kernel that run.sh starts: makes what tests need, runs them, and switches it off.
export PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin HOME=/root
mount -t proc proc /proc
mount -t sysfs sysfs /sys
for place in /tmp /var/tmp /run; do mount -t tmpfs -o mode=1777 tmpfs "$place"; done
chmod 755 /run
mount -t devtmpfs dev /dev
mkdir -p /dev/pts /dev/shm /dev/mqueue
mount -t devpts devpts /dev/pts
mount -t tmpfs -o mode=1777 tmpfs /dev/shm
mount -t mqueue mqueue /dev/mqueue
mount -t cgroup2 cgroup2 /sys/fs/cgroup
ip link set lo up

# As a service with delegation: its processes live in a group beside those that it makes.
echo "+memory +pids +cpu" >/sys/fs/cgroup/cgroup.subtree_control
mkdir -p /sys/fs/cgroup/service/main
echo $$ >/sys/fs/cgroup/service/main/cgroup.procs
echo "+memory +pids +cpu" >/sys/fs/cgroup/service/cgroup.subtree_control
echo "controllers: $(cat /sys/fs/cgroup/service/cgroup.controllers)"
echo "kernel: $(uname -r)"

cd "$PROJECT" || exit 1
# shellcheck disable=SC2086 # several files
.venv/bin/python -m pytest -p no:cacheprovider -q --color=no ${TESTS//,/ } && echo "all tests passed"
sync
echo o >/proc/sysrq-trigger
sleep 60
