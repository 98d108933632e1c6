#!/bin/sh
# The first program in the machine's root file system, run by busybox's init. It runs the program of the share.
export PATH=/usr/sbin:/usr/bin LC_ALL=C
mount -t proc proc /proc
mount -t sysfs sysfs /sys
mkdir -p /dev/pts /dev/shm /dev/hugepages
mount -t devpts devpts /dev/pts
mount -t tmpfs tmpfs /dev/shm
mount -t tmpfs -o mode=755 tmpfs /run
mount -t tmpfs tmpfs /tmp
mount -t cgroup2 cgroup2 /sys/fs/cgroup
mount -t securityfs securityfs /sys/kernel/security
mount -t bpf bpf /sys/fs/bpf
mount -t hugetlbfs -o mode=1777 hugetlbfs /dev/hugepages
mount --make-rshared /
ln -s /proc/self/fd /dev/fd
hostname vm
ip link set lo up
modprobe 9pnet_virtio
mkdir -p /share /run/t
mount -t 9p -o trans=virtio,msize=512000,cache=loose share /share
touch /share/started
cd /
sh /share/run
echo $? >/share/status
sync
poweroff -f
