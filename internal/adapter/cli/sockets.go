// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"fmt"
	"strconv"
	"time"

	"github.com/spf13/cobra"

	"github.com/jackfield/jackfield/internal/deliver/staging"
	"github.com/jackfield/jackfield/internal/report/status"
)

const socketsLong = `sockets lists the sockets of running containers: where each is in the container and on
the host, since when, how often it was bound again after the host had re-created it
(since jackfield-nri started), and how many peers are connected.

STATE is "bound" while the container has the host's present socket, "refusing" while
no process listens on that, "removed" while the host has none, "outdated" where the
host has another one, "awaited" before the first one, and "directory" for a directory
in which the application creates its sockets. PEERS is "?" where no process that this
command sees listens: it sees only its own network namespace, which in a pod is not that
of the host. -o wide adds the time and the container's ID.

POD is NAMESPACE/NAME, or NAME; CONTAINER is a container's name, or an ID or its
beginning. The exit status is 1 when the pod or container has no socket, and 3 when
jackfield-nri does not answer.`

func socketsCommand(env Env) *cobra.Command {
	q := statusQuery{env: env}
	cmd := &cobra.Command{
		Use:   "sockets [POD|CONTAINER]",
		Short: "List the sockets of running containers, with peers, age and rebinds",
		Long:  socketsLong,
		Args:  atMostOnePod,
		RunE: func(cmd *cobra.Command, args []string) error {
			return q.run(cmd, args, func(node *status.Node) (any, string, error) {
				if node.SocketsError != "" {
					return nil, "", fmt.Errorf("list sockets: jackfield-nri does not know them now: %s", node.SocketsError)
				}
				if err := status.FillPeers(node.Sockets); err != nil {
					q.message("%v", err)
				}
				if len(node.Sockets) == 0 {
					return q.noSockets()
				}
				return node.Sockets, socketsText(node.Sockets, q.out.format == formatWide, time.Now()), nil
			})
		},
	}
	q.addFlags(cmd, formatWide)
	return cmd
}

// noSockets is the answer where no container has a socket.
func (q *statusQuery) noSockets() (any, string, error) {
	none := []status.PlacedSocket{} // not null in JSON
	if !q.isWhole() {
		q.message("no sockets of running containers of %s", q.title())
		return none, "", errAnswerNo
	}
	if q.watch {
		return none, socketsText(none, q.out.format == formatWide, time.Now()), nil
	}
	if q.out.isText() {
		q.message("no sockets of running containers")
	}
	return none, "", nil
}

// socketsText is the table of sockets. STATE comes last but for HOST PATH, which has any width.
func socketsText(sockets []status.PlacedSocket, wide bool, now time.Time) string {
	var t table
	const stateColumn = 5
	heading := []string{"CONTAINER", "PATH", "AGE", "REBINDS", "PEERS", "STATE", "HOST PATH", "SINCE", "CONTAINER ID"}
	columns := len(heading)
	if !wide {
		columns -= 2
	}
	t.addRow(heading[:columns]...)
	t.colorCell(stateColumn, noColor)
	for i := range sockets {
		s := &sockets[i]
		age, since, peers := "", "", "?"
		if !s.Since.IsZero() {
			age, since = ageText(now.Sub(s.Since)), s.Since.Format(time.RFC3339)
		}
		if s.Peers != nil {
			peers = strconv.Itoa(*s.Peers)
		}
		rebinds := strconv.Itoa(s.Rebinds)
		if s.State == string(staging.SocketDirectory) {
			rebinds, peers = "", ""
		}
		row := []string{s.Title(), s.Path, age, rebinds, peers, s.State, s.HostPath, since, s.ContainerID}
		t.addRow(row[:columns]...)
		t.colorCell(stateColumn, stateColor(s.State))
	}
	return t.formatText("")
}

// ageText is a duration in its largest unit, as kubectl prints ages.
func ageText(d time.Duration) string {
	for _, unit := range []struct {
		size time.Duration
		name string
	}{{24 * time.Hour, "d"}, {time.Hour, "h"}, {time.Minute, "m"}} {
		if d >= 2*unit.size {
			return fmt.Sprintf("%d%s", d/unit.size, unit.name)
		}
	}
	return fmt.Sprintf("%ds", max(0, d/time.Second))
}
