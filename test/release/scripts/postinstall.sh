#!/bin/sh
# Nothing is started at the first installation. An upgrade restarts a running plugin.
set -e
if [ -z "${DPKG_ROOT:-}" ] && [ -d /run/systemd/system ]; then
	systemctl daemon-reload
	systemctl try-restart jackfield-nri.service
fi
# The drop-in for Podman would replace the hooks_dir of other files, so an administrator installs it.
if [ -z "${DPKG_ROOT:-}" ] && command -v podman > /dev/null && ! grep -qs podman-hooks.d /etc/containers/containers.conf /etc/containers/containers.conf.d/*.conf; then
	echo "jackfield: Podman does not run jackfield-hook yet: copy /usr/share/doc/jackfield/containers.conf to /etc/containers/containers.conf.d/50-jackfield.conf"
fi
