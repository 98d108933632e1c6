#!/bin/sh
# dpkg passes what happens, rpm how many versions stay. An upgrade stops nothing here.
set -e
case ${1:-} in
remove | 0)
	if [ -z "${DPKG_ROOT:-}" ] && [ -d /run/systemd/system ]; then
		systemctl --quiet disable --now jackfield-nri.service
	fi
	;;
esac
