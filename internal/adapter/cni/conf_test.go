// SPDX-License-Identifier: Apache-2.0

package cni

import (
	"strings"
	"testing"

	"github.com/jackfield/jackfield/internal/base/testkit"

	"github.com/jackfield/jackfield/internal/base/diag"
	"github.com/jackfield/jackfield/internal/port/attach"
	"github.com/jackfield/jackfield/internal/source/attachment"
	"github.com/jackfield/jackfield/pkg/deviceinfo"
)

// Each error has its code, and names the key and value.
func TestAddRefusesInvalidConfigurations(t *testing.T) {
	n := newNode(t)
	long := strings.Repeat("n", 250)
	for conf, want := range map[string]struct {
		code uint
		msg  string
	}{
		confWith(`, "socketdir": "/x"`):                                                                {codeField, `"socketdir": "/x"`},
		confWith(`, "hairpinMode": true, "isGateway": true`):                                           {codeField, `"hairpinMode": true, "isGateway": true`},
		confWith(`, "vswitches": "ovs0"`):                                                              {codeField, `"vswitches": "ovs0"`},
		confOf("1.1.0", `"vswitch": "ovs0", "device": {"type": "pci", "pci-address": "0000:03:00.3"}`): {codeField, `"vswitch": "ovs0"`},
		confWith(`, "bridge": "br0"`):                                                                  {codeConfig, `bridge: "br0"`},
		confWith(`, "mtu": 9000`):                                                                      {codeConfig, `mtu: 9000`},
		confWith(`, "vswitch": 1`):                                                                     {codeConfig, `vswitch: 1`},
		confWith(`, "vswitch": "ovs0", "mtu": 67`):                                                     {codeConfig, `mtu: 67`},
		confWith(`, "vswitch": "ovs0", "mtu": "9000"`):                                                 {codeConfig, `mtu: "9000"`},
		confWith(`, "vswitch": "ovs0", "vlan": 4095`):                                                  {codeConfig, `vlan: 4095`},
		confWith(`, "timeout": "2s"`):                                                                  {codeConfig, `timeout: "2s"`},
		confWith(`, "timeout": "3m"`):                                                                  {codeConfig, `timeout: "3m"`},
		confWith(`, "timeout": 10`):                                                                    {codeConfig, `timeout: 10`},
		confWith(`, "vswitch": "ovs0", "vlan": 0`):                                                     {codeConfig, `vlan: 0`},
		confWith(`, "vswitch": "ovs0", "queues": 1.5`):                                                 {codeConfig, `queues: 1.5`},
		confWith(`, "vswitch": "ovs0", "rate": "1Gi"`):                                                 {codeConfig, `rate: "1Gi"`},
		confWith(`, "vswitch": "ovs0", "rate": []`):                                                    {codeConfig, `configuration is missing`},
		confWith(`, "configFile": "/var/lib/kubelet/x.yaml"`):                                          {codeConfig, `configFile: "/var/lib/kubelet/x.yaml"`},
		confWith(`, "configFile": "/etc/../var/x.yaml"`):                                               {codeConfig, `configFile: "/etc/../var/x.yaml"`},
		confWith(`, "vswitch": "ovs0"`):                                                                {codeConfig, `the node's configuration is missing`},
		confOf("1.1.0", `"vswitch": "ovs0", "device": {"type": "vhost-user", "mode": "client", "path": "`+attach.DefaultSocketDir+`/a/b"}`): {codeConfig, "device.path"},
		confOf("1.1.0", `"vswitch": "ovs0", "device": {"type": "memif", "role": "slave", "path": "@x"}`):                                    {codeConfig, "device.path"},
		confOf("1.1.0", `"vswitch": "ovs0", "device": {"type": "memif", "role": "slave", "mode": "ip"}`):                                    {codeConfig, "device.mode"},
		confWith(`, "ipMasq": true`):                                                                                        {codeField, `"ipMasq": true`},
		confWith(`, "dns": {"servers": ["10.0.0.1"]}`):                                                                      {codeField, `"dns.servers": ["10.0.0.1"]`},
		confOf("1.1.0", `"device": {"type": "memif", "role": "master", "owner": {"uid": 1}}`):                               {codeField, `"device.owner": {"uid":1}`},
		confWith(`, "runtimeConfig": {"portMappings": [{"containerPort": 80, "hostPort": 8080, "protocol": "tcp"}]}`):       {codeField, `"runtimeConfig.portMappings": [{"containerPort":80,"hostPort":8080,"protocol":"tcp"}]`},
		confWith(`, "runtimeConfig": {"infinibandGUID": "c2:11:22:33:44:55:66:77"}`):                                        {codeField, `"runtimeConfig.infinibandGUID": "c2:11:22:33:44:55:66:77"`},
		confWith(`, "runtimeConfig": {"io.kubernetes.cri.pod-annotations": {"a": "b"}}`):                                    {codeField, `pod-annotations": {"a":"b"}`},
		confWith(`, "runtimeConfig": {"ipRanges": [[{"subnet": "10.1.2.0/24"}]]}`):                                          {codeField, `"runtimeConfig.ipRanges": [[{"subnet":"10.1.2.0/24"}]]`},
		confWith(`, "runtimeConfig": {"bandwidth": {"rate": 1}}`):                                                           {codeField, `"runtimeConfig.bandwidth.rate": 1`},
		confOf("1.1.0", `"socketDir": "/x"`):                                                                                {codeConfig, "device"},
		confOf("1.1.0", `"device": {"type": "tap"}`):                                                                        {codeConfig, `device.type: "tap"`},
		confOf("1.1.0", `"device": {"type": "vhost-user"}`):                                                                 {codeConfig, "device.mode"},
		confOf("1.1.0", `"device": {"type": "memif", "role": "client"}`):                                                    {codeConfig, `device.role: "client"`},
		confOf("1.1.0", `"device": {"type": "memif", "role": "slave", "mode": "udp"}`):                                      {codeConfig, `device.mode: "udp"`},
		confOf("1.1.0", `"device": {"type": "vhost-user", "mode": "server", "version": "2.0.0"}`):                           {codeConfig, "device.version"},
		confOf("1.1.0", `"device": {"type": "vhost-user", "mode": "server", "path": "a/b"}`):                                {codeConfig, "device.path"},
		confOf("1.1.0", `"device": {"type": "vhost-user", "mode": "server", "path": ".."}`):                                 {codeConfig, "device.path"},
		confOf("1.1.0", `"device": {"type": "vhost-user", "mode": "server", "path": "/run/vsw/s/x"}`):                       {codeConfig, "device.path"},
		confOf("1.1.0", `"device": {"type": "vhost-user", "mode": "client", "path": "/run/vsw/s/x"}`):                       {codeConfig, "device.path"},
		confOf("1.1.0", `"device": {"type": "vhost-user", "mode": "client", "path": "`+attach.DefaultSocketDir+`/x"}`):      {codeConfig, "device.path"},
		confOf("1.1.0", `"device": {"type": "vhost-user", "mode": "client", "path": "`+attach.DefaultSocketDir+`/../x/y"}`): {codeConfig, "device.path"},
		confOf("1.1.0", `"device": []`):                                                                                     {codeConfig, "device: []"},
		confWith(`, "socketDir": "relative"`):                                                                               {codeConfig, `socketDir: "relative"`},
		confWith(`, "socketDir": "/run/../etc"`):                                                                            {codeConfig, "socketDir"},
		confWith(`, "socketDir": "/tmp"`):                                                                                   {codeConfig, "socketDir"},
		confWith(`, "socketDir": "/dev/vsw"`):                                                                               {codeConfig, "socketDir"},
		confWith(`, "socketDir": 1`):                                                                                        {codeConfig, "socketDir: 1"},
		confWith(`, "stateDir": "/etc/jackfield"`):                                                                          {codeConfig, "stateDir"},
		confWith(`, "ipam": {"type": "../bin/sh"}`):                                                                         {codeConfig, "ipam.type"},
		confWith(`, "ipam": "host-local"`):                                                                                  {codeConfig, "ipam"},
		confWith(`, "ipam": {"type": "missing"}`):                                                                           {codeConfig, "missing"},
		confWith(`, "ipam": {"typ": "host-local"}`):                                                                         {codeConfig, "ipam.type"},
		confWith(`, "ipam": {"type": "", "subnet": "10.1.0.0/24"}`):                                                         {codeConfig, "ipam.type"},
		confWith(`, "runtimeConfig": {"mac": "00:00:00:00:00:00"}`):                                                         {codeConfig, "runtimeConfig.mac"},
		confWith(`, "dns": {"nameservers": ["ns.example"]}`):                                                                {codeConfig, "dns.nameservers"},
		confWith(`, "runtimeConfig": {"mac": "xx"}`):                                                                        {codeConfig, "runtimeConfig.mac"},
		confWith(`, "runtimeConfig": {"mac": "01:00:5e:00:00:01"}`):                                                         {codeConfig, "runtimeConfig.mac"},
		confWith(`, "runtimeConfig": {"ips": ["10.0.0.1"]}`):                                                                {codeConfig, "runtimeConfig.ips"},
		confWith(`, "runtimeConfig": {"ips": ["x"]}`):                                                                       {codeConfig, "runtimeConfig.ips"},
		confWith(`, "runtimeConfig": {"dns": {"servers": ["x"]}}`):                                                          {codeConfig, "runtimeConfig.dns.servers"},
		confWith(`, "runtimeConfig": {"deviceID": 1}`):                                                                      {codeConfig, "runtimeConfig.deviceID"},
		strings.Replace(confWith(""), `"fast"`, `"../x"`, 1):                                                                {codeConfig, "name"},
		strings.Replace(confWith(""), `"fast"`, `""`, 1):                                                                    {codeConfig, "name"},
		strings.Replace(confWith(""), `"fast"`, `"`+long+`"`, 1):                                                            {codeConfig, "name"},
		strings.Replace(confWith(""), `"fast"`, `1`, 1):                                                                     {codeDecode, "decode"},
		strings.Replace(confWith(""), "1.1.0", "0.2.0", 1):                                                                  {codeVersion, "incompatible CNI versions"},
		strings.Replace(confWith(""), "1.1.0", "9.9.9", 1):                                                                  {codeVersion, "incompatible CNI versions"},
		strings.Replace(confWith(""), "1.1.0", "one", 1):                                                                    {codeDecode, "version"},
		`{"name": "fast", "type": "jackfield-cni"}`:                                                                         {codeVersion, "incompatible CNI versions"},
		`{"cniVersion": `:             {codeDecode, "decode"},
		`[]`:                          {codeDecode, "decode"},
		confWith(`, "prevResult": 7`): {codeDecode, "prevResult"},
		``:                            {codeDecode, "decode"},
	} {
		a := n.run(env("ADD"), conf)
		if strings.Contains(a.all, "Go value") {
			t.Errorf("%s: the message speaks of the program's types: %s", diag.Excerpt(conf, diag.MaxExcerpt), a.all)
		}
		if a.code != want.code || !strings.Contains(a.msg, want.msg) {
			t.Errorf("%s:\ncode %d, %s\nwant code %d with %q in the message", diag.Excerpt(conf, diag.MaxExcerpt), a.code, a.all, want.code, want.msg)
		}
	}
	if left := n.files(); len(left) > 0 {
		t.Errorf("refusals left %q", left)
	}
}

