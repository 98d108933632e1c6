// SPDX-License-Identifier: Apache-2.0

package attachment

import (
	"fmt"
	"path"

	"github.com/containerd/errdefs"

	"github.com/jackfield/jackfield/internal/base/diag"
	"github.com/jackfield/jackfield/internal/base/jsontree"
	"github.com/jackfield/jackfield/internal/host/hostfs"
)

// cacheKind is the kind of libcni's files with a network's result.
const cacheKind = "cniCacheV1"

// cachedResult is libcni's record of one attachment (containernetworking/cni, libcni: cachedInfo),
// without unused keys.
type cachedResult struct {
	Kind           string         `json:"kind"`
	ContainerID    string         `json:"containerId"`
	IfName         string         `json:"ifName"`
	Network        string         `json:"networkName"` // the name of the CNI configuration
	Result         *jsontree.Node `json:"result"`
	CapabilityArgs struct {
		DeviceID string `json:"deviceID"`
	} `json:"capabilityArgs"`
}

// readResult reads /var/lib/cni/multus/results/<conf>-<sandboxID>-<ifName>, and returns its device
// ID and its interface. It returns neither if the file is missing. The content must match the
// file's name.
func readResult(host hostfs.Root, dir, conf, sandboxID, ifName string) (deviceID string, record interfaceRecord,
	err error) {
	name := conf + "-" + sandboxID + "-" + ifName
	file := path.Join(dir, "results", name)
	data, err := readCache(host, dir, "results", name)
	if errdefs.IsNotFound(err) {
		return "", interfaceRecord{}, nil
	}
	var c *cachedResult
	if err == nil {
		c, record, err = parseResult(data)
	}
	if err == nil {
		err = c.checkIdentity(conf, sandboxID, ifName)
	}
	if err != nil {
		return "", interfaceRecord{}, fmt.Errorf("read CNI result %q: %w; %s", file, err, hintRecreate)
	}
	record.source = file
	return c.CapabilityArgs.DeviceID, record, nil
}

// checkIdentity checks that the record belongs to one attachment. A pod's author cannot write the
// cache, but a file can be left over from another sandbox.
func (c *cachedResult) checkIdentity(conf, sandboxID, ifName string) error {
	for _, f := range []struct{ key, value, required string }{
		{"kind", c.Kind, cacheKind}, {"containerId", c.ContainerID, sandboxID}, {"ifName", c.IfName, ifName},
		{"networkName", c.Network, conf},
	} {
		if f.value != f.required {
			return fmt.Errorf("%s: invalid value %s: must be %q: %w", f.key, diag.Quote(f.value), f.required,
				errdefs.ErrInvalidArgument)
		}
	}
	return nil
}

// parseResult parses a cached result and its description of the interface.
func parseResult(data []byte) (c *cachedResult, record interfaceRecord, err error) {
	c = &cachedResult{}
	if err := (jsontree.Decoder{}).Unmarshal(string(data), c); err != nil {
		return nil, record, err
	}
	if id := c.CapabilityArgs.DeviceID; id != "" {
		if err := checkID(id); err != nil {
			return nil, record, fmt.Errorf("capabilityArgs.deviceID: %w", err)
		}
	}
	return c, parseInterfaceRecord(c.Result, c.IfName), nil
}

// parseInterfaceRecord returns the description of the pod's interface in a CNI result (CNI
// specification, section 5). It omits invalid values.
func parseInterfaceRecord(result *jsontree.Node, ifName string) interfaceRecord {
	var content struct {
		Interfaces []struct {
			Name    string `json:"name"`
			MAC     string `json:"mac"`
			MTU     int    `json:"mtu"`
			Sandbox string `json:"sandbox"`
		} `json:"interfaces"`
		IPs []struct {
			Address   string `json:"address"`
			Interface *int   `json:"interface"` // index in Interfaces
		} `json:"ips"`
	}
	if result == nil || (jsontree.Decoder{}).Decode(result, &content) != nil {
		return interfaceRecord{}
	}
	var r interfaceRecord
	r.fields.mac, r.fields.ips, r.fields.mtu = "result.interfaces.mac", "result.ips", "result.interfaces.mtu"
	for i, n := range content.Interfaces {
		if n.Name != ifName || n.Sandbox == "" { // an interface of the host
			continue
		}
		r.mac, r.mtu = canonicalMAC(n.MAC), validMTU(n.MTU)
		for _, ip := range content.IPs {
			if (ip.Interface == nil || *ip.Interface == i) && !isNoCIDR(ip.Address) {
				r.ips = append(r.ips, ip.Address)
			}
		}
		break
	}
	return r
}
