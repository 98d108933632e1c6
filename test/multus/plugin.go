// SPDX-License-Identifier: Apache-2.0

package multus

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/containernetworking/cni/libcni"
	"github.com/containernetworking/cni/pkg/skel"
	"github.com/containernetworking/cni/pkg/types"
	current "github.com/containernetworking/cni/pkg/types/100"
	"github.com/containernetworking/cni/pkg/version"
)

const (
	// CacheDir has a record of each sandbox, and libcni's records.
	CacheDir = "/var/lib/cni/multus"

	deviceInfoDir   = "/var/run/k8s.cni.cncf.io/devinfo/cni"
	devicePluginDir = "/var/run/k8s.cni.cncf.io/devinfo/dp"
)

// config is the configuration of the plugin.
type config struct {
	types.PluginConf
	Kubeconfig string `json:"kubeconfig"`
	// ClusterNetwork is the path of the configuration list of the pods' first network.
	ClusterNetwork string `json:"clusterNetwork"`
	BinDir         string `json:"binDir"`
}

// delegate is a network of a pod, as the record of its sandbox has it.
type delegate struct {
	Conf          *types.PluginConf  `json:",omitempty"`
	ConfList      *types.NetConfList `json:",omitempty"`
	Name          string             // namespace/name; of the first network, that of its configuration
	IfNameRequest string             `json:"ifnameRequest,omitempty"`
	DeviceID      string             `json:"deviceID,omitempty"`
	ResourceName  string             `json:"resourceName,omitempty"`
	Bytes         []byte             // the configuration
}

// attachments are the networks of one sandbox.
type attachments struct {
	config config
	args   *skel.CmdArgs
	cni    *libcni.CNIConfig
	pod    podClient
}

// Run runs the plugin with the environment of the process.
func Run() {
	skel.PluginMainFuncs(skel.CNIFuncs{Add: add, Del: del}, version.All, "a stand-in of Multus for tests")
}

func load(args *skel.CmdArgs) (*attachments, error) {
	a := &attachments{args: args}
	if err := json.Unmarshal(args.StdinData, &a.config); err != nil {
		return nil, err
	}
	a.cni = libcni.NewCNIConfigWithCacheDir([]string{a.config.BinDir}, CacheDir, nil)
	var err error
	a.pod, err = newPodClient(a.config.Kubeconfig, args.Args)
	return a, err
}

func add(args *skel.CmdArgs) error {
	ctx := context.Background()
	a, err := load(args)
	if err != nil {
		return err
	}
	delegates, err := a.findDelegates(ctx)
	if err != nil {
		return err
	}
	if err := a.writeRecord(delegates); err != nil {
		return err
	}
	var first types.Result
	var statuses []networkStatus
	for i, d := range delegates {
		result, err := a.attach(ctx, i, d)
		if err != nil {
			return errors.Join(fmt.Errorf("attach network %q: %w", d.Name, err), a.detach(ctx, delegates[:i+1]))
		}
		status, err := a.status(i, d, result)
		if err != nil {
			return errors.Join(err, a.detach(ctx, delegates[:i+1]))
		}
		statuses = append(statuses, status)
		if i == 0 {
			first = result
		}
	}
	if err := a.pod.setStatus(ctx, statuses); err != nil {
		return errors.Join(err, a.detach(ctx, delegates))
	}
	return types.PrintResult(first, a.config.CNIVersion)
}

func del(args *skel.CmdArgs) error {
	ctx := context.Background()
	a, err := load(args)
	if err != nil {
		return err
	}
	delegates, err := a.readRecord()
	if errors.Is(err, fs.ErrNotExist) {
		// The pod is older than this plugin, or its first DEL was interrupted.
		var first delegate
		first, err = a.clusterNetwork()
		delegates = []delegate{first}
	}
	if err != nil {
		return err
	}
	return a.detach(ctx, delegates)
}