func TestConfigurationErrorsHavePlaceAndSuggestion(t *testing.T) {
	const head = "{\"cniVersion\": \"1.1.0\",\n \"name\": \"fast\", \"type\": \"jackfield-cni\",\n "
	for keys, want := range map[string]string{
		`"device": {"type": "tap"}}`: `line 3, column 21: device.type: invalid value "tap"`,
		`"device": {"type": "vhost-user",
   "mode": "client", "path": "a/b"}}`: `line 4, column 30: device.path: invalid value "a/b"`,
		`"device": {"type": "vhost-user", "mode": "server"}, "socketdirs": "/x"}`:       `line 3, column 68: neither the CNI specification, its runtimes, Multus nor this plugin defines it; did you mean socketDir?`,
		`"device": {"type": "vhost-user", "modus": "server"}}`:                          `line 3, column 44: device-info of type vhost-user has mode, path; did you mean mode?`,
		`"device": {"type": "vhost-user", "mode": "server"}, "socketDir": "/run/vsw/"}`: `socketDir: invalid value "/run/vsw/": must be a path without //, /./, /../ and without / at the end, which is "/run/vsw"`,
		`"runtimeConfig": {"io.kubernetes.cri.x": 1}}`:                                  `line 3, column 43: this plugin does not know the capability`,
		`"device": {"type": "vhost-user" "mode": "server"}}`:                            `line 3, column 34: found '"': a comma or } is required`,
		`"prevResult": {"ips": 1}, "device": {"type": "vhost-user", "mode": "server"}}`: `line 3, column 16: prevResult: 3:24: ips: found a number: must be an array`,
	} {
		if a := newNode(t).run(env("ADD"), head+keys); !strings.Contains(a.all, want) {
			t.Errorf("%s:\n%s\nwant %s", keys, a.all, want)
		}
	}
}

