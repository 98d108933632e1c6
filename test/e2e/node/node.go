// SPDX-License-Identifier: Apache-2.0

package node

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"time"

	"github.com/containerd/errdefs"
	"golang.org/x/sys/unix"
	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/jackfield/jackfield/test/e2e/jail"
)

// Node is a running container runtime. Its methods may be called concurrently, except for
// Restart, Kill and Close.
type Node struct {
	kit  *Kit
	opts Options
	dir  string

	daemon  daemon
	process *Process
	conn    *grpc.ClientConn
	runtime cri.RuntimeServiceClient
	images  cri.ImageServiceClient

	mu      sync.Mutex
	started int // size of the runtime's log before the last start
	plugins int // number of started plugins, for their names
}

const (
	// callTimeout bounds every CRI call. Working calls take less than a second, and a test must not hang when
	// the runtime hangs.
	callTimeout = 2 * time.Minute
	// Patience is how long a test waits for events that an idle machine delivers within a second. A busy
	// machine needs longer.
	Patience = time.Minute
)

// nodesDir contains the directories of nodes.
const nodesDir = "/run/n"

// daemon is the part of a node in which the runtimes differ.
type daemon struct {
	// files returns the configuration files, by their paths, which may be relative to the node's directory.
	files func() map[string]string
	// config is the path of the main configuration file.
	config string
	// command returns the command that runs the daemon.
	command func() *exec.Cmd
	// importImages adds the images with the given references. archive is a tar file of an OCI layout.
	importImages func(ctx context.Context, archive string, refs ...string) error
	// bundle returns the directory with the config.json of a running container or sandbox.
	bundle func(id string) string
	// monitorArg is an argument of every container monitor: containerd's shim, or conmon. It identifies the monitors
	// that outlive the daemon.
	monitorArg string
	// close frees resources that do not end with the daemon's process.
	close func() error
}

// Start starts a runtime with its images and waits until it is ready for pods. The caller must call Close.
func Start(ctx context.Context, kit *Kit, opts Options) (*Node, error) {
	if !jail.Inside() {
		return nil, fmt.Errorf("start node: not in a jail: %w", errdefs.ErrFailedPrecondition)
	}
	if opts.Generation == "" {
		opts.Generation = V2
	}
	if opts.Generation == CRIOCrun {
		opts.Crun, opts.Unified = true, true
	}
	if !kit.has(opts.Generation) {
		return nil, fmt.Errorf("start node: generation %q: %w", opts.Generation, errdefs.ErrInvalidArgument)
	}
	if opts.Dir == "" {
		if err := os.MkdirAll(nodesDir, 0o755); err != nil {
			return nil, fmt.Errorf("start node: %w", err)
		}
		dir, err := os.MkdirTemp(nodesDir, "")
		if err != nil {
			return nil, fmt.Errorf("start node: %w", err)
		}
		// Root of a user namespace must be able to traverse the directory.
		if err := os.Chmod(dir, 0o711); err != nil {
			return nil, fmt.Errorf("start node: %w", err)
		}
		opts.Dir = dir
	}
	n := &Node{kit: kit, opts: opts, dir: opts.Dir}
	n.daemon = containerd{n}.daemon()
	if opts.Generation.IsCRIO() {
		var err error
		if n.daemon, err = newCRIO(n); err != nil {
			return nil, err
		}
	}
	if err := n.start(ctx); err != nil {
		return nil, errors.Join(fmt.Errorf("start %s: %w\n%s", opts.Generation, err, Tail(n.Log(), 30)), n.Close(ctx))
	}
	return n, nil
}

func (n *Node) start(ctx context.Context) error {
	for _, d := range []string{"cni/conf", "cni/state", "cni/bin", "nri/plugins", "nri/conf.d", "logs", "root", "state"} {
		if err := os.MkdirAll(n.path(d), 0o755); err != nil {
			return err
		}
	}
	files := n.daemon.files()
	files["cni/conf/10-pods.conflist"] = n.cniConfig()
	for name, text := range files {
		if !filepath.IsAbs(name) {
			name = n.path(name)
		}
		if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
			return err
		}
		if err := os.WriteFile(name, []byte(text), 0o755); err != nil {
			return err
		}
	}
	if err := n.linkCNI(); err != nil {
		return err
	}
	for _, p := range n.opts.Plugins {
		if err := n.Preinstall(p); err != nil {
			return err
		}
	}
	conn, err := grpc.NewClient("unix://"+n.Socket(),
		grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithConnectParams(grpc.ConnectParams{MinConnectTimeout: time.Second,
			Backoff: backoff.Config{BaseDelay: 5 * time.Millisecond, Multiplier: 1.2, MaxDelay: 50 * time.Millisecond}}),
		grpc.WithDefaultCallOptions(grpc.WaitForReady(true)),
		grpc.WithUnaryInterceptor(n.call))
	if err != nil {
		return err
	}
	n.conn, n.runtime, n.images = conn, cri.NewRuntimeServiceClient(conn), cri.NewImageServiceClient(conn)
	if err := n.launch(ctx); err != nil {
		return err
	}
	return n.importOwnImages(ctx)
}

// importOwnImages imports the test image and the image of sandboxes.
func (n *Node) importOwnImages(ctx context.Context) error {
	name := n.path("images.tar")
	f, err := os.Create(name)
	if err != nil {
		return err
	}
	defer os.Remove(name)
	err = WriteImages(f, n.kit)
	if err := errors.Join(err, f.Close()); err != nil {
		return err
	}
	return n.ImportImages(ctx, name, PauseImage, Image)
}

