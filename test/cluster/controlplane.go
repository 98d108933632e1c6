// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"context"
	"encoding/base64"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"

	"github.com/jackfield/jackfield/test/e2e/node"
)

const (
	// configDir has certificates, kubeconfigs and configurations; workDir has logs and etcd's data.
	configDir = "/etc/kubernetes"
	workDir   = "/run/cluster"

	apiServer     = "https://" + nodeAddress + ":6443"
	adminConfig   = configDir + "/admin.conf"
	systemMasters = "system:masters"

	// rareCollection trades memory of the cluster's programs for processor time: with few processors, the tests
	// take as long as these programs compute.
	rareCollection = "GOGC=400"
)

// client is a client of the API server, with its own kubeconfig.
type client struct {
	name, user string
	groups     []string
}

// writeCredentials writes the certificates and kubeconfigs of all components.
func writeCredentials() error {
	if err := os.MkdirAll(configDir, 0o755); err != nil {
		return fmt.Errorf("write credentials: %w", err)
	}
	ca, err := newAuthority(configDir)
	if err != nil {
		return err
	}
	if err := ca.signingKey("sa"); err != nil {
		return err
	}
	hosts := []string{"kubernetes", "kubernetes.default", "kubernetes.default.svc", "localhost", "10.96.0.1", "127.0.0.1", nodeName, nodeAddress,
		secondName, secondAddress}
	if err := ca.issue("apiserver", "kube-apiserver", []string{systemMasters}, hosts); err != nil {
		return err
	}
	for _, c := range []client{
		{"admin", "admin", []string{systemMasters}},
		{"kube-controller-manager", "system:kube-controller-manager", nil},
		{"kube-scheduler", "system:kube-scheduler", nil},
		{nodeName, "system:node:" + nodeName, []string{"system:nodes"}},
		{secondName, "system:node:" + secondName, []string{"system:nodes"}},
	} {
		if err := ca.issue(c.name, c.user, c.groups, hosts); err != nil {
			return err
		}
		if err := writeKubeconfig(c.name); err != nil {
			return err
		}
	}
	return nil
}

// writeKubeconfig writes NAME.conf, which contains the credentials themselves, so that it can be copied.
func writeKubeconfig(name string) error {
	encoded := make([]string, 3)
	for i, file := range []string{"ca.crt", name + ".crt", name + ".key"} {
		data, err := os.ReadFile(filepath.Join(configDir, file))
		if err != nil {
			return fmt.Errorf("write kubeconfig %q: %w", name, err)
		}
		encoded[i] = base64.StdEncoding.EncodeToString(data)
	}
	text := fmt.Sprintf(`apiVersion: v1
kind: Config
clusters:
- name: jackfield
  cluster: {server: %q, certificate-authority-data: %s}
users:
- name: %q
  user: {client-certificate-data: %s, client-key-data: %s}
contexts:
- name: jackfield
  context: {cluster: jackfield, user: %[3]q}
current-context: jackfield
`, apiServer, encoded[0], name, encoded[1], encoded[2])
	return os.WriteFile(filepath.Join(configDir, name+".conf"), []byte(text), 0o600)
}

