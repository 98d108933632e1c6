// SPDX-License-Identifier: Apache-2.0

package attach

import (
	"cmp"
	"fmt"
	"path"

	"github.com/containerd/errdefs"

	"github.com/jackfield/jackfield/internal/base/diag"
	"github.com/jackfield/jackfield/internal/base/name"
	"github.com/jackfield/jackfield/internal/base/reserved"
	"github.com/jackfield/jackfield/internal/config"
	"github.com/jackfield/jackfield/internal/host/hostfs"
	"github.com/jackfield/jackfield/internal/host/trust"
	"github.com/jackfield/jackfield/internal/port/record"
	"github.com/jackfield/jackfield/pkg/deviceinfo"
)

// The author of a network chooses the paths in it, and another program can write a record. Both are
// therefore restricted to locations that the node's administrator lists.
//
// NodeConfig returns the node's own configuration, which lists these locations. If the file is
// missing, it returns the default configuration.
func (t *Attachment) NodeConfig() (*config.Config, error) {
	if t.node != nil {
		return t.node, nil
	}
	cfg, err := config.LoadOrCopy(t.Root, cmp.Or(t.NodeConfigFile, config.DefaultPath))
	switch {
	case errdefs.IsNotFound(err):
		cfg = config.Default()
	case err != nil:
		return nil, Fail(codeConfig, "the node's configuration is invalid", "%v", err)
	}
	t.node = cfg
	return cfg, nil
}

// readRecord reads a record and checks that its paths are permitted locations. It returns nil for a
// missing record, and errdefs.ErrInvalidArgument for an unusable one.
func (t *Attachment) readRecord(st *record.Store, key record.Key) (*record.Record, error) {
	r, err := st.Read(key)
	if err != nil || r == nil {
		return nil, err
	}
	if err := t.checkRecord(r); err != nil {
		return nil, fmt.Errorf("read record %q: %w", path.Join(t.StateDir, key.FileName()), err)
	}
	return r, nil
}

// checkRecord applies the checks for a network's paths to a record, which another program may have
// written. Paths that the attachment itself uses, and the built-in defaults, are permitted.
func (t *Attachment) checkRecord(r *record.Record) error {
	for _, l := range []struct{ key, value, own, preset string }{
		{"deviceInfoDir", r.InfoDir, t.InfoDir, deviceinfo.DefaultCNIDir},
		{"socketDir", r.SocketDir, t.SocketDir, DefaultSocketDir},
		{"claimsDir", r.ClaimsDir, t.ClaimsDir, DefaultClaimsDir},
		{"configFile", r.ConfigFile, t.ConfigFile, config.DefaultPath},
	} {
		if l.value == "" || l.value == l.own || reserved.WithoutVar(l.value) == reserved.WithoutVar(l.preset) {
			continue
		}
		cfg, err := t.NodeConfig()
		if err != nil {
			return err
		}
		if !cfg.AllowsLocation(l.key, l.value) {
			return invalidRecord(l.key, l.value, "must be a location that the node's configuration lists in "+
				config.LocationList(l.key))
		}
	}
	switch {
	case r.Directory != "" && r.Directory != DirName(r.Key):
		return invalidRecord("directory", r.Directory, "must be the attachment's directory, "+DirName(r.Key))
	case r.Claimed != "" && r.Claimed != path.Join(t.Root.Canonical(r.SocketDir), r.Directory):
		return invalidRecord("claimed", r.Claimed, "must be the canonical path of the attachment's directory")
	case !isInfoFileOf(r.Key, r.InfoFile):
		return invalidRecord("deviceInfoFile", r.InfoFile, infoFileRule(r.Key))
	}
	return nil
}

// checkInfoDir checks that only root can replace a directory of device-info files or create files
// in it. A missing directory is permitted.
func checkInfoDir(root hostfs.Root, dir string) error {
	f, err := trust.OpenOwnDir(root, dir)
	switch {
	case errdefs.IsNotFound(err):
		return nil
	case err != nil:
		return dirError("deviceInfoDir", err)
	}
	return f.Close()
}

func invalidRecord(key, value, rule string) error {
	return fmt.Errorf("%s: invalid value %s: %s: %w", key, diag.Quote(value), rule, errdefs.ErrInvalidArgument)
}

// isInfoFileOf reports whether the name of a device-info file has the form <network>-<sandbox
// ID>_<interface> with the attachment's sandbox and interface. Any other file can belong to another
// pod.
func isInfoFileOf(key record.Key, file string) bool {
	_, ifName, ok := name.MatchInfoFile(file, key.ContainerID)
	return ok && ifName == key.Interface
}

// infoFileRule returns the rule that isInfoFileOf checks, for errors.
func infoFileRule(key record.Key) string {
	return fmt.Sprintf("the name must end with -%s_%s, which are the container's ID and the interface",
		key.ContainerID, key.Interface)
}