// ImportImages adds the images with the given references. archive is a tar file of an OCI layout.
func (n *Node) ImportImages(ctx context.Context, archive string, refs ...string) error {
	return n.daemon.importImages(ctx, archive, refs...)
}

// launch starts the daemon and waits until it is ready for pods.
func (n *Node) launch(ctx context.Context) error {
	n.mu.Lock()
	n.started = len(n.Log())
	n.mu.Unlock()
	cmd := n.daemon.command()
	cmd.Dir = n.dir
	p, err := StartProcess(cmd, n.path("runtime.log"))
	if err != nil {
		return err
	}
	n.process = p
	ctx, cancel := context.WithTimeout(ctx, Patience)
	defer cancel()
	ready := make(chan error, 1)
	go func() { ready <- n.waitReady(ctx) }()
	select {
	case err := <-ready:
		return err
	case <-p.Done():
		return fmt.Errorf("it ended at once (%v): %w", p.err, errdefs.ErrUnavailable)
	}
}

// call makes a CRI call that ends in time, or when the runtime ends. In the latter case the error says so.
func (n *Node) call(ctx context.Context, method string, req, reply any,
	cc *grpc.ClientConn, invoke grpc.UnaryInvoker, opts ...grpc.CallOption) error {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	ended := n.process.Done()
	go func() {
		select {
		case <-ended:
			cancel()
		case <-ctx.Done():
		}
	}()
	err := invoke(ctx, method, req, reply, cc, opts...)
	if c := status.Code(err); c != codes.Unavailable && c != codes.Canceled {
		return err
	}
	select {
	case <-ended:
		return fmt.Errorf("the runtime has ended (%v): %w\n%s", n.process.err, err, Tail(n.Log(), 40))
	case <-time.After(200 * time.Millisecond): // connections end before the process
		return err
	}
}

func (n *Node) waitReady(ctx context.Context) error {
	for {
		reply, err := n.runtime.Status(ctx, &cri.StatusRequest{})
		why := ""
		if err == nil {
			for _, c := range reply.GetStatus().GetConditions() {
				if !c.GetStatus() && (c.GetType() == "RuntimeReady" || c.GetType() == "NetworkReady") {
					why = c.GetType() + ": " + c.GetReason() + " " + c.GetMessage()
				}
			}
			if why == "" {
				return nil
			}
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("wait until it is ready: %w: %v %s", context.Cause(ctx), err, why)
		case <-time.After(5 * time.Millisecond):
		}
	}
}

// PID returns the process ID of the runtime.
func (n *Node) PID() int { return n.process.PID() }

// Alive reports whether the runtime runs.
func (n *Node) Alive() bool {
	select {
	case <-n.process.Done():
		return false
	default:
		return true
	}
}

// Kit returns the paths of the programs.
func (n *Node) Kit() *Kit { return n.kit }

// Generation returns the runtime and its generation.
func (n *Node) Generation() Generation { return n.opts.Generation }

// Dir returns the directory of everything that the node creates.
func (n *Node) Dir() string { return n.dir }

// Socket returns the runtime's socket, which serves CRI.
func (n *Node) Socket() string { return n.path("cri.sock") }

// ConfigFile returns the runtime's configuration file.
func (n *Node) ConfigFile() string { return n.daemon.config }

// NRISocket returns the socket to which NRI plugins connect.
func (n *Node) NRISocket() string { return n.path("nri", "nri.sock") }

// PluginDir and PluginConfigDir are the directories of pre-installed NRI plugins and of their drop-ins.
func (n *Node) PluginDir() string       { return n.path("nri", "plugins") }
func (n *Node) PluginConfigDir() string { return n.path("nri", "conf.d") }

// CRI returns the client of the runtime service, for calls without a method in this package.
func (n *Node) CRI() cri.RuntimeServiceClient { return n.runtime }

// Log returns the runtime's log since its first start.
func (n *Node) Log() string {
	text, err := os.ReadFile(n.path("runtime.log"))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err.Error()
	}
	return string(text)
}

// Restart stops the runtime with SIGTERM and starts it again. Pods continue to run.
func (n *Node) Restart(ctx context.Context) error {
	_ = n.process.Stop(Patience)
	return n.relaunch(ctx)
}

// Kill ends the runtime with SIGKILL and starts it again. Pods continue to run.
func (n *Node) Kill(ctx context.Context) error {
	n.process.Kill()
	return n.relaunch(ctx)
}

func (n *Node) relaunch(ctx context.Context) error {
	if err := n.launch(ctx); err != nil {
		return fmt.Errorf("restart %s: %w\n%s", n.opts.Generation, err, Tail(n.Log(), 30))
	}
	return nil
}

// Close removes all pods, ends the runtime and all its processes, and removes the node's directory.
func (n *Node) Close(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), callTimeout)
	defer cancel()
	var errs []error
	if n.process != nil {
		select {
		case <-n.process.Done():
		default:
			errs = append(errs, n.RemoveAllPods(ctx))
		}
		_ = n.process.Stop(Patience)
	}
	if n.conn != nil {
		errs = append(errs, n.conn.Close())
	}
	errs = append(errs, n.daemon.close(), n.killMonitors(ctx), unmountBelow(n.dir), os.RemoveAll(n.dir))
	return errors.Join(errs...)
}

// killMonitors kills the remaining shims of containerd or monitors of CRI-O, and waits for those that are ending.
func (n *Node) killMonitors(ctx context.Context) error {
	for {
		pids, err := processesWith(n.daemon.monitorArg)
		if err != nil || len(pids) == 0 {
			return err
		}
		for _, pid := range pids {
			_ = unix.Kill(pid, unix.SIGKILL)
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("end processes %v: %w", pids, context.Cause(ctx))
		case <-time.After(10 * time.Millisecond):
		}
	}
}
