// SPDX-License-Identifier: Apache-2.0

// Command up runs a playground: a Kubernetes cluster of one node with Jackfield, a vswitch and sample pods,
// until it is interrupted. `up down` ends a cluster that runs in another terminal.
package main

import (
	"context"
	_ "embed"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"
	"time"

	"github.com/jackfield/jackfield/test/cluster"
	"github.com/jackfield/jackfield/test/e2e/jail"
	"github.com/jackfield/jackfield/test/parts"
)

func main() { os.Exit(run(os.Args[1:])) }

func run(args []string) int {
	f := flag.NewFlagSet("cluster", flag.ContinueOnError)
	dir := f.String("dir", "", "`directory` of kubectl, helm and the kubeconfig; default: cluster in the cache folder")
	var more extras
	f.BoolVar(&more.multus, "multus", false, "install Multus, and a pod with a second network")
	f.BoolVar(&more.ovs, "ovs", false, "run Open vSwitch with DPDK on the node, and import an image with testpmd")
	if !jail.Outside() {
		return cluster.Run(cluster.Stages{Inside: func() int {
			if err := errors.Join(f.Parse(args), setDir(dir)); err != nil {
				return report(err)
			}
			return report(inside(*dir, more))
		}})
	}
	if err := f.Parse(args); err != nil {
		return 2
	}
	err := setDir(dir)
	switch {
	case err != nil:
	case f.Arg(0) == "down" && f.NArg() == 1:
		err = down(*dir)
	case f.NArg() != 0:
		err = fmt.Errorf("found the argument %q, want none or \"down\"", f.Arg(0))
	default:
		return runCluster(*dir, more)
	}
	return report(err)
}

// extras are the parts of the playground that a flag adds.
type extras struct{ multus, ovs bool }

func setDir(dir *string) (err error) {
	if *dir == "" {
		if *dir, err = parts.CacheDir(); err != nil {
			return err
		}
		*dir = filepath.Join(*dir, "cluster")
	}
	*dir, err = filepath.Abs(*dir)
	return err
}

func report(err error) int {
	if err != nil {
		fmt.Fprintln(os.Stderr, "cluster:", err)
		return 1
	}
	return 0
}

func logf(format string, args ...any) { fmt.Printf(format+"\n", args...) }

// runCluster is the outer process: it prepares, runs the cluster in a jail, and removes its files.
func runCluster(dir string, more extras) int {
	if err := cluster.Impossible(); err != nil {
		return report(fmt.Errorf("cannot run a cluster here: %w", err))
	}
	state, err := claim(dir)
	if err != nil {
		return report(err)
	}
	defer state.release()
	var kit *cluster.Kit
	code := cluster.Run(cluster.Stages{
		Logf: logf,
		Prepared: func(k *cluster.Kit) error {
			if kit = k; more.ovs {
				return writeDPDKImage(context.Background(), dir, k)
			}
			return nil
		},
		Started: func(pid int) error { return state.writeClients(kit, pid) },
	})
	if code == 0 {
		fmt.Println("The cluster and everything it created are gone.")
	}
	return code
}

// limit is how long the start may take, builds apart.
const limit = 10 * time.Minute

// inside starts the cluster and waits for a signal.
func inside(dir string, more extras) (err error) {
	signals, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	ctx, cancel := context.WithTimeout(signals, limit)
	defer cancel()
	started := time.Now()
	c, err := cluster.Start(ctx, cluster.Options{Logf: logf, Network: cluster.PodNetwork(vswitchPort)})
	if err != nil {
		return interrupted(signals, err)
	}
	defer func() { err = errors.Join(err, c.Close()) }()
	if err := fill(ctx, c); err != nil {
		return interrupted(signals, err)
	}
	if more.multus {
		if err := addMultus(ctx, c); err != nil {
			return interrupted(signals, err)
		}
	}
	if more.ovs {
		if err := addOVS(ctx, dir, c); err != nil {
			return interrupted(signals, err)
		}
	}
	if err := writeFiles(dir, c); err != nil {
		return err
	}
	logf("ready after %s", time.Since(started).Round(time.Second))
	guide(os.Stdout, dir, c, more)
	<-signals.Done()
	return nil
}

// interrupted returns nil instead of the errors that an interrupt causes.
func interrupted(signals context.Context, err error) error {
	if signals.Err() != nil {
		return nil
	}
	return err
}

//go:embed values.yaml
var values string

//go:embed samples.yaml
var samples string

//go:embed acme.yaml
var acme string

// vswitchPort is the CNI plugin that gives each pod of the cluster the vswitch's socket. Jackfield delivers it
// where the policy grants it.
const vswitchPort = `{"type": "jackfield-cni", "socketDir": "/var/run/vsw",
   "device": {"type": "vhost-user", "mode": "client", "path": "/var/run/vsw/port0/vhost.sock"}}`

// fill installs Jackfield and the samples, and waits until they run.
func fill(ctx context.Context, c *cluster.Cluster) error {
	if err := os.WriteFile("/etc/cdi/acme.yaml", []byte(acme), 0o644); err != nil {
		return err
	}
	logf("installing Jackfield with Helm")
	if err := c.InstallJackfield(ctx, values); err != nil {
		return err
	}
	logf("starting a vswitch and two pods")
	if err := c.Create(ctx, samples); err != nil {
		return err
	}
	for _, args := range [][]string{
		{"-n", "vswitch", "rollout", "status", "deployment/vswitch", "--timeout=3m"},
		{"-n", "fast-lane", "wait", "--for=condition=Ready", "pod/router", "--timeout=3m"},
	} {
		if _, err := c.Kubectl(ctx, args...); err != nil {
			return err
		}
	}
	return c.WaitEvent(ctx, "web", "stranger", "deny CDI device")
}

// guide prints what to try.
func guide(w io.Writer, dir string, c *cluster.Cluster, with extras) {
	more := ""
	if with.multus {
		more += multusGuide
	}
	if with.ovs {
		more += ovsGuide
	}
	fmt.Fprintf(w, `
Kubernetes %s runs here, with Jackfield from deploy/helm/jackfield.
In another terminal, as root:

  export PATH=%s/bin:$PATH

The pod fast-lane/router has a device and the socket of a vswitch, and no volume or privilege:

  kubectl -n fast-lane exec router -- ls -l /dev/acme0
  kubectl -n fast-lane exec router -- sh -c 'sockclient connect $JACKFIELD_ETH0_SOCKET'

Restart the vswitch, which creates its socket again. The pod keeps running and connects to the new one:

  kubectl -n vswitch rollout restart deployment/vswitch
  kubectl -n vswitch rollout status deployment/vswitch
  kubectl -n fast-lane exec router -- sh -c 'sockclient connect $JACKFIELD_ETH0_SOCKET'

No rule covers the pod web/stranger. Its events have the reason, and the lines that would allow it:

  kubectl -n web describe pod stranger

Add them to config.policy.rules in %[2]s/values.yaml and apply it. The pod starts within a minute:

  helm upgrade jackfield %[3]s -n jackfield-system -f %[2]s/values.yaml
  kubectl -n web get pod stranger --watch

Ask Jackfield what it did:

  kubectl -n jackfield-system exec ds/jackfield -- jackfield status
  kubectl -n jackfield-system exec ds/jackfield -- jackfield doctor

%[4]sCtrl-C here, or `+"`make cluster-down`"+`, removes everything.
`, c.Kit().Version, dir, c.Chart(), more)
}