// findDelegates returns the pod's networks, with the devices of those that have a resource.
func (a *attachments) findDelegates(ctx context.Context) ([]delegate, error) {
	first, err := a.clusterNetwork()
	if err != nil {
		return nil, err
	}
	selections, err := a.pod.networks(ctx)
	if err != nil {
		return nil, err
	}
	delegates := []delegate{first}
	var devices map[string][]string // by resource
	for _, s := range selections {
		text, resource, err := a.pod.definition(ctx, s.namespace, s.name)
		if err != nil {
			return nil, err
		}
		d := delegate{Name: s.namespace + "/" + s.name, IfNameRequest: s.ifName, ResourceName: resource, Bytes: text}
		if resource != "" {
			if devices == nil {
				if devices, err = allocatedDevices(ctx, a.pod.namespace, a.pod.name); err != nil {
					return nil, err
				}
			}
			if len(devices[resource]) == 0 {
				return nil, fmt.Errorf("network %q: the pod has too few devices of the resource %q", d.Name, resource)
			}
			d.DeviceID, devices[resource] = devices[resource][0], devices[resource][1:]
		}
		if err := d.decode(); err != nil {
			return nil, err
		}
		delegates = append(delegates, d)
	}
	return delegates, nil
}

func (a *attachments) clusterNetwork() (delegate, error) {
	text, err := os.ReadFile(a.config.ClusterNetwork)
	if err != nil {
		return delegate{}, err
	}
	d := delegate{Bytes: text}
	if err := d.decode(); err != nil {
		return delegate{}, err
	}
	d.Name = d.ConfList.Name
	return d, nil
}

// decode adds the device's ID to the configuration, and decodes that.
func (d *delegate) decode() error {
	var object map[string]any
	if err := json.Unmarshal(d.Bytes, &object); err != nil {
		return fmt.Errorf("network %q: %w", d.Name, err)
	}
	plugins, isList := object["plugins"].([]any)
	if !isList {
		plugins = []any{object}
	}
	for _, p := range plugins {
		if plugin, ok := p.(map[string]any); ok && d.DeviceID != "" {
			plugin["deviceID"], plugin["pciBusID"] = d.DeviceID, d.DeviceID
		}
	}
	var err error
	if d.Bytes, err = json.Marshal(object); err != nil {
		return err
	}
	if isList {
		d.ConfList = &types.NetConfList{}
		list, err := libcni.NetworkConfFromBytes(d.Bytes)
		if err == nil {
			d.ConfList.CNIVersion, d.ConfList.Name = list.CNIVersion, list.Name
		}
		return err
	}
	d.Conf = &types.PluginConf{}
	return json.Unmarshal(d.Bytes, d.Conf)
}

// ifName returns the name of the interface of the network with an index.
func (a *attachments) ifName(index int, d delegate) string {
	switch {
	case index == 0:
		return a.args.IfName
	case d.IfNameRequest != "":
		return d.IfNameRequest
	}
	return fmt.Sprint("net", index)
}

// deviceInfoFile returns the path of a network's device-info, or "" for a network without a device.
func (a *attachments) deviceInfoFile(index int, d delegate) string {
	if d.DeviceID == "" {
		return ""
	}
	return filepath.Join(deviceInfoDir, strings.ReplaceAll(d.Name, "/", "-")+"-"+a.args.ContainerID+"_"+a.ifName(index, d))
}

func (a *attachments) runtimeConf(index int, d delegate) *libcni.RuntimeConf {
	conf := &libcni.RuntimeConf{ContainerID: a.args.ContainerID, NetNS: a.args.Netns, IfName: a.ifName(index, d), CapabilityArgs: map[string]any{}}
	for pair := range strings.SplitSeq(a.args.Args, ";") {
		if key, value, ok := strings.Cut(pair, "="); ok {
			conf.Args = append(conf.Args, [2]string{key, value})
		}
	}
	if d.DeviceID != "" {
		conf.CapabilityArgs["deviceID"] = d.DeviceID
		conf.CapabilityArgs["CNIDeviceInfoFile"] = a.deviceInfoFile(index, d)
	}
	return conf
}

