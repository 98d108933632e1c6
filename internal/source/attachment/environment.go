// SPDX-License-Identifier: Apache-2.0

package attachment

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/containerd/errdefs"

	"github.com/jackfield/jackfield/internal/base/diag"
	"github.com/jackfield/jackfield/internal/base/jsontree"
)

const (
	envPrefix  = "PCIDEVICE_"
	infoSuffix = "_INFO"

	// Bounds on a container's environment. Device plugins stay far below them.
	maxInfo    = 256 << 10 // bytes of one PCIDEVICE_*_INFO
	maxVarIDs  = 4096      // device IDs of one variable
	maxIDs     = 16384     // device IDs of all variables
	maxID      = 253       // bytes of one ID
	maxEnvVars = 1024      // variables
)

// environment holds the variables of device plugins in a container's environment
// (sriov-network-device-plugin's README, "Allocated device information"). The pod's author can set
// them as well, and overrides the plugin, because the kubelet appends the pod's variables.
type environment []variable

// variable is PCIDEVICE_<KEY>=<id>[,<id>...] with PCIDEVICE_<KEY>_INFO.
type variable struct {
	key  string // of the resource: upper case, "_" for "." and "/"
	name string // of the variable with the IDs
	ids  []string
	info map[string]deviceEnv // by device ID
}

// deviceEnv is the information about one device in PCIDEVICE_<KEY>_INFO.
type deviceEnv struct {
	nodes    []string // paths of device nodes in the container, sorted
	vhostNet string   // the vhost-net node among nodes
	rdma     string   // name of the RDMA device
}

// parseEnvironment parses the variables of device plugins. notes describe the ignored variables and
// why they are invalid.
func parseEnvironment(env []string) (e environment, notes []string) {
	var values map[string]string
	for _, kv := range env {
		name, value, ok := strings.Cut(kv, "=")
		key, ours := strings.CutPrefix(name, envPrefix)
		if !ok || !ours || key == "" || value == "" {
			continue
		}
		if len(values) >= maxEnvVars {
			return nil, []string{fmt.Sprintf("the container's environment has more than %d variables %s*, and all "+
				"are ignored: request fewer resources", maxEnvVars, envPrefix)}
		}
		if values == nil {
			values = map[string]string{}
		}
		values[key] = value // the last value counts, as in a runtime
	}
	if values == nil {
		return nil, nil // most containers
	}
	byKey := map[string]variable{}
	count := 0
	for key, value := range values {
		if count > maxIDs {
			break
		}
		// The name of a resource can end in _INFO. Its value is then a list of IDs instead of an
		// object.
		base, isInfo := strings.CutSuffix(key, infoSuffix)
		if isInfo = isInfo && base != "" && strings.HasPrefix(strings.TrimSpace(value), "{"); !isInfo {
			base = key
		}
		v := byKey[base]
		var err error
		if isInfo {
			v.info, err = parseDeviceEnv(value)
			count += len(v.info)
		} else {
			v.ids, err = parseIDs(value)
			count += 1 + strings.Count(value, ",")
		}
		if err != nil {
			notes = append(notes, fmt.Sprintf("%s is ignored: %s", envPrefix+key, diag.ErrorText(err)))
			continue
		}
		byKey[base] = v
	}
	if count > maxIDs {
		return nil, []string{fmt.Sprintf("the variables %s* of the container's environment have more than %d "+
			"device IDs, and all are ignored: request fewer devices of the resource", envPrefix, maxIDs)}
	}
	for _, key := range slices.Sorted(maps.Keys(byKey)) {
		v := byKey[key]
		v.key, v.name = key, envPrefix+key
		if v.ids == nil {
			v.name, v.ids = v.name+infoSuffix, slices.Sorted(maps.Keys(v.info))
		}
		e = append(e, v)
	}
	slices.Sort(notes)
	return e, notes
}

