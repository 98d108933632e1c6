// SPDX-License-Identifier: Apache-2.0

package kube

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"log"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	ggcr "github.com/google/go-containerregistry/pkg/registry"
	"oras.land/oras-go/v2"
	"oras.land/oras-go/v2/content/oci"
	"oras.land/oras-go/v2/registry/remote"

	"github.com/jackfield/jackfield/test/cluster"
	"github.com/jackfield/jackfield/test/e2e"
	"github.com/jackfield/jackfield/test/e2e/jail"
	"github.com/jackfield/jackfield/test/e2e/node"
)

const version = "0.1.0"

// releaseEnv carries the directory of the release into the jail.
const releaseEnv = "JACKFIELD_RELEASE"

func TestMain(m *testing.M) { os.Exit(run(m)) }

// run makes a release outside of the jail, where modules can be downloaded.
func run(m *testing.M) int {
	flag.Parse()
	if jail.Outside() {
		if e2e.Impossible() != nil {
			return m.Run()
		}
		dir, err := os.MkdirTemp("", "jackfield-release")
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			return 1
		}
		defer os.RemoveAll(dir)
		os.Setenv(releaseEnv, filepath.Join(dir, "release"))
	}
	return cluster.Run(cluster.Stages{Prepared: makeRelease, Inside: m.Run})
}

func makeRelease(kit *cluster.Kit) error {
	cmd := exec.Command("go", "run", ".", "-version", version, "-uncommitted", "-archs", runtime.GOARCH, "-o", os.Getenv(releaseEnv))
	cmd.Dir = filepath.Join(kit.Checkout, "test", "release")
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("make release: %w\n%s", err, out)
	}
	return nil
}

// push copies what a layout's tag names to a registry, and returns its digest.
func push(t *testing.T, what, repository string) string {
	t.Helper()
	layout, err := oci.NewFromTar(t.Context(), filepath.Join(os.Getenv(releaseEnv), "jackfield-"+what+"-"+version+".oci.tar"))
	if err != nil {
		t.Fatal(err)
	}
	repo, err := remote.NewRepository(repository)
	if err != nil {
		t.Fatal(err)
	}
	repo.PlainHTTP = true
	top, err := oras.Copy(t.Context(), layout, version, repo, version, oras.DefaultCopyOptions)
	if err != nil {
		t.Fatal(err)
	}
	return top.Digest.String()
}

const cdi = `cdiVersion: 0.6.0
kind: acme.com/nic
devices: [{name: nic0, containerEdits: {deviceNodes: [{path: /dev/acme0, hostPath: /dev/zero}]}}]
`

const values = `
config: {policy: {rules: [{name: tenants, for: {namespaces: [default]}, allow: {cdi: ["acme.com/nic=*"]}}]}}
`

const pod = `{"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "router", "annotations": {"devices.jackfield.dev": "acme.com/nic=nic0"}},
  "spec": {"terminationGracePeriodSeconds": 0, "containers": [{"name": "main", "image": "` + node.Image + `", "imagePullPolicy": "Never"}]}}`

// Helm installs the release's chart from a registry, and the node runs the release's image from there.
func TestReleaseIsInstalledFromRegistry(t *testing.T) {
	if !jail.Inside() {
		if os.Getenv("CI") == "true" {
			t.Fatalf("cannot run, and CI promises that it can: %v", e2e.Impossible())
		}
		t.Skipf("skipped: %v", e2e.Impossible())
	}
	registry := httptest.NewServer(ggcr.New(ggcr.WithReferrersSupport(true), ggcr.Logger(log.New(io.Discard, "", 0))))
	t.Cleanup(registry.Close)
	host := strings.TrimPrefix(registry.URL, "http://")
	image := push(t, "image", host+"/jackfield")
	push(t, "chart", host+"/charts/jackfield")

	ctx := context.WithoutCancel(t.Context())
	c, err := cluster.Start(ctx, cluster.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	kubectl := func(args ...string) string {
		t.Helper()
		out, err := c.Kubectl(ctx, args...)
		if err != nil {
			t.Fatal(err)
		}
		return out
	}
	if err := os.WriteFile("/etc/cdi/acme.yaml", []byte(cdi), 0o644); err != nil {
		t.Fatal(err)
	}
	kubectl("create", "namespace", cluster.Namespace)
	kubectl("label", "namespace", cluster.Namespace, "pod-security.kubernetes.io/enforce=privileged")
	if _, err := c.HelmInput(ctx, values, "install", cluster.Release, "oci://"+host+"/charts/jackfield", "--plain-http", "--version", version,
		"--namespace", cluster.Namespace, "--set", "image.repository="+host+"/jackfield", "--values=-"); err != nil {
		t.Fatal(err)
	}
	if err := c.WaitJackfield(ctx); err != nil {
		t.Fatal(err)
	}

	out, err := c.Jackfield(ctx, "version", "-o", "json")
	if err != nil {
		t.Fatal(err)
	}
	var got struct{ Version, Commit string }
	if err := json.Unmarshal([]byte(out), &got); err != nil {
		t.Fatalf("%v in %s", err, out)
	}
	git := exec.CommandContext(ctx, "git", "rev-parse", "HEAD")
	git.Dir = c.Kit().Checkout
	head, err := git.Output()
	if err != nil {
		t.Fatal(err)
	}
	if got.Version != version || got.Commit != strings.TrimSpace(string(head)) {
		t.Errorf("the plugin's pod has version %q, commit %q; want %q, %q", got.Version, got.Commit, version, head)
	}
	if running := kubectl("--namespace", cluster.Namespace, "get", "pods", "--output=jsonpath={.items[*].status.containerStatuses[*].imageID}"); running != host+"/jackfield@"+image {
		t.Errorf("the plugin's pod runs the image %q, want %s", running, image)
	}
	if list, err := c.Helm(ctx, "list", "--namespace", cluster.Namespace); err != nil || !strings.Contains(list, "jackfield-"+version) {
		t.Errorf("the chart is not the release's: %v, %s", err, list)
	}

	if err := c.Create(ctx, pod); err != nil {
		t.Fatal(err)
	}
	kubectl("wait", "--for=condition=Ready", "pod/router", "--timeout="+cluster.Patience.String())
	if out := kubectl("exec", "router", "--", "sh", "-c", "head -c 4 /dev/acme0 | xxd -p"); strings.TrimSpace(out) != "00000000" {
		t.Errorf("the pod reads %q from its device", out)
	}
}