// Keys that request nothing are accepted, and so are keys that runtimes and Multus add.
func TestAddAcceptsKeysThatRequestNothing(t *testing.T) {
	for _, keys := range []string{
		`, "cniVersions": ["1.0.0", "1.1.0"], "disableCheck": true, "disableGC": false, "loadOnlyInlinedPlugins": false, "ipMasq": false`,
		`, "capabilities": {"CNIDeviceInfoFile": true, "mac": true, "ips": true}, "ipam": {}, "dns": {}, "args": {"cni": {}, "else": 1}`,
		`, "runtimeConfig": {"portMappings": [], "mac": "", "ips": null, "dns": {}, "bandwidth": {}, "x": null}, "prevResult": null`,
		`, "deviceID": "0000:03:00.3", "pciBusID": "0000:03:00.3", "cni.dev/attachments": [], "cni.dev/new": 1, "deviceInfoDir": "/var/lib/cni/devinfo"`,
		`, "args": {"cni": {"labels": 7, "ips": ["x"], "mac": 1}}`,
		`, "args": 1, "runtimeConfig": {"bandwidth": {"ingressRate": 0}}`,
	} {
		n := newNode(t)
		n.mustRun(env("ADD"), confWith(keys))
		n.mustRun(env("DEL"), confWith(keys))
		if left := n.files(); len(left) > 0 {
			t.Errorf("%s: left %q", keys, left)
		}
	}
}

