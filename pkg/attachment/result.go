// SPDX-License-Identifier: Apache-2.0

package attachment

import (
	"fmt"
	"path"

	"github.com/containerd/errdefs"

	"github.com/jackfield/jackfield/pkg/deviceinfo"
	"github.com/jackfield/jackfield/pkg/hostfs"
)

// cacheKind is the kind of file that libcni writes as a network's result.
const cacheKind = "cniCacheV1"

// cachedResult is what libcni keeps of one attachment (containernetworking/cni,
// libcni: cachedInfo), as far as it matters here.
type cachedResult struct {
	kind        string // kind
	containerID string // containerId
	ifName      string // ifName
	network     string // networkName: the CNI configuration's own name
	deviceID    string // capabilityArgs.deviceID
	infoFile    string // capabilityArgs.CNIDeviceInfoFile
}

// readResult reads /var/lib/cni/multus/results/<conf>-<sandboxID>-<ifName>, nil
// when there is none. The content must be of that very attachment.
func readResult(host hostfs.Root, dir, conf, sandboxID, ifName string) (c *cachedResult, file string, err error) {
	name := conf + "-" + sandboxID + "-" + ifName
	file = path.Join(dir, "results", name)
	data, err := readCache(host, dir, "results", name)
	if errdefs.IsNotFound(err) {
		return nil, file, nil
	}
	if err == nil {
		c, err = parseResult(data)
	}
	if err == nil {
		err = c.check(conf, sandboxID, ifName)
	}
	if err != nil {
		return nil, file, fmt.Errorf("read CNI result %q: %w", file, err)
	}
	return c, file, nil
}

func (c *cachedResult) check(conf, sandboxID, ifName string) error {
	for _, f := range []struct{ key, found, want string }{
		{"kind", c.kind, cacheKind}, {"containerId", c.containerID, sandboxID}, {"ifName", c.ifName, ifName}, {"networkName", c.network, conf},
	} {
		if f.found != f.want {
			return fmt.Errorf("%s: found %s, want %q: %w", f.key, quote(f.found), f.want, errdefs.ErrInvalidArgument)
		}
	}
	return nil
}

// parseResult reads the content of a cached result.
func parseResult(data []byte) (*cachedResult, error) {
	r, err := newJSONReader(data)
	if err != nil {
		return nil, err
	}
	c := &cachedResult{}
	texts := map[string]*string{"kind": &c.kind, "containerId": &c.containerID, "ifName": &c.ifName, "networkName": &c.network}
	args := map[string]*string{"deviceID": &c.deviceID, deviceinfo.CapabilityKey: &c.infoFile}
	into := func(m map[string]*string, key string) (err error) {
		if s, ok := m[key]; ok {
			*s, err = r.optionalText()
			return err
		}
		return r.skip()
	}
	err = r.object(func(key string) error {
		if key == "capabilityArgs" && r.peek() == '{' {
			return r.object(func(key string) error { return into(args, key) })
		}
		return into(texts, key)
	})
	if err == nil {
		err = r.end()
	}
	if err == nil && c.deviceID != "" {
		if err = checkID(c.deviceID); err != nil {
			err = fmt.Errorf("capabilityArgs.deviceID: %w", err)
		}
	}
	if err != nil {
		return nil, err
	}
	return c, nil
}
