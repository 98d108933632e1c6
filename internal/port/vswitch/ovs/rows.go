// SPDX-License-Identifier: Apache-2.0

package ovs

import (
	"cmp"
	"encoding/json"
	"fmt"
	"path"
	"slices"
	"strconv"
	"strings"

	"github.com/jackfield/jackfield/internal/port/vswitch"
)

// Keys of external_ids. The first two are the mark.
const (
	managedKey   = "jackfield:managed" // always "true"
	ownerKey     = "jackfield:owner"   // container ID, "/", interface
	networkKey   = "jackfield:network"
	namespaceKey = "jackfield:namespace"
	podKey       = "jackfield:pod"
	addressesKey = "jackfield:addresses" // in CIDR form, with commas between
	queuesKey    = "jackfield:queues"
	// OVN binds the interface to its logical port of this name, and reads the address from the other key.
	logicalPortKey = "iface-id"
	macKey         = "attached-mac"
)

var externalIDKeys = []string{managedKey, ownerKey, networkKey, namespaceKey, podKey, addressesKey, queuesKey,
	logicalPortKey, macKey}

// Types of interfaces and the option with the socket's path.
const (
	applicationListens = "dpdkvhostuserclient"
	switchListens      = "dpdkvhostuser"
	socketOption       = "vhost-server-path"
)

type portRow struct {
	UUID        uuid      `json:"_uuid"`
	Name        string    `json:"name"`
	Tag         set[int]  `json:"tag"`
	Interfaces  set[uuid] `json:"interfaces"`
	ExternalIDs stringMap `json:"external_ids"`
}

type interfaceRow struct {
	UUID        uuid        `json:"_uuid"`
	Name        string      `json:"name"`
	Type        string      `json:"type"`
	Options     stringMap   `json:"options"`
	MTURequest  set[int]    `json:"mtu_request"`
	Rate        uint64      `json:"ingress_policing_rate"`  // kilobits a second
	Burst       uint64      `json:"ingress_policing_burst"` // kilobits
	ExternalIDs stringMap   `json:"external_ids"`
	Number      set[int]    `json:"ofport"` // -1 after an error
	Error       set[string] `json:"error"`
}

type bridgeRow struct {
	UUID         uuid      `json:"_uuid"`
	Name         string    `json:"name"`
	DatapathType string    `json:"datapath_type"`
	Ports        set[uuid] `json:"ports"`
}

type systemRow struct {
	NextConfig      int64       `json:"next_cfg"`
	OtherConfig     stringMap   `json:"other_config"`
	DPDKInitialized bool        `json:"dpdk_initialized"`
	InterfaceTypes  set[string] `json:"iface_types"`
}

var (
	portColumns      = []string{"_uuid", "name", "tag", "interfaces", "external_ids"}
	interfaceColumns = []string{"_uuid", "name", "type", "options", "mtu_request", "ingress_policing_rate",
		"ingress_policing_burst", "external_ids", "ofport", "error"}
	bridgeColumns = []string{"_uuid", "name", "datapath_type", "ports"}
	systemColumns = []string{"other_config", "dpdk_initialized", "iface_types"}
)

func (i interfaceRow) usable() bool { return i.Number.first() > 0 && i.Error.first() == "" }

func parseRows[T any](data []byte) ([]T, error) {
	var rows []T
	if err := json.Unmarshal(data, &rows); err != nil {
		return nil, fmt.Errorf("the server's answer has an unexpected form: %w", err)
	}
	return rows, nil
}

// parseRow returns the first row, or nil.
func parseRow[T any](data []byte) (*T, error) {
	rows, err := parseRows[T](data)
	return firstRow(rows), err
}

// firstRow returns the first row, or nil.
func firstRow[T any](rows []T) *T {
	if len(rows) == 0 {
		return nil
	}
	return &rows[0]
}

func ownerID(o vswitch.Owner) string { return o.ContainerID + "/" + o.Interface }

// ownerOf returns the owner that the mark names.
func ownerOf(ids stringMap) (vswitch.Owner, bool) {
	id, iface, ok := strings.Cut(ids[ownerKey], "/")
	if !ok || ids[managedKey] != "true" {
		return vswitch.Owner{}, false
	}
	return vswitch.Owner{ContainerID: id, Interface: iface, Network: ids[networkKey], Namespace: ids[namespaceKey],
		Pod: ids[podKey]}, true
}