// parseIDs parses the value of a device plugin's variable: a comma list of device IDs. It omits duplicates.
func parseIDs(value string) ([]string, error) {
	if strings.Count(value, ",") >= maxVarIDs {
		return nil, fmt.Errorf("it has more than %d device IDs; request fewer devices of the resource: %w", maxVarIDs,
			errdefs.ErrInvalidArgument)
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

// checkID accepts the ID of a device or the name of a resource: printable ASCII without spaces and
// commas.
func checkID(id string) error {
	why := ""
	bad := strings.IndexFunc(id, func(r rune) bool { return r <= ' ' || r >= 0x7f || r == ',' })
	switch {
	case id == "":
		why = "it is empty"
	case len(id) > maxID:
		why = fmt.Sprintf("it has more than %d bytes", maxID)
	case bad >= 0:
		why = fmt.Sprintf("character %q is not allowed", id[bad])
	default:
		return nil
	}
	return fmt.Errorf("device ID %s: %s: %w", diag.Quote(id), why, errdefs.ErrInvalidArgument)
}

// parseDeviceEnv parses PCIDEVICE_<KEY>_INFO: an object a device ID, with an object a kind of
// information. It ignores unknown kinds and keys.
func parseDeviceEnv(value string) (map[string]deviceEnv, error) {
	if len(value) > maxInfo {
		return nil, fmt.Errorf("it has %d bytes, more than %d: %w", len(value), maxInfo, errdefs.ErrInvalidArgument)
	}
	var devices map[string]map[string]*jsontree.Node
	if err := (jsontree.Decoder{}).Unmarshal(value, &devices); err != nil {
		return nil, err
	}
	if len(devices) > maxVarIDs {
		return nil, fmt.Errorf("it has more than %d device IDs; request fewer devices of the resource: %w", maxVarIDs,
			errdefs.ErrInvalidArgument)
	}
	all := map[string]deviceEnv{}
	for _, id := range slices.Sorted(maps.Keys(devices)) {
		if err := checkID(id); err != nil {
			return nil, err
		}
		var d deviceEnv
		for kind, information := range devices[id] {
			if information == nil || information.Kind != jsontree.Object {
				continue
			}
			var members map[string]*jsontree.Node
			if fault := (jsontree.Decoder{}).Decode(information, &members); fault != nil {
				return nil, fault
			}
			d.addInformation(kind, members)
		}
		slices.Sort(d.nodes)
		d.nodes = slices.Compact(d.nodes)
		all[canonicalID(id)] = d
	}
	return all, nil
}

// addInformation adds one kind of information.
func (d *deviceEnv) addInformation(kind string, members map[string]*jsontree.Node) {
	for key, m := range members {
		switch {
		case m == nil || m.Kind != jsontree.String:
		case kind == "rdma" && key == "rdma_dev":
			d.rdma = m.Text
		case isNodeKey(kind, key) && strings.HasPrefix(m.Text, "/dev/") && len(m.Text) <= maxID:
			d.nodes = append(d.nodes, m.Text)
			if kind == "vhost" && key == "net-mount" {
				d.vhostNet = m.Text
			}
		}
	}
}

// isNodeKey reports whether the value of a key is the path of a device node. For vfio, the plugin's
// README and its code use different keys, so both are accepted.
func isNodeKey(kind, key string) bool {
	keys := map[string][]string{
		"vfio":  {"mount", "dev-mount", "vfio-mount", "vfio-dev-mount"},
		"vhost": {"net-mount", "tun-mount"},
		"vdpa":  {"mount"},
		"uio":   {"mount"},
		"rdma":  {"uverbs", "umad", "issm", "rdma_cm"},
	}
	return slices.Contains(keys[kind], key)
}

// variableOf returns the variable of a resource.
func (e environment) variableOf(resource string) (variable, bool) {
	key := envKey(resource)
	for _, v := range e {
		if v.key == key {
			return v, true
		}
	}
	return variable{}, false
}

// variableWithID returns a variable with a device ID, preferably the resource's own.
func (e environment) variableWithID(id, resource string) (variable, bool) {
	if v, ok := e.variableOf(resource); ok && containsID(v.ids, id) {
		return v, true
	}
	for _, v := range e {
		if containsID(v.ids, id) {
			return v, true
		}
	}
	return variable{}, false
}

// envKey returns a resource's name in the spelling of sriov-network-device-plugin's variables:
// upper case, with "_" for "/" and ".".
func envKey(resource string) string {
	return strings.NewReplacer("/", "_", ".", "_").Replace(strings.ToUpper(resource))
}
