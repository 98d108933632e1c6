// SPDX-License-Identifier: Apache-2.0

package devices

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"unicode/utf8"
)

const (
	// DefaultFile is the path of the file in a container.
	DefaultFile = "/var/run/jackfield/devices.json"
	// FileVariable is the environment variable with the path of the file.
	FileVariable = "JACKFIELD_DEVICES_FILE"
	// MaxSize is the size of the largest file that is read, in bytes.
	MaxSize = 4 << 20
	// MaxDevices is the number of devices that a file has at most.
	MaxDevices = 4096
)

// Values of Extension.CreatedBy.
const (
	CreatedByHost        = "host"        // connect to the socket
	CreatedByApplication = "application" // create the socket
)

// Device is one device or named socket. The keys other than "jackfield" are those of the annotation
// k8s.v1.cni.cncf.io/network-status, so that a program that reads one can read the other (Device
// Information Specification, section 6; Multi-Network CRD specification, section 5.3.1).
type Device struct {
	Name      string   `json:"name"`                // NAMESPACE/NETWORK, CLAIM/REQUEST, socket:NAME, or ""
	Interface string   `json:"interface,omitempty"` // in the pod
	IPs       []string `json:"ips,omitempty"`       // with prefix length
	Gateway   []string `json:"gateway,omitempty"`
	MAC       string   `json:"mac,omitempty"`
	MTU       int      `json:"mtu,omitempty"`
	DNS       *DNS     `json:"dns,omitempty"`
	// DeviceInfo is the device-info with the paths in the container; package deviceinfo parses it.
	// A named socket has none.
	DeviceInfo json.RawMessage `json:"device-info,omitempty"`
	Jackfield  Extension       `json:"jackfield"`
}

// DNS is the name servers of an interface.
type DNS struct {
	Nameservers []string `json:"nameservers,omitempty"`
	Domain      string   `json:"domain,omitempty"`
	Search      []string `json:"search,omitempty"`
	Options     []string `json:"options,omitempty"`
}

// Extension has the facts for which the specifications have no key.
type Extension struct {
	Resource  string            `json:"resource,omitempty"` // extended resource
	Claim     *Claim            `json:"claim,omitempty"`
	DeviceID  string            `json:"device-id,omitempty"`
	Socket    string            `json:"socket,omitempty"` // of a named socket; see Device.Socket
	CreatedBy string            `json:"socket-created-by,omitempty"`
	OwnPath   string            `json:"own-path,omitempty"` // where the socket is as well
	Note      string            `json:"note,omitempty"`     // why it is not there, or why DPDK cannot use the device
	Queues    int               `json:"queues,omitempty"`   // pairs
	Bandwidth map[string]uint64 `json:"bandwidth,omitempty"`
	Labels    []Label           `json:"labels,omitempty"`
	EAL       []string          `json:"eal,omitempty"` // arguments of DPDK's EAL
	// Memlock is the container's limit of locked memory, RLIMIT_MEMLOCK, for a device whose programs pin memory:
	// "unlimited", or a size such as "2Gi". It is "" if it is unknown.
	Memlock string `json:"memlock,omitempty"`
}

// Claim names a device of a resource claim as Kubernetes does.
type Claim struct {
	Name     string `json:"name"`
	PodClaim string `json:"pod-claim,omitempty"` // in the pod's spec, for a claim from a template
	Request  string `json:"request,omitempty"`
	Driver   string `json:"driver"`
	Pool     string `json:"pool"`
	Device   string `json:"device"`
}

// Label is a label of the network's configuration.
type Label struct {
	Key   string `json:"key"`
	Value string `json:"value"`
}

// Read reads a file. If path is "", it reads the container's file.
func Read(path string) ([]Device, error) {
	path = cmp.Or(path, os.Getenv(FileVariable), DefaultFile)
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	data, err := io.ReadAll(io.LimitReader(f, MaxSize+1))
	if err != nil {
		return nil, err
	}
	list, err := Parse(data)
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", path, err)
	}
	return list, nil
}

