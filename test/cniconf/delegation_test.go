// SPDX-License-Identifier: Apache-2.0

package cniconf_test

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/containernetworking/cni/pkg/types"
	noop "github.com/containernetworking/cni/plugins/test/noop/debug"

	"github.com/jackfield/jackfield/internal/base/testkit"
)

// lastCall reads the last call of noop.
func lastCall(t *testing.T, file string) *noop.Debug {
	t.Helper()
	d, err := noop.ReadDebug(file)
	testkit.Must(t, err)
	return d
}

// The delegated plugin gets jackfield-cni's environment and configuration.
func TestDelegatedPluginGetsEnvironmentAndConfiguration(t *testing.T) {
	k := require(t)
	r := newRuntime(t, k.Upstream)
	rt := r.attachment("c1")
	file := filepath.Join(t.TempDir(), "debug")
	rt.Args = append(rt.Args, [2]string{"DEBUG", file})
	l := r.list("1.1.0", `{`+server+`, "ipam": {"type": "noop", "anything": [1, 2]}, "args": {"x": "y"}}`)
	ok := noop.Debug{ReportResult: `{"cniVersion": "1.1.0", "ips": [{"address": "10.9.0.1/24", "gateway": "10.9.0.254"}], "routes": [{"dst": "0.0.0.0/0", "mtu": 1400}], "dns": {"nameservers": ["10.9.0.2"]}}`,
		ReportStderr: "the delegated plugin speaks"}
	testkit.Must(t, ok.WriteDebug(file))
	result := r.add(l, rt)
	if len(result.IPs) != 1 || result.IPs[0].Address.String() != "10.9.0.1/24" || len(result.Routes) != 1 || result.Routes[0].MTU != 1400 || result.DNS.Nameservers[0] != "10.9.0.2" {
		t.Errorf("the result is %+v", result)
	}
	if !strings.Contains(r.stderr.String(), "the delegated plugin speaks") {
		t.Errorf("standard error has %q", r.stderr)
	}
	for _, op := range []struct {
		command string
		run     func() error
	}{
		{"ADD", nil},
		{"CHECK", func() error { return r.CheckNetworkList(r.ctx, l, rt) }},
		{"DEL", func() error { return r.DelNetworkList(r.ctx, l, rt) }},
	} {
		if op.run != nil {
			testkit.Must(t, (&noop.Debug{}).WriteDebug(file))
			testkit.Must(t, op.run())
		}
		d := lastCall(t, file)
		a := d.CmdArgs
		if d.Command != op.command || a.ContainerID != rt.ContainerID || a.Netns != rt.NetNS || a.IfName != rt.IfName || a.Path != k.Upstream || !strings.Contains(a.Args, "K8S_POD_NAMESPACE=blue") {
			t.Errorf("%s: noop was called with %s %+v", op.command, d.Command, a)
		}
		var conf map[string]any
		testkit.Must(t, json.Unmarshal(a.StdinData, &conf))
		if conf["name"] != "dbnet" || conf["type"] != "jackfield-cni" || conf["device"] == nil || conf["args"] == nil || conf["ipam"].(map[string]any)["anything"] == nil {
			t.Errorf("%s: noop got the configuration %s", op.command, a.StdinData)
		}
	}
	r.checkNothingLeft()
}

