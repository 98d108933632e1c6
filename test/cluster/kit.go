// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"time"

	"github.com/containerd/errdefs"

	"github.com/jackfield/jackfield/test/e2e/node"
	"github.com/jackfield/jackfield/test/parts"
)

// Kit has the paths of the programs and files that a cluster is made of.
type Kit struct {
	// Node has containerd, runc, CNI plugins and Jackfield's commands.
	Node *node.Kit
	// Version is the version of Kubernetes, without a "v".
	Version string
	// Checkout is the root of the checkout.
	Checkout string
	// Image is the archive of Jackfield's container image.
	Image string
	// Bin has etcd, the programs of Kubernetes, and helm.
	Bin string
	// Multus has Multus' thin plugin, its daemon and its shim.
	Multus string
}

// kitEnv carries the kit into the jail.
const kitEnv = "JACKFIELD_CLUSTER_KIT"

const kubernetesModule = "k8s.io/kubernetes"

// Prepare downloads and builds what is not in the cache. The first build of Kubernetes takes about ten
// minutes on two cores.
func Prepare(ctx context.Context, logf func(format string, args ...any)) (*Kit, error) {
	cache, err := parts.CacheDir()
	if err != nil {
		return nil, err
	}
	root, err := parts.ModuleRoot(".")
	if err != nil {
		return nil, err
	}
	k := &Kit{Checkout: root}
	if k.Node, err = node.Prepare(ctx, logf, node.V24); err != nil {
		return nil, err
	}
	programs := parts.Programs{
		Name: "kubernetes", Dir: filepath.Join(root, "test", "kubernetes"), Module: kubernetesModule,
		Packages: []string{"tool"},
		Ldflags: func(version string) string {
			number := strings.SplitN(version, ".", 3)
			const symbol = " -X k8s.io/component-base/version."
			return "-s -w" + symbol + "gitVersion=v" + version + symbol + "gitMajor=" + number[0] + symbol + "gitMinor=" + number[1]
		},
	}
	if k.Bin, k.Version, err = programs.Build(ctx, cache, logf); err != nil {
		return nil, err
	}
	multus := parts.Programs{Name: "multus", Dir: filepath.Join(root, "test", "multus"),
		Module: "gopkg.in/k8snetworkplumbingwg/multus-cni.v4", Packages: []string{"tool"}}
	if k.Multus, _, err = multus.Build(ctx, cache, logf); err != nil {
		return nil, err
	}
	return k, k.buildImage(ctx, filepath.Join(cache, "image"), logf)
}

// buildImage builds Jackfield's image, unless the cache has one of the same commands.
func (k *Kit) buildImage(ctx context.Context, cache string, logf func(string, ...any)) error {
	key := sha256.New()
	for _, name := range slices.Sorted(maps.Keys(k.Node.Commands)) {
		path, err := k.Node.Command(name)
		if err != nil {
			return err
		}
		data, err := os.ReadFile(path)
		if err != nil {
			return fmt.Errorf("make image: %w", err)
		}
		key.Write(data)
	}
	k.Image = filepath.Join(cache, fmt.Sprintf("jackfield-%x.tar", key.Sum(nil)[:6]))
	if _, err := os.Stat(k.Image); err == nil {
		return nil
	}
	logf("building Jackfield's image")
	if err := removeOldFiles(cache); err != nil {
		return fmt.Errorf("make image: %w", err)
	}
	cmd := exec.CommandContext(ctx, "go", "run", "./deploy/image", "-o", k.Image, "-platforms", "linux/"+runtime.GOARCH)
	cmd.Dir = k.Checkout
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("make image: %w\n%s", err, out)
	}
	return nil
}

// removeOldFiles removes the files of a directory that nobody wrote within a day.
func removeOldFiles(dir string) error {
	files, err := filepath.Glob(filepath.Join(dir, "*"))
	if err != nil {
		return err
	}
	for _, f := range files {
		if info, err := os.Stat(f); err == nil && time.Since(info.ModTime()) > 24*time.Hour {
			if err := os.Remove(f); err != nil {
				return err
			}
		}
	}
	return nil
}

// Program returns the path of a program: etcd, one of Kubernetes, or helm.
func (k *Kit) Program(name string) string {
	if name == "etcd" { // the last element of its import path
		name = "server"
	}
	return filepath.Join(k.Bin, name)
}

// containerd returns the path of a program of containerd.
func (k *Kit) containerd(name string) string {
	return filepath.Join(k.Node.Containerd[node.V24], name)
}

func (k *Kit) env() ([]string, error) {
	data, err := json.Marshal(k)
	if err != nil {
		return nil, err
	}
	return []string{kitEnv + "=" + string(data)}, nil
}

func kitFromEnv() (*Kit, error) {
	k := new(Kit)
	if err := json.Unmarshal([]byte(os.Getenv(kitEnv)), k); err != nil {
		return nil, fmt.Errorf("read %s: nothing was prepared before the jail: %w", kitEnv, errors.Join(err, errdefs.ErrFailedPrecondition))
	}
	return k, nil
}
