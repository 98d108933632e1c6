// SPDX-License-Identifier: Apache-2.0

package cni

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/jackfield/jackfield/internal/base/testkit"

	"github.com/jackfield/jackfield/internal/config"
	"github.com/jackfield/jackfield/internal/port/attach"
)

// The author of a network is not trusted, and can have files of root in a volume. Only the node's configuration lists
// locations. DEL of the refused network succeeds.
func TestNetworkCannotChooseUnlistedLocation(t *testing.T) {
	const volume = "/var/lib/kubelet/pods/u/volumes/kubernetes.io~empty-dir/v"
	for _, key := range []string{"stateDir", "claimsDir", "socketDir", "deviceInfoDir", "configFile", "socketDirSize"} {
		value := volume + "/d"
		switch key {
		case "configFile":
			value = "/etc/other.yaml"
		case "socketDirSize":
			value = "1Gi"
		}
		n := newNode(t)
		testkit.Must(t, os.MkdirAll(filepath.Join(n.dir, volume), 0o755))
		conf := confWith(`, "` + key + `": "` + value + `"`)
		for _, command := range []string{"ADD", "STATUS"} {
			a := n.run(env(command), conf)
			for _, text := range []string{key, value, config.LocationList(key), config.DefaultPath} {
				if a.code != codeConfig || !strings.Contains(a.all, text) {
					t.Errorf("%s %s: code %d, %s; want code %d with %q", command, key, a.code, a.all, codeConfig, text)
				}
			}
		}
		n.mustRun(env("DEL"), conf)
		n.mustRun(env("GC"), confWith(`, "cni.dev/valid-attachments": [], "`+key+`": "`+value+`"`))
		if left, _ := os.ReadDir(filepath.Join(n.dir, volume)); len(left) > 0 || len(n.files()) > 0 {
			t.Errorf("%s: left %q and %q", key, left, n.files())
		}
		n.list(strings.TrimPrefix(config.LocationList(key), "cni.") + ": [" + value + "]")
		n.mustRun(env("STATUS"), conf)
	}
}

// DEL uses a listed directory of records, and reports a broken configuration only if it would lose a record.
func TestDelWithBrokenNodeConfiguration(t *testing.T) {
	n := newNode(t)
	n.list("stateDirs: [/srv/state]")
	conf := confWith(`, "stateDir": "/srv/state"`)
	n.mustRun(env("ADD"), conf)
	n.write(config.DefaultPath, "cni: {stateDirs: 1}\n")
	if a := n.run(env("DEL"), conf); a.code != codeConfig || !strings.Contains(a.all, "cni.stateDirs") {
		t.Errorf("code %d, %s", a.code, a.all)
	}
	n.mustRun(env("DEL", "CNI_CONTAINERID=other"), conf)
	n.list("stateDirs: [/srv/state]")
	n.mustRun(env("DEL"), conf)
	if left := n.files(); len(left) > 0 {
		t.Errorf("left %q", left)
	}
}

// A record leads DEL only to locations that the node's configuration lists, and to what has the attachment's names.
func TestForgedRecordLeadsNowhere(t *testing.T) {
	for name, forge := range map[string][2]string{
		"deviceInfoDir":  {`"deviceInfoDir":"/var/run/k8s.cni.cncf.io/devinfo/cni"`, `"deviceInfoDir":"/srv/data"`},
		"deviceInfoFile": {`"deviceInfoFile":"default-fast-` + testID + `_net1"`, `"deviceInfoFile":"file"`},
		"socketDir":      {`"socketDir":"` + attach.DefaultSocketDir + `"`, `"socketDir":"/srv/data"`},
		"directory":      {`"directory":"` + socketDirName("fast", testID, "net1") + `"`, `"directory":"tree"`},
		"claimsDir":      {`"claimsDir":"` + attach.DefaultClaimsDir + `"`, `"claimsDir":"/srv/data"`},
		"claimed":        {`/sockets/` + socketDirName("fast", testID, "net1") + `"`, `/sockets/other"`},
		"configFile":     {`"deviceInfoDir"`, `"configFile":"/etc/other.yaml","deviceInfoDir"`},
	} {
		n := newNode(t)
		n.write("/srv/data/file", "precious")
		n.write("/srv/data/tree/file", "precious")
		n.mustRun(env("ADD"), confWith(""))
		file := filepath.Join(n.dir, attach.DefaultStateDir, recordFileName("fast", testID, "net1"))
		data, err := os.ReadFile(file)
		testkit.Must(t, err)
		forged := strings.ReplaceAll(string(data), forge[0], forge[1])
		if forged == string(data) {
			t.Fatalf("%s: the record is %s", name, data)
		}
		testkit.Must(t, os.WriteFile(file, []byte(forged), 0o600))
		a := n.run(env("DEL"), confWith(""))
		if a.code != 0 || !strings.Contains(a.stderr, name+": invalid value") {
			t.Errorf("%s: code %d, %s, %s", name, a.code, a.all, a.stderr)
		}
		for _, kept := range []string{"file", "tree/file"} {
			if _, err := os.Stat(filepath.Join(n.dir, "/srv/data", kept)); err != nil {
				t.Errorf("%s: %v", name, err)
			}
		}
		if left := n.files(); len(left) > 0 {
			t.Errorf("%s: left %q", name, left)
		}
	}
}
