// SPDX-License-Identifier: Apache-2.0

// Command noop is the plugin that does nothing, in a process of its own. As
// "noop SOCKET INDEX NAME" it connects to a runtime and ends when its standard
// input does; without arguments it is a pre-installed plugin, which the runtime
// starts and ends. A fourth argument is a file with an encoded adjustment, which
// every container is given; a fifth and sixth are a file of steps (see steps.go) and
// a directory, in which these are carried out for each container.
package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"github.com/containerd/nri/pkg/api"
	"google.golang.org/protobuf/proto"

	nritest "github.com/jackfield/jackfield/test/nri"
)

func main() {
	args := os.Args[1:]
	if len(args) == 0 {
		args = []string{"", "", ""}
	}
	if len(args) < 3 || len(args) > 6 || len(args) == 5 {
		fmt.Fprintln(os.Stderr, "usage: noop [SOCKET INDEX NAME [ADJUSTMENT-FILE [STEPS-FILE DIR]]]")
		os.Exit(2)
	}
	plugin, err := makePlugin(args[3:])
	if err != nil {
		fmt.Fprintln(os.Stderr, "noop:", err)
		os.Exit(1)
	}
	stop, err := nritest.StartPlugin(context.Background(), args[0], args[1], args[2], plugin)
	if err != nil {
		fmt.Fprintln(os.Stderr, "noop:", err)
		os.Exit(1)
	}
	defer stop()
	if args[0] == "" {
		select {}
	}
	if _, err := io.Copy(io.Discard, os.Stdin); err != nil {
		fmt.Fprintln(os.Stderr, "noop:", err)
	}
}

func makePlugin(files []string) (any, error) {
	if len(files) == 0 {
		return nritest.Noop{}, nil
	}
	data, err := os.ReadFile(files[0])
	if err != nil {
		return nil, err
	}
	p := &canned{adjust: &api.ContainerAdjustment{}}
	if len(files) > 1 {
		p.dir = files[2]
		if p.steps, err = readSteps(files[1], p.dir); err != nil {
			return nil, err
		}
	}
	return p, proto.Unmarshal(data, p.adjust)
}

// canned gives every container the same.
type canned struct {
	nritest.Noop
	adjust *api.ContainerAdjustment
	dir    string // "" makes nothing
	steps  []step
}

// CreateContainer returns the adjustment.
func (p *canned) CreateContainer(_ context.Context, _ *api.PodSandbox, ctr *api.Container) (*api.ContainerAdjustment, []*api.ContainerUpdate, error) {
	at := filepath.Join(p.dir, ctr.GetId()) + "/"
	for i := range p.steps {
		if err := p.steps[i].do(at); err != nil {
			return nil, nil, err
		}
	}
	return p.adjust, nil, nil
}

// RemoveContainer removes what was made.
func (p *canned) RemoveContainer(_ context.Context, _ *api.PodSandbox, ctr *api.Container) error {
	if p.dir == "" {
		return nil
	}
	at := filepath.Join(p.dir, ctr.GetId()) + "/"
	for i := len(p.steps) - 1; i >= 0; i-- {
		if err := p.steps[i].undo(at); err != nil {
			return err
		}
	}
	return os.RemoveAll(at)
}
