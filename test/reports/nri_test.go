// SPDX-License-Identifier: Apache-2.0

package reports

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os/exec"
	"strings"
	"syscall"
	"time"

	"github.com/containerd/nri/pkg/api"
	rspec "github.com/opencontainers/runtime-spec/specs-go"
	"github.com/rogpeppe/go-internal/testscript"

	nritest "github.com/jackfield/jackfield/test/nri"
)

// script is the state of one script.
type script struct {
	bin     string // directory of the programs
	runtime *nritest.Runtime
	pod     *api.PodSandbox
	ctr     *api.Container // the container that the pod's file describes
	created *api.Container // as the runtime has it
	started bool           // the runtime has reported the pod
}

// podFile is the JSON of a pod with one container.
type podFile struct {
	Namespace   string            `json:"namespace"`
	Annotations map[string]string `json:"annotations"`
	User        *rspec.User       `json:"user"`
	Mounts      []rspec.Mount     `json:"mounts"`
}

// startRuntime starts the runtime's side of NRI, and the plugin on the script's node: runtime [VERSION].
func startRuntime(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) > 1 {
		ts.Fatalf("usage: runtime [VERSION]")
	}
	s := ts.Value(scriptKey{}).(*script)
	// A busy machine is slow to answer, which is no subject of these scripts.
	opts := nritest.Options{RequestTimeout: time.Minute, RegistrationTimeout: time.Minute, Patience: time.Minute}
	if len(args) == 1 {
		opts.RuntimeVersion = args[0]
	}
	var err error
	s.runtime, err = nritest.Start(opts)
	ts.Check(err)
	ts.Defer(func() { ts.Check(s.runtime.Close()) })
	var log bytes.Buffer
	plugin := exec.Command(s.bin+"/jackfield-nri", "--nri-socket", s.runtime.SocketPath(), "--root", ts.Getenv("WORK"), "--config-copy", "")
	plugin.Stdout, plugin.Stderr = &log, &log
	ts.Check(plugin.Start())
	ts.Defer(func() {
		_ = plugin.Process.Signal(syscall.SIGTERM)
		if err := plugin.Wait(); err != nil {
			ts.Logf("jackfield-nri: %v\n%s", err, &log)
		}
	})
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	if err := s.runtime.WaitPlugin(ctx, "50-jackfield"); err != nil {
		ts.Fatalf("the plugin does not register: %v", err)
	}
}

// readPod reads a pod with one container "c", and sets CNI_CONTAINERID: pod FILE.
func readPod(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 1 {
		ts.Fatalf("usage: pod FILE")
	}
	s := ts.Value(scriptKey{}).(*script)
	in := podFile{Namespace: "apps"}
	d := json.NewDecoder(strings.NewReader(ts.ReadFile(args[0])))
	d.DisallowUnknownFields()
	ts.Check(d.Decode(&in))
	s.pod, s.started = nritest.NewPod(in.Namespace, "web-0", in.Annotations), false
	s.ctr = &api.Container{Name: "c", Mounts: api.FromOCIMounts(in.Mounts), Linux: &api.LinuxContainer{}}
	if in.User != nil {
		s.ctr.User = &api.User{Uid: in.User.UID, Gid: in.User.GID, AdditionalGids: in.User.AdditionalGids}
	}
	ts.Setenv("CNI_CONTAINERID", s.pod.Id)
}

// create creates the pod's container, and the pod before its first container: create.
func create(ts *testscript.TestScript, neg bool, args []string) {
	s := ts.Value(scriptKey{}).(*script)
	if len(args) > 0 || s.pod == nil || s.runtime == nil {
		ts.Fatalf("usage: [!] create, after runtime and pod")
	}
	ctx := context.Background()
	if !s.started {
		ts.Check(s.runtime.RunPodSandbox(ctx, s.pod))
		s.started = true
	}
	created, err := s.runtime.CreateContainer(ctx, s.pod, s.ctr)
	if err != nil {
		fmt.Fprintln(ts.Stderr(), err)
	} else {
		s.created = created.Container
		out := json.NewEncoder(ts.Stdout())
		out.SetIndent("", " ")
		ts.Check(out.Encode(created.Spec))
	}
	if (err != nil) != neg {
		ts.Fatalf("create: %v", err)
	}
}

// remove removes the container or the pod: remove container|pod.
func remove(ts *testscript.TestScript, neg bool, args []string) {
	s := ts.Value(scriptKey{}).(*script)
	ctx := context.Background()
	switch {
	case !neg && len(args) == 1 && args[0] == "container" && s.created != nil:
		ts.Check(s.runtime.StopContainer(ctx, s.pod, s.created))
		ts.Check(s.runtime.RemoveContainer(ctx, s.pod, s.created))
		s.created = nil
	case !neg && len(args) == 1 && args[0] == "pod" && s.created == nil:
		ts.Check(s.runtime.StopPodSandbox(ctx, s.pod))
		ts.Check(s.runtime.RemovePodSandbox(ctx, s.pod))
	default:
		ts.Fatalf("usage: remove container, after create; remove pod, after remove container")
	}
}
