// SPDX-License-Identifier: Apache-2.0

package attach

import (
	"cmp"
	"fmt"
	"path"

	"github.com/containerd/errdefs"

	"github.com/jackfield/jackfield/internal/base/diag"
	"github.com/jackfield/jackfield/internal/base/reserved"
	"github.com/jackfield/jackfield/internal/config"
	"github.com/jackfield/jackfield/internal/host/trust"
	"github.com/jackfield/jackfield/internal/port/record"
	"github.com/jackfield/jackfield/pkg/deviceinfo"
)

// NodeConfig returns the node's own configuration, which lists the locations that networks can choose. Without a file
// it is the default configuration.
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

// readRecord reads a record, whose paths must be locations that the node's configuration permits. It returns nil for a
// missing record. The error for an unusable record is errdefs.ErrInvalidArgument.
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

// checkRecord checks a record's paths as those of a network are checked: another program may have written the record.
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

// checkInfoDir checks that nobody but root can replace or fill a directory of device-info files. A missing one is no
// error.
func (t *Attachment) checkInfoDir(dir string) error {
	f, err := trust.OpenOwnDir(t.Root, dir)
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

// isInfoFileOf reports whether a device-info file belongs to an attachment by its name, <network>-<sandbox
// ID>_<interface>. A file without these names may be that of another pod.
func isInfoFileOf(key record.Key, name string) bool {
	_, ifName, ok := deviceinfo.MatchCNIFileName(name, key.ContainerID)
	return ok && ifName == key.Interface
}

// infoFileRule is the rule that isInfoFileOf checks.
func infoFileRule(key record.Key) string {
	return fmt.Sprintf("the name must end with -%s_%s, which are the container's ID and the interface",
		key.ContainerID, key.Interface)
}
