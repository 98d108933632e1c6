// SPDX-License-Identifier: Apache-2.0

package attachment

import (
	"fmt"
	"os"
	"path"
	"strconv"
	"strings"
	"unicode"

	"github.com/containerd/errdefs"
	"golang.org/x/sys/unix"

	"github.com/jackfield/jackfield/pkg/deviceinfo"
	"github.com/jackfield/jackfield/pkg/hostfs"
)

const (
	maxCache     = 1 << 20 // bytes of a file in Multus' cache
	maxDelegates = 256     // networks of one sandbox
	maxName      = 512     // bytes of a network's name, <namespace>/<name>
)

// masterIfName is the interface of the pod's first network, which Multus gives
// the name that the runtime asks for. Runtimes ask for this one.
const masterIfName = "eth0"

// delegate is one network of Multus' scratch file, in the order in which Multus
// attached them (multus-cni, pkg/types: DelegateNetConf).
type delegate struct {
	name     string // Name: <namespace>/<nad>; a CNI configuration's own name for one that is no NAD
	conf     string // Conf.name or ConfList.name: the CNI configuration's own name
	ifName   string // ifnameRequest; otherwise net<N>, and eth0 for the first
	deviceID string // deviceID
	// resource is resourceName. Multus sets it together with a device ID that the
	// kubelet gave; a device ID without it is one that the pod's author wrote into
	// the networks annotation.
	resource string
}

// readDelegates reads /var/lib/cni/multus/<sandboxID>. A file that is not there
// has none.
func readDelegates(host hostfs.Root, dir, sandboxID string) (ds []delegate, file string, err error) {
	file = path.Join(dir, sandboxID)
	data, err := readCache(host, dir, sandboxID)
	if errdefs.IsNotFound(err) {
		return nil, file, nil
	}
	if err == nil {
		ds, err = parseDelegates(data)
	}
	if err != nil {
		return nil, file, fmt.Errorf("read Multus' networks of the sandbox %q: %w", file, err)
	}
	return ds, file, nil
}

// readCache reads a file below dir. Multus makes its cache for root alone; no
// symlink is followed all the same, and nothing but a regular file is read.
func readCache(host hostfs.Root, dir string, elem ...string) ([]byte, error) {
	for _, e := range elem {
		if err := deviceinfo.CheckFileName(e); err != nil {
			return nil, err
		}
	}
	f, err := host.OpenBeneath(dir, path.Join(elem...), unix.O_RDONLY|unix.O_NOCTTY)
	if err != nil {
		return nil, short(err)
	}
	defer f.Close()
	return hostfs.ReadRegular(f, maxCache)
}

// short takes the path out of an error, where the caller names it.
func short(err error) error {
	if pe, ok := err.(*os.PathError); ok {
		return pe.Err
	}
	return err
}

// parseDelegates reads the scratch file's content: a list of maps. Keys it does
// not know are left out.
func parseDelegates(data []byte) ([]delegate, error) {
	r, err := newJSONReader(data)
	if err != nil {
		return nil, err
	}
	var ds []delegate
	err = r.array(func(i int) error {
		if i >= maxDelegates {
			return r.fail("more than %d networks", maxDelegates)
		}
		d, err := readDelegate(r)
		if err != nil {
			return fmt.Errorf("network %d: %w", i, err)
		}
		if d.ifName == "" {
			d.ifName = "net" + strconv.Itoa(i)
			if i == 0 {
				d.ifName = masterIfName
			}
		}
		for _, other := range ds {
			if other.ifName == d.ifName {
				return fmt.Errorf("networks %s and %s have the same interface %q: %w", quote(other.name), quote(d.name), d.ifName, errdefs.ErrConflict)
			}
		}
		ds = append(ds, d)
		return nil
	})
	if err == nil {
		err = r.end()
	}
	if err != nil {
		return nil, err
	}
	return ds, nil
}

func readDelegate(r *jsonReader) (d delegate, err error) {
	confs := map[string]string{}
	err = r.object(func(key string) (err error) {
		switch key {
		case "Name":
			d.name, err = r.optionalText()
		case "ifnameRequest":
			d.ifName, err = r.optionalText()
		case "deviceID":
			d.deviceID, err = r.optionalText()
		case "resourceName":
			d.resource, err = r.optionalText()
		case "Conf", "ConfList":
			confs[key], err = readConfName(r)
		default:
			err = r.skip()
		}
		return err
	})
	if err != nil {
		return d, err
	}
	if d.conf = confs["Conf"]; d.conf == "" {
		d.conf = confs["ConfList"]
	}
	for _, f := range []struct{ key, value string }{{"deviceID", d.deviceID}, {"resourceName", d.resource}} {
		if f.value == "" {
			continue
		}
		if err := checkID(f.value); err != nil {
			return d, fmt.Errorf("%s: %w", f.key, err)
		}
	}
	if err := checkNetwork(d.name); err != nil && d.name != "" {
		return d, fmt.Errorf("key Name: %w", err)
	}
	if err := checkIfName(d.ifName); err != nil && d.ifName != "" {
		return d, fmt.Errorf("ifnameRequest: %w", err)
	}
	return d, nil
}

func readConfName(r *jsonReader) (name string, err error) {
	if r.peek() == 'n' {
		return "", r.skip()
	}
	err = r.object(func(key string) (err error) {
		if key == "name" {
			name, err = r.optionalText()
			return err
		}
		return r.skip()
	})
	return name, err
}

// checkNetwork accepts the name of a network: printable, with one "/" at most.
func checkNetwork(name string) error {
	switch {
	case name == "", len(name) > maxName, strings.Count(name, "/") > 1, name[0] == '/', name[len(name)-1] == '/',
		strings.ContainsFunc(name, func(r rune) bool { return !unicode.IsPrint(r) || r == ' ' || r == unicode.ReplacementChar }):
		return fmt.Errorf("%s is no name of a network: %w", quote(name), errdefs.ErrInvalidArgument)
	}
	return nil
}

// checkIfName accepts what the kernel takes as the name of an interface.
func checkIfName(name string) error {
	if name == "" || len(name) > 15 || name == "." || name == ".." ||
		strings.ContainsFunc(name, func(r rune) bool { return r == '/' || r == ':' || unicode.IsSpace(r) || !unicode.IsPrint(r) }) {
		return fmt.Errorf("%s is no name of an interface: %w", quote(name), errdefs.ErrInvalidArgument)
	}
	return nil
}
