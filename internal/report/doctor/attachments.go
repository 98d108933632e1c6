// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"context"
	"io"
	"slices"
	"time"

	"github.com/jackfield/jackfield/internal/base/diag"
	"github.com/jackfield/jackfield/internal/port/attach"
	"github.com/jackfield/jackfield/internal/port/record"
)

// sweepTimeout bounds the work on attachments of removed sandboxes.
const sweepTimeout = 25 * time.Second

// checkAttachments reports leftovers of attachments of removed sandboxes, and returns their number. Each can have a
// record, a port, an address, a directory with its claim, and a device-info file. listed are the sandboxes that the
// runtime lists. Without a runtime listed is nil, and only leftovers of Podman are found.
func (d *doctor) checkAttachments(listed []string, before time.Time) int {
	ctx, cancel := context.WithTimeout(context.Background(), sweepTimeout)
	defer cancel()
	s := &attach.Sweeper{Root: d.Host, Config: d.cfg, Log: io.Discard, Program: "jackfield doctor",
		Release: d.ReleaseAddresses}
	keys, err := s.AbandonedByPodman()
	if err == nil && listed != nil {
		var others []record.Key
		others, err = s.Abandoned(func(id string) bool { return slices.Contains(listed, id) }, before)
		keys = append(keys, others...)
	}
	if err != nil {
		d.report("orphans", Unknown, runAsRoot, "attachments of removed sandboxes are not known: %v", err)
		return 1
	}
	found := len(keys)
	if found > 0 {
		f := d.report("orphans", Warning, fixRemoves, "%s of removed sandboxes, such as interface %s of %s in network %s: record, port, address, "+
			"directory and device-info", diag.Count(found, "attachment"), keys[0].Interface, diag.Excerpt(keys[0].ContainerID, 12), keys[0].Network)
		f.Fixed = d.Fix && removeAll(keys, func(k record.Key) error { return s.Remove(ctx, k) })
	}
	if listed != nil {
		return found // jackfield-nri removes ports without a record
	}
	ports, _ := s.UnrecordedPorts(ctx) // the check of the vswitches reports one that is down
	if len(ports) > 0 {
		f := d.report("orphans", Warning, fixRemoves, "%s without a record, such as port %s of vswitch %s", diag.Count(len(ports), "port"),
			ports[0].Name, ports[0].Switch)
		f.Fixed = d.Fix && removeAll(ports, func(p attach.UnrecordedPort) error { return p.Remove(ctx) })
	}
	return found + len(ports)
}

// removeAll removes each item, and reports whether all are removed.
func removeAll[T any](items []T, remove func(T) error) bool {
	all := true
	for _, item := range items {
		all = remove(item) == nil && all
	}
	return all
}