// jackfield-cni returns the error of the delegated plugin, and calls its DEL after a failed ADD.
func TestErrorOfDelegatedPluginIsReturned(t *testing.T) {
	k := require(t)
	r := newRuntime(t, k.Upstream)
	rt := r.attachment("c1")
	file := filepath.Join(t.TempDir(), "debug")
	conf := `{"cniVersion": "1.1.0", "name": "dbnet", ` + server + `, "ipam": {"type": "noop"}, "cni.dev/valid-attachments": [],
		"prevResult": null}`
	env := func(command string) []string {
		return []string{"CNI_COMMAND=" + command, "CNI_CONTAINERID=c1", "CNI_IFNAME=eth0", "CNI_NETNS=" + rt.NetNS, "CNI_ARGS=IgnoreUnknown=1;DEBUG=" + file}
	}
	report := func(d noop.Debug) { testkit.Must(t, d.WriteDebug(file)) }
	for _, command := range []string{"ADD", "DEL", "STATUS", "GC"} {
		report(noop.Debug{ReportError: "no addresses left", ReportErrorCode: 142})
		_, e := r.execute("jackfield-cni", conf, env(command)...)
		if e == nil || e.Code != 142 || !strings.Contains(e.Msg, "no addresses left") || !strings.Contains(e.Msg, "noop") {
			t.Errorf("%s: %v", command, e)
		}
		want := command
		if command == "ADD" {
			want = "DEL"
		}
		if got := lastCall(t, file).Command; got != want {
			t.Errorf("%s: noop was called with %s last, want %s", command, got, want)
		}
		r.checkNothingLeft()
	}
	// The same holds for an unusable result.
	for _, result := range []string{`{"cniVersion": "1.1.0", "ips": []}`, `{`, `{"ips": [{"address": "x"}]}`} {
		report(noop.Debug{ReportResult: result})
		if _, e := r.execute("jackfield-cni", conf, env("ADD")...); e == nil || lastCall(t, file).Command != "DEL" {
			t.Errorf("result %s: %v", result, e)
		}
		r.checkNothingLeft()
	}
	// The same holds if a requested address was not assigned.
	report(noop.Debug{ReportResult: `{"cniVersion": "1.1.0", "ips": [{"address": "10.9.0.1/24"}]}`})
	asked := strings.Replace(conf, `"prevResult": null`, `"runtimeConfig": {"ips": ["10.9.0.7/24"]}`, 1)
	_, e := r.execute("jackfield-cni", asked, env("ADD")...)
	if e == nil || e.Code != types.ErrUnsupportedField || !strings.Contains(e.Msg, `"runtimeConfig.ips": ["10.9.0.7/24"]`) || lastCall(t, file).Command != "DEL" {
		t.Errorf("requested address was not assigned: %v", e)
	}
	r.checkNothingLeft()

	// CHECK fails with the delegated plugin's error.
	report(noop.Debug{ReportResult: `{"cniVersion": "1.1.0", "ips": [{"address": "10.9.0.1/24"}]}`})
	out, e := r.execute("jackfield-cni", conf, env("ADD")...)
	if e != nil {
		t.Fatal(e)
	}
	report(noop.Debug{ReportError: "the lease is gone", ReportErrorCode: 143})
	if _, e := r.execute("jackfield-cni", strings.Replace(conf, "null", out, 1), env("CHECK")...); e == nil || e.Code != 143 {
		t.Errorf("CHECK: %v", e)
	}
	report(noop.Debug{})
	if _, e := r.execute("jackfield-cni", conf, env("DEL")...); e != nil {
		t.Error(e)
	}
	r.checkNothingLeft()
}

// If ADD is killed while or after the IPAM plugin allocates, DEL removes everything.
func TestDelCleansUpKilledAdd(t *testing.T) {
	k := require(t)
	for _, when := range []string{"before", "after"} {
		r := newRuntime(t, t.TempDir())
		for _, name := range []string{"jackfield-cni", "host-local"} {
			testkit.Must(t, os.Symlink(filepath.Join(k.Upstream, name), filepath.Join(r.bin, name)))
		}
		// The script runs host-local and kills the process that called it.
		script := "#!/bin/sh\nhl=$(dirname $0)/host-local\n" +
			"if [ $CNI_COMMAND != ADD ]; then exec $hl; fi\n"
		if when == "before" {
			// At this point jackfield-cni has written host-local's input.
			script += "conf=$(cat)\nkill -9 $PPID\nprintf %s \"$conf\" | $hl\n"
		} else {
			script += "$hl\nkill -9 $PPID\n"
		}
		testkit.Must(t, os.WriteFile(filepath.Join(r.bin, "killer"), []byte(script), 0o755))
		rt := r.attachment("c1")
		conf := fmt.Sprintf(`{"cniVersion": "1.1.0", "name": "dbnet", %s, %s}`, server, strings.Replace(r.hostLocal(), `"type": "host-local"`, `"type": "killer"`, 1))
		env := []string{"CNI_CONTAINERID=c1", "CNI_IFNAME=eth0", "CNI_NETNS=" + rt.NetNS}
		cmd := exec.CommandContext(r.ctx, filepath.Join(r.bin, "jackfield-cni"))
		cmd.Env = append(env, "CNI_COMMAND=ADD", "CNI_PATH="+r.bin, "PATH="+os.Getenv("PATH"))
		cmd.Stdin = strings.NewReader(conf)
		if err := cmd.Run(); cmd.ProcessState.Sys().(syscall.WaitStatus).Signal() != syscall.SIGKILL {
			t.Fatalf("jackfield-cni was not killed: %v", err)
		}
		// Wait for the orphaned host-local, which exits by itself.
		for end := time.Now().Add(time.Minute); ; time.Sleep(20 * time.Millisecond) {
			if leases, _ := filepath.Glob(r.ipam + "/*/10.*"); len(leases) > 0 {
				break
			}
			if time.Now().After(end) {
				t.Fatal("host-local has allocated nothing")
			}
		}
		if dirs, err := os.ReadDir(socketDir); err != nil || len(dirs) != 1 {
			t.Errorf("jackfield-cni was killed too early: %v, %v", dirs, err)
		}
		if _, e := r.execute("jackfield-cni", conf, append(env, "CNI_COMMAND=DEL")...); e != nil {
			t.Error(e)
		}
		r.checkNothingLeft()
	}
}