// attach copies the device plugin's device-info and runs the network's plugins.
func (a *attachments) attach(ctx context.Context, index int, d delegate) (types.Result, error) {
	if d.DeviceID != "" {
		name := strings.ReplaceAll(d.ResourceName, "/", "-") + "-" + strings.ReplaceAll(d.DeviceID, "/", "-") + "-device.json"
		info, err := os.ReadFile(filepath.Join(devicePluginDir, name))
		if err == nil {
			err = errors.Join(os.MkdirAll(deviceInfoDir, 0o755), os.WriteFile(a.deviceInfoFile(index, d), info, 0o444))
		}
		if err != nil && !errors.Is(err, fs.ErrNotExist) { // a device plugin may write none
			return nil, err
		}
	}
	if d.ConfList != nil {
		list, err := libcni.NetworkConfFromBytes(d.Bytes)
		if err != nil {
			return nil, err
		}
		return a.cni.AddNetworkList(ctx, list, a.runtimeConf(index, d))
	}
	return a.cni.AddNetwork(ctx, &libcni.PluginConfig{Network: d.Conf, Bytes: d.Bytes}, a.runtimeConf(index, d))
}

// detach undoes attach for networks, the last one first, and removes the record.
func (a *attachments) detach(ctx context.Context, delegates []delegate) error {
	var errs []error
	for i, d := range slices.Backward(delegates) {
		if d.ConfList != nil {
			list, err := libcni.NetworkConfFromBytes(d.Bytes)
			if err == nil {
				err = a.cni.DelNetworkList(ctx, list, a.runtimeConf(i, d))
			}
			errs = append(errs, err)
		} else {
			errs = append(errs, a.cni.DelNetwork(ctx, &libcni.PluginConfig{Network: d.Conf, Bytes: d.Bytes}, a.runtimeConf(i, d)))
		}
		if file := a.deviceInfoFile(i, d); file != "" {
			if err := os.Remove(file); !errors.Is(err, fs.ErrNotExist) {
				errs = append(errs, err)
			}
		}
	}
	if err := errors.Join(errs...); err != nil {
		return err // the runtime calls DEL again, which needs the record
	}
	if err := os.Remove(a.recordFile()); !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}

func (a *attachments) recordFile() string { return filepath.Join(CacheDir, a.args.ContainerID) }

func (a *attachments) writeRecord(delegates []delegate) error {
	data, err := json.Marshal(delegates)
	if err != nil {
		return err
	}
	return errors.Join(os.MkdirAll(CacheDir, 0o700), os.WriteFile(a.recordFile(), data, 0o600))
}

func (a *attachments) readRecord() (delegates []delegate, err error) {
	data, err := os.ReadFile(a.recordFile())
	if err != nil {
		return nil, err
	}
	return delegates, json.Unmarshal(data, &delegates)
}

// networkStatus is an element of the annotation network-status (Multi-Network CRD specification, section 5.3.1).
type networkStatus struct {
	Name       string          `json:"name"`
	Interface  string          `json:"interface,omitempty"`
	IPs        []string        `json:"ips,omitempty"`
	MAC        string          `json:"mac,omitempty"`
	Default    bool            `json:"default,omitempty"`
	DNS        types.DNS       `json:"dns"`
	DeviceInfo json.RawMessage `json:"device-info,omitempty"`
}

func (a *attachments) status(index int, d delegate, result types.Result) (networkStatus, error) {
	s := networkStatus{Name: d.Name, Interface: a.ifName(index, d), Default: index == 0}
	r, err := current.GetResult(result)
	if err != nil {
		return s, err
	}
	s.DNS = r.DNS
	for _, i := range r.Interfaces {
		if i.Sandbox != "" && i.Name == s.Interface {
			s.MAC = i.Mac
		}
	}
	for _, ip := range r.IPs {
		s.IPs = append(s.IPs, ip.Address.IP.String())
	}
	if file := a.deviceInfoFile(index, d); file != "" {
		s.DeviceInfo, err = os.ReadFile(file)
		if errors.Is(err, fs.ErrNotExist) {
			err = nil
		}
	}
	return s, err
}