// The conventions have an order: runtimeConfig, then args, then CNI_ARGS.
func TestRuntimeConfigTakesPrecedence(t *testing.T) {
	const both = "CNI_ARGS=IP=192.168.10.4/24;MAC=c2:00:00:00:00:01"
	for name, c := range map[string]struct{ environ, keys, want string }{
		"CNI_ARGS": {both, ``, `{"network": "fast", "mac": "c2:00:00:00:00:01", "ips": ["192.168.10.4/24"]}`},
		"several": {"CNI_ARGS=IP=192.168.10.4/24,fd00::4/64;K8S_POD_NAMESPACE=", `, "runtimeConfig": {"dns": {"servers": ["fe80::1%eth0"]}}`,
			`{"network": "fast", "ips": ["192.168.10.4/24", "fd00::4/64"], "dns": {"nameservers": ["fe80::1%eth0"]}}`},
		"args": {both, `, "args": {"cni": {"ips": ["10.2.2.42/24", "2001:db8::5"], "mac": "c2:00:00:00:00:02", "labels": [{"key": "app", "value": "a"}]}}`,
			`{"network": "fast", "mac": "c2:00:00:00:00:02", "ips": ["10.2.2.42/24"], "labels": [{"key": "app", "value": "a"}]}`},
		"runtime": {both, `, "runtimeConfig": {"mac": "c2:00:00:00:00:03", "ips": ["10.10.0.1/24"], "dns": {"servers": ["8.8.8.8"], "searches": ["corp"], "options": ["ndots:5"]},
				"bandwidth": {"ingressRate": 2048, "ingressBurst": 1600}}, "dns": {"nameservers": ["1.1.1.1"], "domain": "d"}, "args": {"cni": {"ips": ["10.10.0.1/24"]}}`,
			`{"network": "fast", "mac": "c2:00:00:00:00:03", "ips": ["10.10.0.1/24"], "dns": {"nameservers": ["8.8.8.8"], "search": ["corp"], "options": ["ndots:5"]},
				"bandwidth": {"ingressRate": 2048, "ingressBurst": 1600}}`},
		"containerd": {"CNI_ARGS=", `, "runtimeConfig": {"dns": {"Servers": ["8.8.8.8"], "Searches": null, "Options": null},
				"bandwidth": {"IngressRate": 2048, "IngressBurst": 1600, "EgressRate": 0, "EgressBurst": 0}}`,
			`{"network": "fast", "dns": {"nameservers": ["8.8.8.8"]}, "bandwidth": {"ingressRate": 2048, "ingressBurst": 1600}}`},
	} {
		t.Run(name, func(t *testing.T) {
			n := newNode(t)
			n.mustRun(env("ADD", c.environ), confWith(c.keys))
			_, content := n.readInfoFile()
			info, err := deviceinfo.Parse([]byte(content), "")
			testkit.Must(t, err)
			sameJSON(t, string(info.Extra[attachment.InterfaceInfoKey]), c.want)
		})
	}
}

