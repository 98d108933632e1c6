#!/bin/sh
# Nothing is started at the first installation. An upgrade restarts a running plugin.
set -e
if [ -z "${DPKG_ROOT:-}" ] && [ -d /run/systemd/system ]; then
	systemctl daemon-reload
	systemctl try-restart jackfield-nri.service
fi
