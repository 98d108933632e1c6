// SPDX-License-Identifier: Apache-2.0

package cni

import (
	"encoding/json"
	"net"
	"path"

	types100 "github.com/containernetworking/cni/pkg/types/100"
	"golang.org/x/sys/unix"

	"github.com/jackfield/jackfield/pkg/deviceinfo"
	"github.com/jackfield/jackfield/pkg/hostfs"
)

// check is CHECK (§2): the device-info file, the socket directory and the previous
// result are as ADD left them, as far as they are this plugin's. Plugins behind
// this one may have changed the rest.
func (c *call) check() error {
	if c.conf.prevResult == nil {
		return invalid("prevResult", "nothing", "the result of the network's ADD")
	}
	prev, err := c.previous()
	if err != nil {
		return err
	}
	r, lost := c.recorded()
	ns, own, err := c.openNetns()
	if err != nil {
		if asError(err).Code == codeContainer && lost == nil {
			// That code says that no DEL is needed (§5, Error).
			return changed("its network namespace is gone", "CNI_NETNS=%q does not exist; DEL removes what ADD made", c.Netns)
		}
		return err
	}
	ns.Close()
	if err := firstOf(c.checkIsolated(own), lost); err != nil {
		return err
	}
	info, err := c.checkFile(r)
	if err != nil {
		return err
	}
	if err := c.checkSocketDir(r); err != nil {
		return err
	}
	if err := c.checkResult(r, info, prev); err != nil {
		return err
	}
	if c.conf.ipam != "" {
		_, err = c.delegate("CHECK")
	}
	return err
}

func changed(msg, details string, args ...any) error {
	return fail(codeChanged, "the attachment is not as ADD left it: "+msg, details, args...)
}

// recorded is the record of the attachment.
func (c *call) recorded() (*record, error) {
	st, err := findStore(c.Host, c.conf.stateDir)
	if err != nil {
		return nil, err
	}
	var r *record
	if st != nil {
		defer st.Close()
		if r, err = st.read(recordName(c.conf.name, c.ContainerID, c.IfName)); err != nil {
			return nil, err
		}
	}
	if r == nil || r.Info == nil {
		return nil, changed("its record is gone", "container %q, interface %q of network %q is not recorded in %q", c.ContainerID, c.IfName, c.conf.name, c.conf.stateDir)
	}
	return r, nil
}

// checkFile holds the device-info file against what ADD wrote: type and device
// must be the same; keys may have been added.
func (c *call) checkFile(r *record) (*deviceinfo.Info, error) {
	dir := deviceinfo.CNIDir{Root: c.Host, Dir: r.InfoDir}
	file := path.Join(r.InfoDir, r.InfoFile)
	info, err := dir.Collect(r.InfoFile)
	if err != nil {
		return nil, changed("device-info file", "%v", err)
	}
	if found, want := identity(info), identity(r.Info); found != want {
		return nil, changed("device-info file", "%s: found %s, want %s", file, found, want)
	}
	return info, nil
}

// identity is what makes a device-info that of one device.
func identity(i *deviceinfo.Info) string {
	s := string(i.Type)
	switch i.Type {
	case deviceinfo.TypePCI:
		s += " " + i.PCI.PCIAddress
	case deviceinfo.TypeVDPA:
		s += " " + i.VDPA.ParentDevice + " " + string(i.VDPA.Driver)
	case deviceinfo.TypeVhostUser:
		s += " " + string(i.VhostUser.Mode) + " " + i.VhostUser.Path
	case deviceinfo.TypeMemif:
		s += " " + string(i.Memif.Role) + " " + string(i.Memif.Mode) + " " + i.Memif.Path
	}
	return s
}

func (c *call) checkSocketDir(r *record) error {
	if r.Directory == "" {
		return nil
	}
	dir := path.Join(r.SocketDir, r.Directory)
	f, err := c.Host.OpenBeneath(r.SocketDir, r.Directory, unix.O_PATH)
	if err != nil {
		return changed("socket directory", "%v", err)
	}
	defer f.Close()
	var st unix.Stat_t
	if err := unix.Fstat(int(f.Fd()), &st); err != nil {
		return changed("socket directory", "%q: %v", dir, err)
	}
	if st.Mode&unix.S_IFMT != unix.S_IFDIR {
		return changed("socket directory", "%q is a %s", dir, hostfs.TypeName(st.Mode))
	}
	return nil
}

// checkResult looks for the interface and its addresses in the previous result.
// Behind other plugins the interface is theirs, and the addresses are those that
// the runtime asked for and they gave.
func (c *call) checkResult(r *record, info *deviceinfo.Info, prev *types100.Result) error {
	if !r.Chained {
		if err := c.checkInterface(r, prev); err != nil {
			return err
		}
	}
	return checkAddresses(info, prev)
}