func TestAddRefusesInvalidEnvironments(t *testing.T) {
	n := newNode(t)
	for name, c := range map[string]struct {
		environ []string
		code    uint
		text    string
	}{
		"no command":     {[]string{"CNI_PATH=/x"}, codeEnvironment, "CNI_COMMAND"},
		"command":        {env("EAT"), codeEnvironment, "CNI_COMMAND"},
		"several":        {env("ADD", "CNI_CONTAINERID=", "CNI_NETNS=", "CNI_IFNAME="), codeEnvironment, "CNI_CONTAINERID, CNI_NETNS, CNI_IFNAME"},
		"DEL":            {env("DEL", "CNI_IFNAME="), codeEnvironment, "CNI_IFNAME"},
		"id":             {env("ADD", "CNI_CONTAINERID=../x"), codeEnvironment, "CNI_CONTAINERID"},
		"interface":      {env("ADD", "CNI_IFNAME=a/b"), codeEnvironment, "CNI_IFNAME"},
		"long interface": {env("ADD", "CNI_IFNAME=sixteencharacter"), codeEnvironment, "CNI_IFNAME"},
		"netns":          {env("ADD", "CNI_NETNS=/run/netns/gone"), codeContainer, "container unknown"},
		"no netns":       {env("ADD", "CNI_NETNS=/etc/passwd"), codeEnvironment, "CNI_NETNS"},
		"other ns":       {env("ADD", "CNI_NETNS=/proc/self/ns/mnt"), codeEnvironment, "CNI_NETNS"},
		"own netns":      {env("ADD", "CNI_NETNS_OVERRIDE="), codeEnvironment, "CNI_NETNS"},
		"args":           {env("ADD", "CNI_ARGS=FOO=BAR"), codeEnvironment, "CNI_ARGS"},
		"args not":       {env("ADD", "CNI_ARGS=IgnoreUnknown=0;FOO=BAR"), codeEnvironment, "CNI_ARGS"},
		"args pair":      {env("ADD", "CNI_ARGS=FOO"), codeEnvironment, "CNI_ARGS"},
		"args bool":      {env("ADD", "CNI_ARGS=IgnoreUnknown=maybe"), codeEnvironment, "CNI_ARGS"},
		"args ip":        {env("ADD", "CNI_ARGS=IP=x"), codeEnvironment, "CNI_ARGS"},
		"args ips":       {env("ADD", "CNI_ARGS=IP=10.0.0.1/8,"), codeEnvironment, "CNI_ARGS"},
		"args ip prefix": {env("ADD", "CNI_ARGS=IP=10.0.0.1"), codeEnvironment, "CNI_ARGS"},
		"args mac":       {env("ADD", "CNI_ARGS=MAC=x"), codeEnvironment, "CNI_ARGS"},
		"args eui64":     {env("ADD", "CNI_ARGS=MAC=c2:11:22:33:44:55:66:77"), codeEnvironment, "six bytes"},
		"args multicast": {env("ADD", "CNI_ARGS=MAC=01:00:5e:00:00:01"), codeEnvironment, "multicast"},
		"odd interface":  {env("ADD", "CNI_IFNAME=a\x1b[1m"), codeEnvironment, "invalid environment variable CNI_IFNAME"},
		"no text":        {env("ADD", "CNI_IFNAME=a\xff"), codeEnvironment, "invalid environment variable CNI_IFNAME"},
		"long id":        {env("ADD", "CNI_CONTAINERID="+strings.Repeat("a", 240)), codeEnvironment, "invalid environment variable CNI_CONTAINERID"},
		"args namespace": {env("ADD", "CNI_ARGS=K8S_POD_NAMESPACE=../x"), codeEnvironment, "CNI_ARGS"},
		"GC path":        {env("GC", "CNI_PATH="), codeEnvironment, "CNI_PATH"},
	} {
		a := n.run(c.environ, confWith(`, "cni.dev/valid-attachments": []`))
		if a.code != c.code || !strings.Contains(a.all, c.text) {
			t.Errorf("%s: code %d, %s; want code %d with %q", name, a.code, a.all, c.code, c.text)
		}
	}
	// What the file is called does not matter.
	if a := n.run(env("ADD", "CNI_IFNAME=a\x1b[1m"), confWith(`, "runtimeConfig": {"CNIDeviceInfoFile": "/var/run/k8s.cni.cncf.io/devinfo/cni/x"}`)); a.code != codeEnvironment || !strings.Contains(a.msg, "CNI_IFNAME") {
		t.Errorf("code %d, %s", a.code, a.all)
	}
	// Values come from outside, and the message stays short.
	if a := n.run(env("ADD", "CNI_ARGS="+strings.Repeat("FOO=BAR;", 1000)), confWith("")); a.code != codeEnvironment || len(a.all) > 2000 {
		t.Errorf("code %d, %d bytes", a.code, len(a.all))
	}
	n.mustRun(env("ADD", "CNI_ARGS=IgnoreUnknown=true;FOO=BAR;K8S_POD_UID=u"), confWith(""))
	n.mustRun(env("DEL", "CNI_ARGS=FOO=BAR"), confWith(""))
	if left := n.files(); len(left) > 0 {
		t.Errorf("left %q", left)
	}
}

func TestVersionAnswersWithVersionOfRequest(t *testing.T) {
	n := newNode(t)
	for in, want := range map[string]string{`{"cniVersion": "0.4.0"}`: "0.4.0", ``: "1.1.0", `{}`: "1.1.0"} {
		a := n.mustRun([]string{"CNI_COMMAND=VERSION"}, in)
		sameJSON(t, a.out, `{"cniVersion": "`+want+`", "supportedVersions": ["0.3.0", "0.3.1", "0.4.0", "1.0.0", "1.1.0"]}`)
	}
	if a := n.run([]string{"CNI_COMMAND=VERSION"}, `{`); a.code != codeDecode {
		t.Errorf("code %d, %s", a.code, a.all)
	}
}
