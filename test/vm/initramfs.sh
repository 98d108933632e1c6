#!/bin/busybox sh
# The first program in the initial file system. It mounts the root file system.
/bin/busybox mount -t devtmpfs devtmpfs /dev
for module in $(/bin/busybox cat /modules/order); do
	/bin/busybox insmod /modules/"$module"
done
/bin/busybox mount -t ext4 -o noatime /dev/vda /root
/bin/busybox mount --move /dev /root/dev
exec /bin/busybox switch_root /root /usr/bin/busybox init