// checkInterface looks for the interface that ADD returned. Its hardware address may
// have been changed by a plugin behind this one.
func (c *call) checkInterface(r *record, prev *types100.Result) error {
	at := c.interfaceOf(prev)
	if at < 0 {
		return changed("prevResult", "it has no interface %q in the container", c.IfName)
	}
	have := prev.Interfaces[at]
	if have.Sandbox != c.Netns {
		return changed("prevResult", "interface %q is in %q, not in CNI_NETNS %q", c.IfName, have.Sandbox, c.Netns)
	}
	if want := c.newInterface(r.Info, socketOf(r.Info), ""); have.SocketPath != want.SocketPath || have.PciID != want.PciID {
		return changed("prevResult", "interface %q has socketPath %q and pciID %q, want %q and %q", c.IfName, have.SocketPath, have.PciID, want.SocketPath, want.PciID)
	}
	return nil
}

func checkAddresses(info *deviceinfo.Info, prev *types100.Result) error {
	var n notes
	if raw, ok := info.Extra[extraKey]; ok && json.Unmarshal(raw, &n) != nil {
		return changed("device-info file", "%s is not what ADD wrote", extraKey)
	}
	for _, ip := range n.IPs {
		if _, _, err := net.ParseCIDR(ip); err == nil && lacking([]string{ip}, prev) != "" {
			return changed("prevResult", "address %s is not in it", ip)
		}
	}
	return nil
}

// socketOf is the socket in device-info, "" for a device.
func socketOf(i *deviceinfo.Info) string {
	switch i.Type {
	case deviceinfo.TypeVhostUser:
		return i.VhostUser.Path
	case deviceinfo.TypeMemif:
		return i.Memif.Path
	}
	return ""
}

// status is STATUS (§2): whether an ADD could make what it has to make.
func (c *call) status() error {
	var errs []error
	_, missing := c.Host.Stat(c.conf.socketDir)
	for _, d := range []struct {
		key, path string
		perm      uint32
		needed    bool
	}{
		{"stateDir", c.conf.stateDir, 0o700, true},
		{"claimsDir", c.conf.claimsDir, 0o700, c.conf.device.isSocket()},
		{"socketDir", c.conf.socketDir, 0o755, c.conf.device.isSocket()},
		{"deviceInfoDir", c.conf.infoDir, 0o755, true},
	} {
		if d.needed {
			errs = append(errs, c.writable(d.key, d.path, d.perm))
		}
	}
	if err := joinErrors(errs...); err != nil {
		return fail(codeUnavailable, "the plugin is not available", "%s: %s", asError(err).Msg, asError(err).Details)
	}
	if missing != nil && c.conf.device.isSocket() {
		if err := c.checkLost(); err != nil {
			return err
		}
	}
	if c.conf.ipam != "" {
		if _, err := c.delegate("STATUS"); err != nil {
			return err
		}
	}
	return nil
}

// writable makes a directory where it is missing, and tells whether something can
// be made in it.
func (c *call) writable(key, dir string, perm uint32) error {
	f, err := openDir(c.Host, key, dir, perm)
	if err != nil {
		return err
	}
	defer f.Close()
	if err := unix.Faccessat(int(f.Fd()), ".", unix.W_OK|unix.X_OK, 0); err != nil {
		return fail(codeIO, "I/O failure: "+key, "write to %q: %v", dir, err)
	}
	var fs unix.Statfs_t
	if err := unix.Fstatfs(int(f.Fd()), &fs); err == nil && (fs.Blocks > 0 && fs.Bavail == 0 || fs.Files > 0 && fs.Ffree == 0) {
		return fail(codeIO, "I/O failure: "+key, "%q: %v", dir, unix.ENOSPC)
	}
	return nil
}

// checkLost tells that the socket directory was gone while attachments had theirs
// in it: new ones will be well, the old ones are cut off (code 51).
func (c *call) checkLost() error {
	st, err := openStore(c.Host, c.conf.stateDir)
	if err != nil {
		return err
	}
	defer st.Close()
	names, err := st.names()
	if err != nil {
		return err
	}
	for _, name := range names {
		network, id, ifName, _ := splitRecordName(name)
		if r, err := st.read(name); err == nil && r != nil && network == c.conf.name && r.SocketDir == c.conf.socketDir {
			return fail(codeLimited, "the plugin is not available, and existing containers have limited connectivity",
				"socketDir %q is gone, and with it the socket of interface %q of container %q: create its pod anew", c.conf.socketDir, ifName, id)
		}
	}
	return nil
}