// startControlPlane starts etcd, kube-apiserver, kube-controller-manager and kube-scheduler. They run in the
// jail and not on the node, so they survive its reboot.
func (c *Cluster) startControlPlane(ctx context.Context) error {
	if err := os.MkdirAll(workDir, 0o755); err != nil {
		return fmt.Errorf("start control plane: %w", err)
	}
	file := func(name string) string { return filepath.Join(configDir, name) }
	err := c.startComponent("etcd", "--name=node", "--data-dir="+workDir+"/etcd", "--unsafe-no-fsync", "--log-level=warn",
		"--listen-client-urls=http://127.0.0.1:2379", "--advertise-client-urls=http://127.0.0.1:2379",
		"--listen-peer-urls=http://127.0.0.1:2380", "--initial-advertise-peer-urls=http://127.0.0.1:2380",
		"--initial-cluster=node=http://127.0.0.1:2380")
	if err != nil {
		return err
	}
	audit, err := c.auditFlags()
	if err != nil {
		return err
	}
	err = c.startComponent("kube-apiserver", append(audit, "--etcd-servers=http://127.0.0.1:2379", "--secure-port=6443", "--advertise-address="+nodeAddress,
		"--service-cluster-ip-range=10.96.0.0/16", "--allow-privileged", "--authorization-mode=Node,RBAC",
		"--enable-admission-plugins=NodeRestriction", "--client-ca-file="+file("ca.crt"),
		"--tls-cert-file="+file("apiserver.crt"), "--tls-private-key-file="+file("apiserver.key"),
		"--kubelet-certificate-authority="+file("ca.crt"), "--kubelet-preferred-address-types=InternalIP",
		"--kubelet-client-certificate="+file("apiserver.crt"), "--kubelet-client-key="+file("apiserver.key"),
		"--service-account-issuer=https://kubernetes.default.svc", "--service-account-key-file="+file("sa.pub"),
		"--service-account-signing-key-file="+file("sa.key"), "--event-ttl=1h")...)
	if err != nil {
		return err
	}
	if err := c.Wait(ctx, "the API server is ready", func(ctx context.Context) error {
		_, err := c.Kubectl(ctx, "get", "--raw", "/readyz")
		return err
	}); err != nil {
		return fmt.Errorf("%w\n%s", err, tailLog(logFile("kube-apiserver")))
	}
	kcm, scheduler := file("kube-controller-manager.conf"), file("kube-scheduler.conf")
	err = c.startComponent("kube-controller-manager", "--kubeconfig="+kcm, "--authentication-kubeconfig="+kcm, "--authorization-kubeconfig="+kcm,
		"--bind-address=127.0.0.1", "--leader-elect=false", "--use-service-account-credentials", "--root-ca-file="+file("ca.crt"),
		"--service-account-private-key-file="+file("sa.key"))
	if err != nil {
		return err
	}
	return c.startComponent("kube-scheduler", "--kubeconfig="+scheduler, "--authentication-kubeconfig="+scheduler,
		"--authorization-kubeconfig="+scheduler, "--bind-address=127.0.0.1", "--leader-elect=false")
}

// AuditLog is a file with one JSON object for each request to the API server, in the order in which they ended.
// Watches have another one for their beginning.
const AuditLog = workDir + "/audit.log"

// auditFlags returns the flags with which the API server writes the audit log, into a single file.
func (c *Cluster) auditFlags() ([]string, error) {
	if !c.opts.Audit {
		return nil, nil
	}
	const policy = configDir + "/audit.yaml"
	text := "apiVersion: audit.k8s.io/v1\nkind: Policy\nomitStages: [RequestReceived]\nrules: [{level: Metadata}]\n"
	return []string{"--audit-policy-file=" + policy, "--audit-log-path=" + AuditLog, "--audit-log-maxsize=100000"}, os.WriteFile(policy, []byte(text), 0o644)
}

// startComponent starts a program of the control plane, with its output in a log.
func (c *Cluster) startComponent(name string, args ...string) error {
	cmd := exec.Command(c.kit.Program(name), args...)
	cmd.Dir = workDir
	cmd.Env = []string{"PATH=" + os.Getenv("PATH"), "TMPDIR=" + os.TempDir(), "LC_ALL=C", rareCollection}
	p, err := node.StartProcess(cmd, logFile(name))
	if err != nil {
		return err
	}
	c.components = append(c.components, p)
	return nil
}

// logFile returns the log of a component or service.
func logFile(name string) string { return filepath.Join(workDir, name+".log") }

// tailLog returns the last lines of a log.
func tailLog(file string) string {
	text, err := os.ReadFile(file)
	if err != nil {
		return err.Error()
	}
	return node.Tail(string(text), 20)
}
