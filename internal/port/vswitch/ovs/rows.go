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

// This file maps ports to rows of the database and back. The driver must keep the settings of other
// programs, so it changes single columns, and in maps single keys.
//
// Keys of external_ids. The first two are the mark.
const (
	managedKey   = "jackfield:managed" // always "true"
	ownerKey     = "jackfield:owner"   // container ID, "/", interface
	networkKey   = "jackfield:network"
	namespaceKey = "jackfield:namespace"
	podKey       = "jackfield:pod"
	addressesKey = "jackfield:addresses" // CIDR form, separated by commas
	queuesKey    = "jackfield:queues"
	// OVN binds the interface to the logical port with this name, and reads the address from
	// attached-mac.
	logicalPortKey = "iface-id"
	macKey         = "attached-mac"
)

var externalIDKeys = []string{managedKey, ownerKey, networkKey, namespaceKey, podKey, addressesKey, queuesKey,
	logicalPortKey, macKey}

// Interface types, and the option that holds the socket's path.
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

// parseRows decodes the rows of a select.
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

// ownerOf returns the owner from the mark, or false if there is no mark.
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

// desiredInterface returns the interface's row. The number of queues is not a setting of the
// switch: the application chooses it when it connects.
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

// portOf converts the rows of a port.
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

// contents holds rows of the database: all bridges, and the ports and interfaces that meet a
// condition.
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

// state holds the rows that concern one port.
type state struct {
	port    *portRow
	iface   *interfaceRow
	bridges []bridgeRow // all
	bridge  *bridgeRow  // the requested bridge
	system  systemRow
}

// readState reads the rows that concern a port in one transaction, so that they belong together.
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

// isOnBridge reports whether exactly the requested bridge has the port.
func (s *state) isOnBridge() bool {
	return !slices.ContainsFunc(s.bridges, func(b bridgeRow) bool {
		return slices.Contains(b.Ports, s.port.UUID) != (b.UUID == s.bridge.UUID)
	})
}

// planChanges returns the operations that turn the rows into the desired ones, or none. creates
// reports whether they create the port. The first operation makes the transaction fail if the rows
// have changed since they were read.
func planChanges(s *state, port vswitch.Port) (operations []operation, creates bool) {
	newPort, newIface := desiredPort(port), desiredInterface(port)
	insert := []operation{
		{"op": "insert", "table": "Interface", "uuid-name": "newInterface", "row": map[string]any{
			"name": port.Name, "type": newIface.Type, "options": newIface.Options,
			"mtu_request":           newIface.MTURequest,
			"ingress_policing_rate": newIface.Rate, "ingress_policing_burst": newIface.Burst,
			"external_ids": newIface.ExternalIDs}},
		{"op": "insert", "table": "Port", "uuid-name": "newPort", "row": map[string]any{
			"name": port.Name, "tag": newPort.Tag, "interfaces": newRow("newInterface"),
			"external_ids": newPort.ExternalIDs}},
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
		"columns": []string{"external_ids"}, "until": "==",
		"rows": []any{map[string]any{"external_ids": s.port.ExternalIDs}}}
	if s.iface == nil || !slices.Equal(s.port.Interfaces, set[uuid]{s.iface.UUID}) {
		// Another program changed the port's interfaces, so the port is re-created.
		remove := mutateRows("Bridge", [][3]any{{"ports", "delete", s.port.UUID}})
		return append([]operation{unchanged, remove}, insert...), false
	}
	thisInterface := condition{"_uuid", "==", s.iface.UUID}
	if s.iface.Type != newIface.Type || !slices.Equal(s.iface.MTURequest, newIface.MTURequest) ||
		s.iface.Rate != newIface.Rate || s.iface.Burst != newIface.Burst {
		operations = append(operations, operation{"op": "update", "table": "Interface", "where": where(thisInterface),
			"row": map[string]any{
				"type": newIface.Type, "mtu_request": newIface.MTURequest,
				"ingress_policing_rate": newIface.Rate, "ingress_policing_burst": newIface.Burst}})
	}
	if !slices.Equal(s.port.Tag, newPort.Tag) {
		operations = append(operations, operation{"op": "update", "table": "Port", "where": where(thisPort),
			"row": map[string]any{"tag": newPort.Tag}})
	}
	for _, m := range []struct {
		table            string
		row              condition
		column           string
		keys             []string
		current, desired stringMap
	}{
		{"Interface", thisInterface, "options", []string{socketOption}, s.iface.Options, newIface.Options},
		{"Interface", thisInterface, "external_ids", externalIDKeys, s.iface.ExternalIDs, newIface.ExternalIDs},
		{"Port", thisPort, "external_ids", externalIDKeys, s.port.ExternalIDs, newPort.ExternalIDs},
	} {
		if mutations := mutateKeys(m.column, m.keys, m.current, m.desired); mutations != nil {
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

// mutateKeys returns the mutations of a map column that set the given keys to their desired values. Keys of other
// programs stay unchanged.
func mutateKeys(column string, keys []string, current, desired stringMap) [][3]any {
	differs := slices.ContainsFunc(keys, func(key string) bool {
		value, isSet := current[key]
		newValue, isDesired := desired[key]
		return isSet != isDesired || value != newValue
	})
	if !differs {
		return nil
	}
	return [][3]any{{column, "delete", set[string](keys)}, {column, "insert", desired}}
}
