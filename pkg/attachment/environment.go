// SPDX-License-Identifier: Apache-2.0

package attachment

import (
	"fmt"
	"slices"
	"strings"

	"github.com/containerd/errdefs"
)

const (
	envPrefix  = "PCIDEVICE_"
	infoSuffix = "_INFO"

	// What a container's environment may hold. Device plugins stay far below.
	maxInfo    = 256 << 10 // bytes of one PCIDEVICE_*_INFO
	maxVarIDs  = 1024      // device IDs of one variable
	maxIDs     = 4096      // device IDs of all variables
	maxID      = 253       // bytes of one ID
	maxEnvVars = 1024      // variables
)

// environment is what device plugins, or whoever else, wrote into a container's
// environment (sriov-network-device-plugin's README, "Allocated device
// information"). The pod's author can write it too, and wins: the kubelet puts
// the pod's own variables behind the plugin's.
type environment []variable

// variable is PCIDEVICE_<KEY>=<id>[,<id>...] with PCIDEVICE_<KEY>_INFO.
type variable struct {
	key  string // stands for the resource: upper case, "_" for "." and "/"
	name string // of the variable the IDs are from
	ids  []string
	info map[string]deviceEnv // by device ID
}

// deviceEnv is what PCIDEVICE_<KEY>_INFO says of one device.
type deviceEnv struct {
	nodes    []string // paths of device nodes in the container, sorted
	vhostNet string   // of these, that of vhost-net
	rdma     string   // name of the RDMA device
}

// parseEnvironment reads a container's environment. notes are about what cannot
// be read; it says nothing then.
func parseEnvironment(env []string) (e environment, notes []string) {
	var values map[string]string
	for _, kv := range env {
		name, value, ok := strings.Cut(kv, "=")
		key, ours := strings.CutPrefix(name, envPrefix)
		if !ok || !ours || key == "" || value == "" {
			continue
		}
		if len(values) >= maxEnvVars {
			return nil, []string{fmt.Sprintf("the container's environment has more than %d variables %s*: none is read", maxEnvVars, envPrefix)}
		}
		if values == nil {
			values = map[string]string{}
		}
		values[key] = value // as in a runtime, the last one counts
	}
	if values == nil {
		return nil, nil // most containers
	}
	infos := map[string]map[string]deviceEnv{}
	count := 0
	for key, value := range values {
		base, isInfo := strings.CutSuffix(key, infoSuffix)
		// A resource's own name may end in _INFO; then its value is a list of IDs.
		if isInfo && base != "" && strings.HasPrefix(strings.TrimSpace(value), "{") {
			info, err := parseDeviceEnv(value)
			if err != nil {
				notes = append(notes, fmt.Sprintf("%s is not used: %v", envPrefix+key, err))
				continue
			}
			infos[base] = info
			count += len(info)
			continue
		}
		if count += 1 + strings.Count(value, ","); count > maxIDs {
			break
		}
		ids, err := parseIDs(value)
		if err != nil {
			notes = append(notes, fmt.Sprintf("%s is not used: %v", envPrefix+key, err))
			continue
		}
		e = append(e, variable{key: key, name: envPrefix + key, ids: ids})
	}
	if count > maxIDs {
		return nil, []string{fmt.Sprintf("the variables %s* of the container's environment have more than %d device IDs: none is read", envPrefix, maxIDs)}
	}
	for key, info := range infos {
		at := slices.IndexFunc(e, func(v variable) bool { return v.key == key })
		if at < 0 {
			v := variable{key: key, name: envPrefix + key + infoSuffix}
			for id := range info {
				v.ids = append(v.ids, id)
			}
			slices.Sort(v.ids)
			e = append(e, v)
			at = len(e) - 1
		}
		e[at].info = info
	}
	slices.SortFunc(e, func(a, b variable) int { return strings.Compare(a.key, b.key) })
	slices.Sort(notes)
	return e, notes
}

func parseIDs(value string) ([]string, error) {
	if strings.Count(value, ",") >= maxVarIDs {
		return nil, fmt.Errorf("it has more than %d device IDs: %w", maxVarIDs, errdefs.ErrInvalidArgument)
	}
	var ids []string
	for id := range strings.SplitSeq(value, ",") {
		if err := checkID(id); err != nil {
			return nil, err
		}
		if !slices.Contains(ids, id) {
			ids = append(ids, id)
		}
	}
	return ids, nil
}

