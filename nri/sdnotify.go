// SPDX-License-Identifier: Apache-2.0

package nri

import (
	"fmt"
	"net"
)

// notifySocketEnv names the socket on which systemd waits for a unit of Type=notify.
const notifySocketEnv = "NOTIFY_SOCKET"

// notifyReady sends READY=1 to systemd, sd_notify(3). Without a socket it does nothing.
func notifyReady(socket string) error {
	if socket == "" {
		return nil
	}
	conn, err := net.DialUnix("unixgram", nil, &net.UnixAddr{Name: socket, Net: "unixgram"})
	if err != nil {
		return fmt.Errorf("notify systemd: %w", err)
	}
	defer conn.Close()
	if _, err := conn.Write([]byte("READY=1")); err != nil {
		return fmt.Errorf("notify systemd: %w", err)
	}
	return nil
}