// Parse parses the content of a file.
func Parse(data []byte) ([]Device, error) {
	switch {
	case len(data) > MaxSize:
		return nil, fmt.Errorf("the file is larger than %d bytes", MaxSize)
	case !utf8.Valid(data):
		return nil, errors.New("the file is not valid UTF-8")
	}
	decoder := json.NewDecoder(bytes.NewReader(data))
	if open, err := decoder.Token(); err != nil || open != json.Delim('[') {
		return nil, errors.Join(errors.New("the file is no JSON array"), err)
	}
	list := []Device{}
	for decoder.More() {
		if len(list) == MaxDevices {
			return nil, fmt.Errorf("the file has more than %d devices", MaxDevices)
		}
		// A pointer tells null from an object.
		var d *Device
		err := decoder.Decode(&d)
		if err == nil {
			err = d.validate()
		}
		if err != nil {
			return nil, fmt.Errorf("device %d: %w", len(list), err)
		}
		list = append(list, *d)
	}
	if _, err := decoder.Token(); err != nil {
		return nil, err
	}
	if _, err := decoder.Token(); !errors.Is(err, io.EOF) {
		return nil, errors.New("the file does not end after the array")
	}
	return list, nil
}

func (d *Device) validate() error {
	if d == nil {
		return errors.New("must be an object, not null")
	}
	info, err := d.decodeInfo()
	if err != nil {
		return fmt.Errorf("device-info: %w", err)
	}
	for _, text := range append([]string{d.Name, d.Interface, d.MAC,
		d.Jackfield.Resource, d.Jackfield.DeviceID, d.Jackfield.CreatedBy,
		info.Type, d.Socket(), d.PCIAddress()}, d.Jackfield.EAL...) {
		if strings.ContainsRune(text, 0) {
			return fmt.Errorf("%q has a NUL character", text)
		}
	}
	return nil
}

// info is the part of device-info that the methods of Device use.
type info struct {
	Type    string `json:"type"`
	Version string `json:"version"`
	PCI     struct {
		Address string `json:"pci-address"`
	} `json:"pci"`
	VDPA struct {
		Address string `json:"pci-address"`
	} `json:"vdpa"`
	VhostUser struct {
		Path string `json:"path"`
	} `json:"vhost-user"`
	Memif struct {
		Path string `json:"path"`
	} `json:"memif"`
}

func (d *Device) decodeInfo() (i info, err error) {
	if len(d.DeviceInfo) == 0 || string(d.DeviceInfo) == "null" {
		return i, nil
	}
	if err := json.Unmarshal(d.DeviceInfo, &i); err != nil {
		return i, err
	}
	if !strings.HasPrefix(i.Version, "1.") {
		return i, fmt.Errorf("version %q is not supported: must be 1.x", i.Version)
	}
	return i, nil
}

// Type returns "pci", "vdpa", "vhost-user" or "memif", or "" for a named socket.
func (d *Device) Type() string {
	i, _ := d.decodeInfo()
	return i.Type
}

// Socket returns the path of the device's socket or of a named socket, or "". An abstract socket has "@" and
// its name.
func (d *Device) Socket() string {
	i, _ := d.decodeInfo()
	return cmp.Or(i.socket(), d.Jackfield.Socket)
}

func (i *info) socket() string {
	switch i.Type {
	case "vhost-user":
		return i.VhostUser.Path
	case "memif":
		return i.Memif.Path
	}
	return ""
}

// PCIAddress returns the PCI address of a PCI or vDPA device, or "".
func (d *Device) PCIAddress() string {
	i, _ := d.decodeInfo()
	return i.pciAddress()
}

func (i *info) pciAddress() string {
	switch i.Type {
	case "pci":
		return i.PCI.Address
	case "vdpa":
		return i.VDPA.Address
	}
	return ""
}

// Find returns the device with an interface or name, or nil. The name of a named socket is socket:NAME.
func Find(list []Device, name string) *Device {
	for i := range list {
		if d := &list[i]; name != "" && (d.Interface == name || d.Name == name) {
			return d
		}
	}
	return nil
}

// EAL returns the arguments of DPDK's EAL for all devices. Without a PCI device they include --no-pci, so
// that EAL takes none.
func EAL(list []Device) []string {
	var args []string
	for i := range list {
		args = append(args, list[i].Jackfield.EAL...)
	}
	if !slices.Contains(args, "-a") {
		args = append(args, "--no-pci")
	}
	return args
}