// checkID accepts what can be the ID of a device or the name of a resource:
// printable ASCII without spaces and commas.
func checkID(id string) error {
	why := ""
	switch {
	case id == "":
		why = "it is empty"
	case len(id) > maxID:
		why = fmt.Sprintf("it has more than %d bytes", maxID)
	default:
		for i := range len(id) {
			if c := id[i]; c <= ' ' || c >= 0x7f || c == ',' {
				why = fmt.Sprintf("character %q is in none", c)
				break
			}
		}
	}
	if why == "" {
		return nil
	}
	return fmt.Errorf("device ID %s: %s: %w", quote(id), why, errdefs.ErrInvalidArgument)
}

// parseDeviceEnv reads PCIDEVICE_<KEY>_INFO: from device ID to the kind of
// information to its keys and values. Kinds and keys that are not known are
// nobody's mistake.
func parseDeviceEnv(value string) (map[string]deviceEnv, error) {
	if len(value) > maxInfo {
		return nil, fmt.Errorf("it has %d bytes, more than %d: %w", len(value), maxInfo, errdefs.ErrInvalidArgument)
	}
	r, err := newJSONReader([]byte(value))
	if err != nil {
		return nil, err
	}
	all := map[string]deviceEnv{}
	err = r.object(func(id string) error {
		if err := checkID(id); err != nil {
			return err
		}
		if len(all) >= maxVarIDs {
			return fmt.Errorf("it has more than %d device IDs: %w", maxVarIDs, errdefs.ErrInvalidArgument)
		}
		var d deviceEnv
		if err := r.object(func(kind string) error { return d.read(r, kind) }); err != nil {
			return err
		}
		slices.Sort(d.nodes)
		d.nodes = slices.Compact(d.nodes)
		all[normal(id)] = d
		return nil
	})
	if err == nil {
		err = r.end()
	}
	if err != nil {
		return nil, err
	}
	return all, nil
}

// read reads one kind of information of one device.
func (d *deviceEnv) read(r *jsonReader, kind string) error {
	if r.peek() != '{' {
		return r.skip()
	}
	return r.object(func(key string) error {
		if r.peek() != '"' {
			return r.skip()
		}
		text, err := r.text()
		if err != nil {
			return err
		}
		if kind == "rdma" && key == "rdma_dev" {
			d.rdma = text
			return nil
		}
		if !isNodeKey(kind, key) || !strings.HasPrefix(text, "/dev/") || len(text) > maxID {
			return nil
		}
		d.nodes = append(d.nodes, text)
		if kind == "vhost" && key == "net-mount" {
			d.vhostNet = text
		}
		return nil
	})
}

// isNodeKey reports whether the value is the path of a device node. The plugin's
// README and its code spell the keys of vfio differently.
func isNodeKey(kind, key string) bool {
	switch kind {
	case "vfio":
		return key == "mount" || key == "dev-mount" || key == "vfio-mount" || key == "vfio-dev-mount"
	case "vhost":
		return key == "net-mount" || key == "tun-mount"
	case "vdpa", "uio":
		return key == "mount"
	case "rdma":
		return key == "uverbs" || key == "umad" || key == "issm" || key == "rdma_cm"
	}
	return false
}

// of is the variable that stands for a resource.
func (e environment) of(resource string) (variable, bool) {
	key := envKey(resource)
	for _, v := range e {
		if v.key == key {
			return v, true
		}
	}
	return variable{}, false
}

// claims gives the variable that names a device by id: the resource's own, if it
// does.
func (e environment) claims(id, resource string) (variable, bool) {
	names := func(v variable) bool {
		return slices.ContainsFunc(v.ids, func(have string) bool { return normal(have) == normal(id) })
	}
	if v, ok := e.of(resource); ok && names(v) {
		return v, true
	}
	if i := slices.IndexFunc(e, names); i >= 0 {
		return e[i], true
	}
	return variable{}, false
}

// envKey is how sriov-network-device-plugin writes a resource's name in the name
// of a variable: upper case, "/" and "." as "_".
func envKey(resource string) string {
	return strings.NewReplacer("/", "_", ".", "_").Replace(strings.ToUpper(resource))
}
