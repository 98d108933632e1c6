// SPDX-License-Identifier: Apache-2.0

package nri

import (
	"encoding/json"
	"net/http"
	"os"
	"time"

	"github.com/containerd/nri/pkg/api"

	"github.com/jackfield/jackfield/pkg/resolve"
	"github.com/jackfield/jackfield/pkg/status"
	"github.com/jackfield/jackfield/pkg/version"
)

// told is a container and what became of its requests, for status and audit.
func (p *Plugin) told(pod *api.PodSandbox, c *api.Container, items []resolve.Item, plan *resolve.Plan) status.Container {
	r := request(p.runtimeName(), pod, c)
	out := status.Container{
		Since: time.Now().UTC(), Namespace: r.Namespace, Pod: r.Pod, PodUID: r.PodUID, Sandbox: r.SandboxID,
		Container: r.Container, ContainerID: r.ContainerID, Generation: p.generation.Load(),
	}
	for i := range items {
		it := &items[i]
		out.Requests = append(out.Requests, status.Request{
			Request: it.Request, From: it.From, File: it.File, Rule: it.Rule, Outcome: string(it.Outcome), Reason: it.Reason, Audit: it.Audit, Notes: it.Notes,
		})
	}
	if plan != nil {
		out.Edits = describeEdits(&plan.Set)
	}
	return out
}

// node is what jackfield status shows.
func (p *Plugin) node() *status.Node {
	in := p.ConfigStatus()
	n := &status.Node{
		Version: version.String(), PID: os.Getpid(), Started: p.tracker.start.UTC(), Registered: p.connected.Load(),
		Config: status.Config{File: in.Source, Generation: in.Generation, Since: in.Since.UTC()},
	}
	n.Containers, n.Sandboxes = p.tracker.list()
	n.Missed = p.missed.list()
	if c := p.core.Load(); c != nil {
		n.Config.Text = c.cfg.Text()
		if c.store != nil {
			st := c.store.Status()
			n.Staging, n.StagingReason = string(st.Mode), st.Reason
		}
	}
	if in.LastError != nil {
		n.Config.Error = in.LastError.Error()
	}
	if info := p.runtimeInfo.Load(); info != nil {
		n.Runtime = &status.Runtime{Name: info.name, Version: info.version, NRI: info.nri}
	}
	return n
}

func (p *Plugin) serveStatus(w http.ResponseWriter, _ *http.Request) {
	body, err := json.Marshal(p.node())
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	_, _ = w.Write(append(body, '\n'))
}
