// SPDX-License-Identifier: Apache-2.0

package attachment

import (
	"fmt"
	"path"
	"strconv"
	"strings"
	"unicode"

	"github.com/containerd/errdefs"
	"golang.org/x/sys/unix"

	"github.com/jackfield/jackfield/internal/base/diag"
	"github.com/jackfield/jackfield/internal/base/jsontree"
	"github.com/jackfield/jackfield/internal/base/name"
	"github.com/jackfield/jackfield/internal/host/hostfs"
)

const (
	maxCache     = 1 << 20 // bytes of a file in Multus' cache
	maxDelegates = 256     // networks of one sandbox
	maxRecords   = 1 << 16 // names in Multus' cache
	maxName      = 512     // bytes of a network's name, <namespace>/<name>
)

// masterIfName is the interface of the pod's first network. The runtime chooses the name, and all
// runtimes choose this one.
const masterIfName = "eth0"

// delegate is one network in Multus' scratch file, in the order of attachment (multus-cni,
// pkg/types: DelegateNetConf).
type delegate struct {
	Name     string `json:"Name"`          // <namespace>/<nad>, or the name of a CNI configuration without a NAD
	IfName   string `json:"ifnameRequest"` // if "", net<N>, and eth0 for the first
	DeviceID string `json:"deviceID"`
	// Multus sets Resource together with a device ID that the kubelet allocated. A device ID
	// without Resource comes from the pod's networks annotation.
	Resource string   `json:"resourceName"`
	Conf     confName `json:"Conf"`
	ConfList confName `json:"ConfList"`
}

// confName is the name of a CNI configuration.
type confName struct {
	Name string `json:"name"`
}

// multusRecord is Multus' record of the sandbox.
type multusRecord struct {
	delegates []delegate
	file      string // Multus' scratch file; "" without a directory or a sandbox
	missing   bool   // the file does not exist
	err       error  // why the file is unreadable
}

// describeGap returns the reason why the record lacks a network: there is no record, it is
// unreadable, or it lists only other networks.
func (r *multusRecord) describeGap(network string) string {
	switch {
	case r.file == "":
		return "there is no record of Multus to read"
	case r.missing:
		return "there is no record " + r.file
	case r.err != nil:
		return ignored(r.err)
	}
	return r.file + " does not list " + network
}

// readMultusRecord reads /var/lib/cni/multus/<sandboxID>. For a missing file it returns no
// delegates.
func (s *Search) readMultusRecord() (r multusRecord) {
	if s.opts.MultusDir == "" || s.q.SandboxID == "" {
		return r
	}
	r.file = path.Join(s.opts.MultusDir, s.q.SandboxID)
	data, err := readCache(s.host, s.opts.MultusDir, s.q.SandboxID)
	if r.missing = errdefs.IsNotFound(err); r.missing {
		return r
	}
	if err == nil {
		r.delegates, err = parseDelegates(data)
	}
	if err != nil {
		r.err = fmt.Errorf("read Multus' networks of the sandbox %q: %w; %s", r.file, err, hintRecreate)
	}
	return r
}

// CheckMultusRecords returns the reasons why records in Multus' cache are unreadable, by sandbox.
// For a missing directory it returns none. The error concerns the directory.
func CheckMultusRecords(host hostfs.Root, dir string) (map[string]error, error) {
	names, err := host.ReadDir(dir, maxRecords)
	if err != nil {
		if errdefs.IsNotFound(err) {
			err = nil
		}
		return nil, err
	}
	faults := map[string]error{}
	for _, name := range names {
		if st, err := host.Lstat(path.Join(dir, name)); err != nil || st.Mode&unix.S_IFMT != unix.S_IFREG ||
			name[0] == '.' {
			continue
		}
		s := Search{owners: owners{Finder: &Finder{host: host, opts: Options{MultusDir: dir}},
			q: &Query{SandboxID: name}}}
		if r := s.readMultusRecord(); r.err != nil {
			faults[name] = r.err
		}
	}
	return faults, nil
}

// delegateOf returns the delegate of an interface, or nil.
func (r *multusRecord) delegateOf(ifName string) *delegate {
	for i := range r.delegates {
		if r.delegates[i].IfName == ifName && ifName != "" {
			return &r.delegates[i]
		}
	}
	return nil
}

// readCache reads a file below dir. Although only root can write Multus' cache, readCache follows
// no symlink and reads only regular files.
func readCache(host hostfs.Root, dir string, elem ...string) ([]byte, error) {
	for _, e := range elem {
		if err := name.CheckFile(e); err != nil {
			return nil, err
		}
	}
	data, err := host.ReadBeneath(dir, path.Join(elem...), maxCache)
	return data, hostfs.WithoutPath(err)
}

// parseDelegates parses the scratch file, a list of objects. It ignores unknown keys.
func parseDelegates(data []byte) ([]delegate, error) {
	var list []*jsontree.Node
	if err := (jsontree.Decoder{}).Unmarshal(string(data), &list); err != nil {
		return nil, err
	}
	if len(list) > maxDelegates {
		return nil, fmt.Errorf("more than %d networks: %w", maxDelegates, errdefs.ErrInvalidArgument)
	}
	var ds []delegate
	for i, n := range list {
		d, err := parseDelegate(n)
		if err != nil {
			return nil, fmt.Errorf("network %d: %w", i, err)
		}
		if d.IfName == "" {
			d.IfName = "net" + strconv.Itoa(i)
			if i == 0 {
				d.IfName = masterIfName
			}
		}
		for _, other := range ds {
			if other.IfName == d.IfName {
				return nil, fmt.Errorf("networks %s and %s have the same interface %q: %w", diag.Quote(other.Name),
					diag.Quote(d.Name), d.IfName, errdefs.ErrConflict)
			}
		}
		ds = append(ds, d)
	}
	return ds, nil
}

// parseDelegate parses one network in Multus' record of a sandbox, and checks the values that name other objects.
func parseDelegate(n *jsontree.Node) (d delegate, err error) {
	if fault := (jsontree.Decoder{}).Decode(n, &d); fault != nil {
		return d, fault
	}
	for _, f := range []struct {
		key, value string
		check      func(string) error
	}{
		{"deviceID", d.DeviceID, checkID}, {"resourceName", d.Resource, checkID}, {"Name", d.Name, checkNetwork},
		{"ifnameRequest", d.IfName, checkIfName},
	} {
		if f.value == "" {
			continue
		}
		if err := f.check(f.value); err != nil {
			return d, fmt.Errorf("key %s: %w", f.key, err)
		}
	}
	return d, nil
}

// checkNetwork accepts the name of a network: printable, with at most one "/" and not at an end.
func checkNetwork(name string) error {
	switch {
	case name == "", len(name) > maxName, strings.Count(name, "/") > 1, name[0] == '/', name[len(name)-1] == '/',
		strings.ContainsFunc(name, func(r rune) bool {
			return !unicode.IsPrint(r) || r == ' ' || r == unicode.ReplacementChar
		}):
		return fmt.Errorf("%s is not a network name: %w", diag.Quote(name), errdefs.ErrInvalidArgument)
	}
	return nil
}

// checkIfName returns an error for a text that cannot name a network interface.
func checkIfName(ifName string) error {
	if !name.IsInterface(ifName) {
		return fmt.Errorf("%s is not an interface name: %w", diag.Quote(ifName), errdefs.ErrInvalidArgument)
	}
	return nil
}
