// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"testing"
	"time"

	"github.com/jackfield/jackfield/internal/report/status"
)

func TestSocketsText(t *testing.T) {
	now := time.Unix(1e9, 0).UTC()
	one := 1
	sockets := []status.PlacedSocket{
		{Namespace: "telco", Pod: "fwd-0", Container: "app", ContainerID: "77e1", Path: "/var/run/jackfield/net/net1/vhost.sock", HostPath: "/run/vsw/east/vhost.sock",
			State: "bound", Since: now.Add(-90 * time.Minute), Rebinds: 3, Peers: &one},
		{Namespace: "telco", Pod: "fwd-0", Container: "app", ContainerID: "77e1", Path: "/var/run/jackfield/net/net2/memif.sock", HostPath: "/run/vsw/west/memif.sock", State: "awaited"},
		{ContainerID: "8f20", Path: "/var/run/jackfield/net/net3", HostPath: "/run/vsw/x\x1b[31m", State: "directory", Since: now.Add(-50 * time.Hour)},
	}
	narrow := `CONTAINER        PATH                                    AGE  REBINDS  PEERS  STATE      HOST PATH
telco/fwd-0/app  /var/run/jackfield/net/net1/vhost.sock  90m  3        1      bound      /run/vsw/east/vhost.sock
telco/fwd-0/app  /var/run/jackfield/net/net2/memif.sock  -    0        ?      awaited    /run/vsw/west/memif.sock
8f20             /var/run/jackfield/net/net3             2d   -        -      directory  /run/vsw/x\x1b[31m
`
	if got := removeColors(socketsText(sockets, false, now)); got != narrow {
		t.Errorf("found\n%s\nwant\n%s", got, narrow)
	}
	const wide = `CONTAINER        PATH                                    AGE  REBINDS  PEERS  STATE  HOST PATH                 SINCE                 CONTAINER ID
telco/fwd-0/app  /var/run/jackfield/net/net1/vhost.sock  90m  3        1      bound  /run/vsw/east/vhost.sock  2001-09-09T00:16:40Z  77e1
`
	if got := removeColors(socketsText(sockets[:1], true, now)); got != wide {
		t.Errorf("found\n%s\nwant\n%s", got, wide)
	}
}
