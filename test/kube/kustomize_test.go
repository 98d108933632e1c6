// SPDX-License-Identifier: Apache-2.0

package kube

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/jackfield/jackfield/test/cluster"
)

// An overlay of the kustomization with the cluster's own rules installs a plugin that works like the chart's.
func TestKustomizeInstallsPlugin(t *testing.T) {
	k := Start(t)
	ns := k.Namespace("fast-kustomize", nil)
	if _, err := k.Helm(k.ctx, "uninstall", cluster.Release, "--namespace", cluster.Namespace, "--wait"); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := k.InstallJackfield(k.ctx, values+fastRule); err != nil {
			t.Error(err)
		}
	})
	// kustomize accepts relative paths only.
	dir := filepath.Join(t.TempDir(), "overlay")
	if err := os.Mkdir(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	base := os.DirFS(filepath.Join(k.Kit().Checkout, "deploy", "kustomize", "base"))
	if err := os.CopyFS(filepath.Join(dir, "../base"), base); err != nil {
		t.Fatal(err)
	}
	for name, text := range map[string]string{
		"kustomization.yaml": `apiVersion: kustomize.config.k8s.io/v1beta1
kind: Kustomization
namespace: jackfield-system
resources: [../base]
configMapGenerator:
  - {name: jackfield, behavior: replace, files: [config.yaml]}
generatorOptions: {disableNameSuffixHash: true}
`,
		"config.yaml": `sockets: {roots: [/var/run/jackfield/sockets]}
kubelet: {required: true}
metrics: {listen: "127.0.0.1:9480"}
policy:
  rules:
    - name: fast-path-tenants
      for: {namespaces: ["fast-*"]}
      allow: {cdi: ["acme.com/nic=*"]}
`,
	} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	k.Kubectl("apply", "--kustomize", dir)
	t.Cleanup(func() { k.Kubectl("delete", "--kustomize", dir, "--timeout="+cluster.Patience.String()) })
	if err := k.WaitJackfield(k.ctx); err != nil {
		t.Fatal(err)
	}
	k.RunPod(Pod{Namespace: ns, Name: "router", Annotations: map[string]string{deviceKey: nic0}})
	contains(t, k.Exec(ns, "router", "sh", "-c", "head -c 4 /dev/acme0 | xxd -p"), "00000000")
}