// externalIDs returns the values of externalIDKeys for a port, without empty ones.
func externalIDs(p vswitch.Port) stringMap {
	ids := stringMap{managedKey: "true", ownerKey: ownerID(p.Owner)}
	for key, value := range map[string]string{
		networkKey: p.Owner.Network, namespaceKey: p.Owner.Namespace, podKey: p.Owner.Pod,
		addressesKey: strings.Join(p.Addresses, ","), macKey: p.MAC,
	} {
		if value != "" {
			ids[key] = value
		}
	}
	if p.Queues != 0 {
		ids[queuesKey] = strconv.Itoa(p.Queues)
	}
	if p.Owner.Pod != "" {
		// ovn-kubernetes names its ports NETWORK_NAMESPACE_POD. No name of a network has a colon, so
		// a tenant cannot take the logical port of another pod.
		ids[logicalPortKey] = "jackfield:" + p.Owner.Namespace + "_" + p.Owner.Pod + "_" + p.Owner.Interface
	}
	return ids
}

func desiredPort(p vswitch.Port) portRow {
	return portRow{Name: p.Name, Tag: optional(p.VLAN), ExternalIDs: externalIDs(p)}
}

// desiredInterface returns the interface's row. The number of queues is not a setting of the switch: the
// application chooses it when it connects.
func desiredInterface(p vswitch.Port) interfaceRow {
	row := interfaceRow{Name: p.Name, Type: applicationListens, Options: stringMap{socketOption: p.Socket},
		MTURequest: optional(p.MTU), ExternalIDs: externalIDs(p)}
	if p.SwitchListens {
		row.Type, row.Options = switchListens, stringMap{}
	}
	row.Rate = (p.Rate + 999) / 1000
	// TCP reaches the rate only with a burst of at least 80 % of it, ovs-vswitchd.conf.db(5).
	row.Burst = (row.Rate*8 + 9) / 10
	return row
}

// portOf returns the port that the rows describe.
func (d *Driver) portOf(row portRow, iface interfaceRow, bridge string, system systemRow) vswitch.Port {
	p := vswitch.Port{
		Name: row.Name, Type: vswitch.VhostUser, Bridge: bridge, Socket: iface.Options[socketOption],
		MAC: row.ExternalIDs[macKey], MTU: iface.MTURequest.first(), VLAN: row.Tag.first(), Rate: iface.Rate * 1000,
	}
	p.Owner, _ = ownerOf(row.ExternalIDs)
	if iface.Type == switchListens {
		p.SwitchListens = true
		p.Socket = path.Join(d.runDir(), system.OtherConfig["vhost-sock-dir"], row.Name)
	}
	if list := row.ExternalIDs[addressesKey]; list != "" {
		p.Addresses = strings.Split(list, ",")
	}
	p.Queues, _ = strconv.Atoi(row.ExternalIDs[queuesKey])
	p.Fault = iface.Error.first()
	return p
}

// contents are rows of the database: some of the ports and interfaces, and all bridges.
type contents struct {
	ports      []portRow
	interfaces []interfaceRow
	bridges    []bridgeRow
	system     *systemRow // nil in an empty database
}

// readContents reads the ports and interfaces that meet a condition.
func readContents(c *connection, which condition) (contents, error) {
	results, err := c.transact(
		selectRows("Port", portColumns, which),
		selectRows("Interface", interfaceColumns, which),
		selectRows("Bridge", bridgeColumns),
		selectRows("Open_vSwitch", systemColumns))
	if err != nil {
		return contents{}, err
	}
	var v contents
	var err1, err2, err3, err4 error
	v.ports, err1 = parseRows[portRow](results[0].Rows)
	v.interfaces, err2 = parseRows[interfaceRow](results[1].Rows)
	v.bridges, err3 = parseRows[bridgeRow](results[2].Rows)
	v.system, err4 = parseRow[systemRow](results[3].Rows)
	return v, cmp.Or(err1, err2, err3, err4)
}

// state is what the database has of a port.
type state struct {
	port    *portRow
	iface   *interfaceRow
	bridges []bridgeRow // all
	bridge  *bridgeRow  // the desired one
	system  systemRow
}

func readState(c *connection, port vswitch.Port) (*state, error) {
	v, err := readContents(c, condition{"name", "==", port.Name})
	if err != nil {
		return nil, err
	}
	if v.system == nil {
		return nil, errEmptyDatabase
	}
	s := &state{bridges: v.bridges, system: *v.system, port: firstRow(v.ports), iface: firstRow(v.interfaces)}
	if i := slices.IndexFunc(v.bridges, func(b bridgeRow) bool { return b.Name == port.Bridge }); i >= 0 {
		s.bridge = &v.bridges[i]
	}
	return s, nil
}

// isOnBridge reports whether the desired bridge, and no other, has the port.
func (s *state) isOnBridge() bool {
	return !slices.ContainsFunc(s.bridges, func(b bridgeRow) bool {
		return slices.Contains(b.Ports, s.port.UUID) != (b.UUID == s.bridge.UUID)
	})
}

