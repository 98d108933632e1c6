// SPDX-License-Identifier: Apache-2.0

package attach

import (
	"cmp"
	"context"
	"errors"
	"io"
	"path"
	"slices"
	"time"

	"github.com/containerd/errdefs"

	"github.com/jackfield/jackfield/internal/config"
	"github.com/jackfield/jackfield/internal/deliver/sockdir"
	"github.com/jackfield/jackfield/internal/host/hostfs"
	"github.com/jackfield/jackfield/internal/port/record"
	"github.com/jackfield/jackfield/internal/port/vswitch"
	"github.com/jackfield/jackfield/internal/port/vswitchdriver"
	"github.com/jackfield/jackfield/pkg/deviceinfo"
)

// Sweeper removes the attachments of removed sandboxes: record, port, addresses, directory, claim
// and device-info. Runtimes do not always run DEL; Multus does not if its own record of the sandbox
// is lost. The caller must be certain that the sandbox was removed, because a sweep cuts off a
// living sandbox.
type Sweeper struct {
	Root    hostfs.Root
	Config  *config.Config // of the node
	Log     io.Writer
	Program string
	// Release runs the IPAM plugin in a record.
	Release func(ctx context.Context, key record.Key, recorded *record.IPAM) error
}

// plainKeys is the Source of attachments that have no configuration: keys stand for themselves.
type plainKeys struct{}

func (plainKeys) Name(key string) string { return key }
func (plainKeys) Place(string) string    { return "" }
func (plainKeys) Value(string) string    { return "nothing" }

// attachment returns the attachment of a key in the node's own directories.
func (s *Sweeper) attachment(ctx context.Context, key record.Key) *Attachment {
	t := &Attachment{Key: key, Root: s.Root, Log: s.Log, Program: s.Program, Source: plainKeys{},
		ConfigFile: config.DefaultPath,
		StateDir:   cmp.Or(StateDirOf(s.Root, s.Config, key), DefaultStateDir),
		ClaimsDir:  sockdir.ClaimsDir(s.Config.StateDir), SocketDir: DefaultSocketDir, InfoDir: s.Config.DeviceInfo.CNIDir}
	if len(s.Config.Sockets.Roots) > 0 {
		t.SocketDir = s.Config.Sockets.Roots[0]
	}
	t.Release = func(key record.Key, recorded *record.IPAM, _ bool) error {
		if recorded == nil || len(recorded.Config) == 0 {
			return nil
		}
		return s.Release(ctx, key, recorded)
	}
	return t
}

// Recorded lists the recorded attachments of the CNI plugin that match. The record is nil if it is
// unreadable.
func (s *Sweeper) Recorded(matches func(record.Key, *record.Record) bool) ([]record.Key, error) {
	return s.listRecorded(func(key record.Key, r *record.Record) bool {
		return (r == nil || r.Adapter == "") && matches(key, r)
	})
}

// listRecorded lists the recorded attachments of all adapters that match.
func (s *Sweeper) listRecorded(matches func(record.Key, *record.Record) bool) (matching []record.Key, err error) {
	for _, dir := range StateDirs(s.Config) {
		keys, err := record.Select(s.Root, dir, matches)
		if err != nil {
			return nil, err
		}
		matching = append(matching, keys...)
	}
	return matching, nil
}

// Abandoned lists the recorded attachments of sandboxes that the runtime does not list. An ADD runs
// before the runtime lists the sandbox, so the network namespace must be gone as well, and the
// record must be older than before. An attachment whose record has no namespace is not abandoned.
func (s *Sweeper) Abandoned(isListed func(sandboxID string) bool, before time.Time) ([]record.Key, error) {
	return s.Recorded(func(key record.Key, r *record.Record) bool {
		if r == nil || isListed(key.ContainerID) {
			return false
		}
		if !errdefs.IsNotFound(r.StatNetns(s.Root)) {
			return false
		}
		st, err := s.Root.Lstat(path.Join(StateDirOf(s.Root, s.Config, key), key.FileName()))
		return err == nil && time.Unix(st.Mtim.Unix()).Before(before)
	})
}

// AbandonedByPodman lists the attachments of Podman whose network namespace is gone, or whose teardown failed.
func (s *Sweeper) AbandonedByPodman() ([]record.Key, error) {
	return s.listRecorded(func(key record.Key, r *record.Record) bool {
		if r == nil || r.Adapter == "" || r.Leftover {
			return r != nil && r.Leftover
		}
		return errdefs.IsNotFound(r.StatNetns(s.Root))
	})
}

// UnrecordedPort is a port with Jackfield's mark on a vswitch that belongs to no recorded
// attachment.
type UnrecordedPort struct {
	Switch string
	vswitch.Port
	driver vswitch.Driver
}

// Remove removes the port.
func (p *UnrecordedPort) Remove(ctx context.Context) error { return p.driver.Remove(ctx, p.Owner) }

// UnrecordedPorts lists the ports of the node's vswitches that have no record. An ADD records a
// port before it creates the port, so UnrecordedPorts lists the ports before it reads the records.
func (s *Sweeper) UnrecordedPorts(ctx context.Context) (ports []UnrecordedPort, err error) {
	var errs []error
	for _, v := range s.Config.Vswitches {
		driver, err := vswitchdriver.Open(s.Root, v)
		if err != nil {
			errs = append(errs, err)
			continue
		}
		listed, err := driver.List(ctx)
		errs = append(errs, err)
		for _, p := range listed {
			ports = append(ports, UnrecordedPort{v.Name, p, driver})
		}
	}
	_, err = s.listRecorded(func(key record.Key, _ *record.Record) bool {
		ports = slices.DeleteFunc(ports, func(p UnrecordedPort) bool {
			return p.Owner.ContainerID == "" || p.Owner.ContainerID == key.ContainerID &&
				p.Owner.Interface == key.Interface
		})
		return false
	})
	if err != nil {
		return nil, err // the records are unknown, so every port may have one
	}
	return ports, errors.Join(errs...)
}

// Remove removes a recorded attachment. The record stays until everything else is removed.
func (s *Sweeper) Remove(ctx context.Context, key record.Key) error {
	m, err := s.attachment(ctx, key).newRemoval()
	defer m.close()
	if m.st == nil || err != nil {
		return err
	}
	if r, err := m.st.Read(key); err == nil && r != nil {
		m.Adapter = r.Adapter // the holder of the claim
	}
	return m.removeRecorded(ctx, key)
}

// RemoveSandbox removes everything of a removed sandbox. Attachments whose record was lost are
// found by their claims and device-info files.
func (s *Sweeper) RemoveSandbox(ctx context.Context, sandboxID string) error {
	keys, err := s.Recorded(func(key record.Key, _ *record.Record) bool { return key.ContainerID == sandboxID })
	if err != nil {
		return err
	}
	var errs []error
	for _, key := range keys {
		errs = append(errs, s.Remove(ctx, key))
	}
	if err := JoinErrors(errs...); err != nil {
		return err // the remaining records are retried
	}
	_, err = deviceinfo.CNIDir{Root: s.Root.Dir(), Dir: s.Config.DeviceInfo.CNIDir}.RemoveSandbox(sandboxID)
	t := s.attachment(ctx, record.Key{ContainerID: sandboxID})
	lost, removed := sockdir.New(s.Root, t.ClaimsDir).RemoveAll(t.holder(sandboxID))
	return JoinErrors(ioError("claimsDir", removed), ioError("claimsDir", lost), ioError("device-info", err))
}