// planChanges returns the operations that make the rows as desired, and whether they create the port.
// There are none if the rows are as desired.
func planChanges(s *state, port vswitch.Port) (operations []operation, creates bool) {
	wantPort, wantInterface := desiredPort(port), desiredInterface(port)
	insert := []operation{
		{"op": "insert", "table": "Interface", "uuid-name": "newInterface", "row": map[string]any{
			"name": port.Name, "type": wantInterface.Type, "options": wantInterface.Options,
			"mtu_request":           wantInterface.MTURequest,
			"ingress_policing_rate": wantInterface.Rate, "ingress_policing_burst": wantInterface.Burst,
			"external_ids": wantInterface.ExternalIDs}},
		{"op": "insert", "table": "Port", "uuid-name": "newPort", "row": map[string]any{
			"name": port.Name, "tag": wantPort.Tag, "interfaces": newRow("newInterface"),
			"external_ids": wantPort.ExternalIDs}},
		mutateRows("Bridge", [][3]any{{"ports", "insert", newRow("newPort")}}, condition{"name", "==", port.Bridge}),
	}
	if s.port == nil {
		free := operation{"op": "wait", "timeout": 0, "table": "Port",
			"where":   where(condition{"name", "==", port.Name}),
			"columns": []string{"name"}, "until": "==", "rows": []any{}}
		return append([]operation{free}, insert...), true
	}
	thisPort := condition{"_uuid", "==", s.port.UUID}
	unchanged := operation{"op": "wait", "timeout": 0, "table": "Port", "where": where(thisPort),
		"columns": []string{"external_ids"}, "until": "==", "rows": []any{map[string]any{"external_ids": s.port.ExternalIDs}}}
	if s.iface == nil || !slices.Equal(s.port.Interfaces, set[uuid]{s.iface.UUID}) {
		// Someone changed the interfaces of the port: it is made again as a whole.
		remove := mutateRows("Bridge", [][3]any{{"ports", "delete", s.port.UUID}})
		return append([]operation{unchanged, remove}, insert...), false
	}
	thisInterface := condition{"_uuid", "==", s.iface.UUID}
	if s.iface.Type != wantInterface.Type || !slices.Equal(s.iface.MTURequest, wantInterface.MTURequest) ||
		s.iface.Rate != wantInterface.Rate || s.iface.Burst != wantInterface.Burst {
		operations = append(operations, operation{"op": "update", "table": "Interface", "where": where(thisInterface),
			"row": map[string]any{
				"type": wantInterface.Type, "mtu_request": wantInterface.MTURequest, "ingress_policing_rate": wantInterface.Rate, "ingress_policing_burst": wantInterface.Burst}})
	}
	if !slices.Equal(s.port.Tag, wantPort.Tag) {
		operations = append(operations, operation{"op": "update", "table": "Port", "where": where(thisPort),
			"row": map[string]any{"tag": wantPort.Tag}})
	}
	for _, m := range []struct {
		table     string
		row       condition
		column    string
		keys      []string
		has, want stringMap
	}{
		{"Interface", thisInterface, "options", []string{socketOption}, s.iface.Options, wantInterface.Options},
		{"Interface", thisInterface, "external_ids", externalIDKeys, s.iface.ExternalIDs, wantInterface.ExternalIDs},
		{"Port", thisPort, "external_ids", externalIDKeys, s.port.ExternalIDs, wantPort.ExternalIDs},
	} {
		if mutations := mutateKeys(m.column, m.keys, m.has, m.want); mutations != nil {
			operations = append(operations, mutateRows(m.table, mutations, m.row))
		}
	}
	if !s.isOnBridge() {
		operations = append(operations,
			mutateRows("Bridge", [][3]any{{"ports", "delete", s.port.UUID}}),
			mutateRows("Bridge", [][3]any{{"ports", "insert", s.port.UUID}}, condition{"_uuid", "==", s.bridge.UUID}))
	}
	if len(operations) == 0 {
		return nil, false
	}
	return append([]operation{unchanged}, operations...), false
}

// mutateKeys returns the mutations of a map that give the keys the desired values, and leave the keys of
// other programs alone.
func mutateKeys(column string, keys []string, has, want stringMap) [][3]any {
	differs := slices.ContainsFunc(keys, func(key string) bool {
		value, ok := has[key]
		desired, wanted := want[key]
		return ok != wanted || value != desired
	})
	if !differs {
		return nil
	}
	return [][3]any{{column, "delete", set[string](keys)}, {column, "insert", want}}
}
