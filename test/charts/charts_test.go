// SPDX-License-Identifier: Apache-2.0

package charts

import (
	"encoding/json"
	"fmt"
	"maps"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	admission "k8s.io/api/admissionregistration/v1"
	apps "k8s.io/api/apps/v1"
	core "k8s.io/api/core/v1"
	networking "k8s.io/api/networking/v1"
	meta "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"sigs.k8s.io/yaml"

	"github.com/jackfield/jackfield/internal/config"
)

func renderHelm(t *testing.T, values string) []Object {
	t.Helper()
	objects, err := Helm(values)
	if err != nil {
		t.Fatal(err)
	}
	return objects
}

func renderKustomize(t *testing.T, dir string) []Object {
	t.Helper()
	objects, err := Kustomize(dir)
	if err != nil {
		t.Fatal(err)
	}
	return objects
}

// overlay writes a kustomization of the base with components and returns its directory. A config that
// is not empty replaces the configuration.
func overlay(t *testing.T, config string, components ...string) string {
	t.Helper()
	dir, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	top, err := filepath.Abs(filepath.Join(deploy, "kustomize"))
	if err != nil {
		t.Fatal(err)
	}
	if top, err = filepath.Rel(dir, top); err != nil { // kustomize accepts relative paths only
		t.Fatal(err)
	}
	text := "resources: [" + top + "/base]\ncomponents:\n"
	for _, c := range components {
		text += "- " + top + "/components/" + c + "\n"
	}
	if config != "" {
		text += "namespace: jackfield-system\nconfigMapGenerator:\n- {name: jackfield, behavior: replace, files: [config.yaml]}\ngeneratorOptions: {disableNameSuffixHash: true}\n"
		if err := os.WriteFile(filepath.Join(dir, "config.yaml"), []byte(config), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.WriteFile(filepath.Join(dir, "kustomization.yaml"), []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return dir
}

// onlyObject returns the one object of a type.
func onlyObject[T Object](t *testing.T, objects []Object) T {
	t.Helper()
	var found []T
	for _, o := range objects {
		if o, ok := o.(T); ok {
			found = append(found, o)
		}
	}
	if len(found) != 1 {
		t.Fatalf("found %d objects of type %T, want 1", len(found), *new(T))
	}
	return found[0]
}

// comparable returns objects as a map from kind and name to YAML. It removes what differs between Helm
// and kustomize by design: Helm's labels, comments in the configuration, and volume names.
func comparable(t *testing.T, objects []Object) map[string]string {
	t.Helper()
	all := map[string]string{}
	for _, o := range objects {
		if o.GetAnnotations()["helm.sh/hook"] != "" {
			continue // kustomize has no hooks
		}
		labels := maps.Clone(o.GetLabels())
		delete(labels, "app.kubernetes.io/managed-by")
		delete(labels, "helm.sh/chart")
		o.SetLabels(labels)
		switch o := o.(type) {
		case *core.Namespace:
			continue // helm install --create-namespace
		case *core.ConfigMap:
			var c any
			if err := yaml.Unmarshal([]byte(o.Data["config.yaml"]), &c); err != nil {
				t.Fatal(err)
			}
			o.Data["config.yaml"] = fmt.Sprint(c)
		case *apps.DaemonSet:
			normalizeVolumes(o)
		}
		text, err := yaml.Marshal(o)
		if err != nil {
			t.Fatal(err)
		}
		all[o.GetObjectKind().GroupVersionKind().Kind+" "+o.GetNamespace()+"/"+o.GetName()] = string(text)
	}
	return all
}

// normalizeVolumes renames volumes to their host paths, and sorts them and their mounts.
func normalizeVolumes(ds *apps.DaemonSet) {
	pod := &ds.Spec.Template.Spec
	names := map[string]string{}
	for i, v := range pod.Volumes {
		names[v.Name] = v.Name
		if v.HostPath != nil {
			names[v.Name] = v.HostPath.Path
		}
		pod.Volumes[i].Name = names[v.Name]
	}
	slices.SortFunc(pod.Volumes, func(a, b core.Volume) int { return strings.Compare(a.Name, b.Name) })
	for _, c := range slices.Concat(pod.InitContainers, pod.Containers) {
		for i := range c.VolumeMounts {
			c.VolumeMounts[i].Name = names[c.VolumeMounts[i].Name]
		}
		slices.SortFunc(c.VolumeMounts, func(a, b core.VolumeMount) int { return strings.Compare(a.MountPath, b.MountPath) })
	}
}

// baseConfig returns the configuration of the kustomize base.
func baseConfig(t *testing.T) string {
	t.Helper()
	data, err := os.ReadFile(filepath.Join(Base, "config.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}

// Helm and kustomize install the same objects with the same options.
func TestHelmAndKustomizeAgree(t *testing.T) {
	for name, tc := range map[string]struct {
		values     string
		components []string
	}{
		"defaults":     {"{}", nil},
		"unprivileged": {"staging: {propagation: false}", []string{"unprivileged"}},
		"OpenShift":    {"openshift: true", []string{"openshift"}},
		"NRI":          {"enableNRI: {enabled: true}", []string{"enable-nri"}},
		"CNI":          {"hostPrograms: {cni: {enabled: true}}", []string{"host-cni"}},
		"hook":         {"hostPrograms: {hook: {enabled: true}}", []string{"host-hook"}},
		"metrics":      {"config: {metrics: {listen: \":9480\"}}", []string{"metrics"}},
		"Prometheus":   {"{config: {metrics: {listen: \":9480\"}}, metrics: {podMonitor: {enabled: true}}}", []string{"metrics", "pod-monitor"}},
		"both":         {"{openshift: true, staging: {propagation: false}}", []string{"openshift", "unprivileged"}},
	} {
		t.Run(name, func(t *testing.T) {
			dir := Base
			if len(tc.components) > 0 {
				config := ""
				if slices.Contains(tc.components, "metrics") {
					config = strings.Replace(baseConfig(t), "listen: \"127.0.0.1:9480\"", "listen: \":9480\"", 1)
				}
				dir = overlay(t, config, tc.components...)
			}
			if d := cmp.Diff(comparable(t, renderKustomize(t, dir)), comparable(t, renderHelm(t, tc.values))); d != "" {
				t.Errorf("kustomize (-), helm (+):\n%s", d)
			}
		})
	}
}

// The API server accepts the rendered objects, and the plugin accepts the rendered configuration.
func TestRenderedObjectsAreValid(t *testing.T) {
	for name, values := range map[string]string{
		"defaults":     "{}",
		"unprivileged": "{staging: {propagation: false}, seLinuxType: spc_t}",
		"run":          "hostRun: true",
		"processes":    "hostPID: true",
		"NRI":          "enableNRI: {enabled: true, runtime: cri-o}",
		"programs":     "{hostPrograms: {cni: {enabled: true, dir: /srv/cni/bin}, hook: {enabled: true}}, enableNRI: {enabled: true}, seLinuxType: spc_t}",
		"extras":       "{extraArgs: [--pprof], extraEnv: [{name: A, value: b}], extraVolumes: [{name: more, emptyDir: {}}], extraVolumeMounts: [{name: more, mountPath: /more}], commonLabels: {team: net}, imagePullSecrets: [{name: pull}], nri: {index: 7}}",
		"Prometheus":   "{config: {metrics: {listen: ':9480'}}, metrics: {podMonitor: {enabled: true, labels: {release: p}}, networkPolicy: {from: [{podSelector: {}}]}}}",
		"everything": `
image: {repository: registry.example/jackfield, digest: "sha256:` + strings.Repeat("ab", 32) + `", pullPolicy: Always, pullSecrets: [{name: pull}]}
config:
  cdi: {specDirs: [/etc/cdi, /var/run/cdi, /opt/vendor_1/cdi, /opt/vendor-1/cdi]}
  sockets: {roots: [/var/run/vsw, /srv/vsw.d, /srv/vsw/d, /srv/vsw., /run/openvswitch, /var/run/jackfield/sockets, /srv/` + strings.Repeat("long/", 20) + `dir]}
  stateDir: /run/jackfield
  kubelet: {podResourcesSocket: /data/kubelet/pod-resources/kubelet.sock, required: true}
  policy: {rules: [{name: dpdk, for: {namespaces: ["dpdk-*"]}, allow: {sockets: ["/var/run/vsw/**"]}}]}
openshift: true
serviceAccount: {name: other, annotations: {a: b}}
podAnnotations: {a: b}
podLabels: {a: b}
tolerations: []
affinity: {nodeAffinity: {requiredDuringSchedulingIgnoredDuringExecution: {nodeSelectorTerms: [{matchExpressions: [{key: a, operator: Exists}]}]}}}
fullnameOverride: patches`,
	} {
		t.Run(name, func(t *testing.T) {
			objects := renderHelm(t, values)
			for _, f := range Check(onlyObject[*apps.DaemonSet](t, objects)) {
				t.Error(f)
			}
			if _, err := config.Parse([]byte(onlyObject[*core.ConfigMap](t, objects).Data["config.yaml"]), "config.yaml"); err != nil {
				t.Error(err)
			}
		})
	}
	t.Run("kustomize", func(t *testing.T) {
		for _, dir := range []string{Base, overlay(t, "", "unprivileged", "openshift")} {
			objects := renderKustomize(t, dir)
			for _, f := range Check(onlyObject[*apps.DaemonSet](t, objects)) {
				t.Error(f)
			}
			if _, err := config.Parse([]byte(onlyObject[*core.ConfigMap](t, objects).Data["config.yaml"]), "config.yaml"); err != nil {
				t.Error(err)
			}
		}
	})
}

// mounts returns the container's mounts as "path ro|rw propagation".
func mounts(t *testing.T, objects []Object) []string {
	t.Helper()
	var list []string
	for _, m := range onlyObject[*apps.DaemonSet](t, objects).Spec.Template.Spec.Containers[0].VolumeMounts {
		mode, propagation := "rw", "none"
		if m.ReadOnly {
			mode = "ro"
		}
		if m.MountPropagation != nil {
			propagation = string(*m.MountPropagation)
		}
		list = append(list, strings.Join([]string{m.MountPath, mode, propagation}, " "))
	}
	slices.Sort(list)
	return list
}

// Every directory of the configuration is mounted once. Nothing is mounted below the state directory,
// because such a mount would propagate to the host.
func TestMountsFollowConfiguration(t *testing.T) {
	for name, tc := range map[string]struct {
		values       string
		with, absent []string
	}{
		"roots": {"config: {sockets: {roots: [/var/run/vsw, /var/run/jackfield/sockets, /run/jackfield/x]}}",
			[]string{"/var/run/vsw rw HostToContainer", "/run/jackfield rw Bidirectional"}, []string{"/var/run/jackfield", "/run/jackfield/"}},
		"hostRun": {"{hostRun: true, config: {sockets: {roots: [/var/run/vsw, /srv/vsw]}}}",
			[]string{"/run rw Bidirectional", "/srv/vsw rw HostToContainer"}, []string{"/var/run", "/run/"}},
		"hostRun, unprivileged": {"{hostRun: true, staging: {propagation: false}}", []string{"/run rw HostToContainer"}, []string{"/var/run", "/run/"}},
		"state directory":       {"config: {stateDir: /srv/jackfield}", []string{"/srv/jackfield rw Bidirectional"}, []string{"/run/jackfield"}},
		"kubelet": {"config: {kubelet: {podResourcesSocket: /data/kubelet/pod-resources/k.sock, podsSocket: /data/kubelet/pods-api/p.sock, pluginsDir: /data/kubelet/plugins}}",
			[]string{"/data/kubelet/pod-resources ro none", "/data/kubelet/pods-api ro none", "/data/kubelet/plugins ro HostToContainer"}, []string{"/var/lib/kubelet"}},
		"report":       {"config: {missed: report}", nil, []string{"/run/containerd", "/run/crio"}},
		"evict":        {"config: {missed: evict}", []string{"/run/containerd ro none"}, nil},
		"evict, CRI-O": {"config: {missed: evict, runtime: {socket: /run/crio/crio.sock}}", []string{"/run/crio ro none"}, []string{"/run/containerd"}},
		"vswitches": {"config: {vswitches: [{name: a, type: ovs}, {name: b, type: ovs, endpoint: /srv/ovs/db.sock}, {name: c, type: vpp}]}",
			[]string{"/run/openvswitch ro none", "/srv/ovs ro none", "/run/vpp ro none"}, []string{"/run/jackfield/cni", "/run "}},
		"vswitches, state directory": {"config: {stateDir: /srv/jackfield, vswitches: [{name: g, type: grout, endpoint: /run/grout/api.sock}]}",
			[]string{"/run/jackfield rw none", "/run/grout ro none"}, []string{"/run "}},
		"named sockets": {"config: {sockets: {named: {spire: {path: /run/spire/agent.sock, at: /run/spire/agent.sock, create: wait}, db: {path: /srv/db/db.sock}}}}",
			[]string{"/run/spire rw HostToContainer", "/srv/db rw HostToContainer"}, nil},
		"no vswitches": {"config: {vswitches: []}", nil, []string{"/run/openvswitch", "/run/jackfield/cni"}},
		"NRI":          {"nri: {socketDir: /srv/nri}", []string{"/srv/nri ro none"}, []string{"/var/run/nri"}},
		"bounded":      {"config: {sockets: {roots: [/srv/vsw], directorySize: 1Mi}}", []string{"/srv/vsw rw Bidirectional", "/run/jackfield rw Bidirectional"}, nil},
		"bounded, unprivileged": {"{config: {sockets: {roots: [/srv/vsw], directorySize: 1Mi}}, staging: {propagation: false}}",
			[]string{"/srv/vsw rw HostToContainer"}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			got := mounts(t, renderHelm(t, tc.values))
			for _, want := range tc.with {
				if !slices.Contains(got, want) {
					t.Errorf("%q is not among the mounts %q", want, got)
				}
			}
			for _, m := range got {
				for _, prefix := range tc.absent {
					if strings.HasPrefix(m, prefix) {
						t.Errorf("%q is mounted", m)
					}
				}
			}
		})
	}
}

// The chart has the same default directories as the plugin.
func TestDefaultMountsMatchDefaultConfiguration(t *testing.T) {
	c := config.Default()
	want := append([]string{c.StateDir, c.DeviceInfo.CNIDir, c.DeviceInfo.DPDir, c.Multus.CacheDir, filepath.Dir(c.Kubelet.PodResourcesSocket), filepath.Dir(c.Kubelet.PodsSocket), c.Kubelet.PluginsDir,
		"/etc/jackfield", "/var/run/nri", "/var/run/userns", "/sys", "/dev"}, c.CDI.SpecDirs...)
	slices.Sort(want)
	var got []string
	for _, m := range mounts(t, renderHelm(t, "{}")) {
		got = append(got, strings.Fields(m)[0])
	}
	if d := cmp.Diff(want, got); d != "" {
		t.Errorf("the configuration's (-), the chart's (+):\n%s", d)
	}
}

// The probes connect from within the pod to the configured address. An address that is not HOST:PORT
// has no probes. Only an address on the pod network has a container port and a NetworkPolicy.
func TestProbesUseConfiguredAddress(t *testing.T) {
	for listen, want := range map[string]struct {
		probed string
		port   int32
	}{
		":9480": {"127.0.0.1:9480", 9480}, "0.0.0.0:9999": {"127.0.0.1:9999", 9999}, "[::]:1": {"127.0.0.1:1", 1},
		"127.0.0.1:9480": {"127.0.0.1:9480", 0}, "[::1]:9480": {"[::1]:9480", 0}, "": {}, "unix:/run/m.sock": {},
	} {
		objects := renderHelm(t, fmt.Sprintf("config: {metrics: {listen: %q}}", listen))
		c := onlyObject[*apps.DaemonSet](t, objects).Spec.Template.Spec.Containers[0]
		for path, probe := range map[string]*core.Probe{"readyz": c.ReadinessProbe, "healthz": c.LivenessProbe} {
			switch {
			case want.probed == "":
				if probe != nil {
					t.Errorf("%q has the probe %+v", listen, probe)
				}
			case probe == nil || probe.Exec == nil || !slices.Equal(probe.Exec.Command, []string{"/usr/bin/jackfield-nri", "--probe=http://" + want.probed + "/" + path}):
				t.Errorf("%q has the probe %+v, want one of http://%s/%s", listen, probe, want.probed, path)
			}
		}
		if (want.port != 0) != (len(c.Ports) == 1) || want.port != 0 && c.Ports[0].ContainerPort != want.port {
			t.Errorf("%q has the ports %v", listen, c.Ports)
		}
		if guarded := slices.ContainsFunc(objects, func(o Object) bool { _, ok := o.(*networking.NetworkPolicy); return ok }); guarded != (want.port != 0) {
			t.Errorf("%q has a NetworkPolicy: %v", listen, guarded)
		}
	}
	if _, err := Helm("metrics: {podMonitor: {enabled: true}}"); err == nil || !strings.Contains(err.Error(), "config.metrics.listen") {
		t.Errorf("a PodMonitor of an address that Prometheus cannot reach: %v", err)
	}
}

// By default other pods cannot reach the metrics, and a container's environment does not select its
// devices.
func TestDefaultsAreSafe(t *testing.T) {
	for name, objects := range map[string][]Object{"helm": renderHelm(t, "{}"), "kustomize": renderKustomize(t, Base)} {
		c, err := config.Parse([]byte(onlyObject[*core.ConfigMap](t, objects).Data["config.yaml"]), "config.yaml")
		if err != nil {
			t.Fatal(err)
		}
		if !c.Kubelet.Required {
			t.Errorf("%s: kubelet.required is false", name)
		}
		if host, _, err := net.SplitHostPort(c.Metrics.Listen); err != nil || !net.ParseIP(host).IsLoopback() {
			t.Errorf("%s: metrics.listen is %q", name, c.Metrics.Listen)
		}
		pod := onlyObject[*apps.DaemonSet](t, objects).Spec.Template.Spec
		for _, container := range slices.Concat(pod.InitContainers, pod.Containers) {
			if container.TerminationMessagePolicy != core.TerminationMessageFallbackToLogsOnError {
				t.Errorf("%s: kubectl describe does not show why %s exited", name, container.Name)
			}
		}
	}
}

// enableNRI reads the runtime's configuration at the path of the Kubernetes distribution, and the NRI socket shows
// whether the runtime has NRI on.
func TestEnableNRIReadsConfiguredFile(t *testing.T) {
	const file = "/var/snap/microk8s/current/args/containerd-template.toml"
	pod := onlyObject[*apps.DaemonSet](t, renderHelm(t, "{enableNRI: {enabled: true, configFile: "+file+"}, nri: {socketDir: /srv/nri}}")).Spec.Template.Spec
	c := pod.InitContainers[0]
	if !slices.Contains(c.Command, "--runtime-config="+file) || len(c.VolumeMounts) != 2 || c.VolumeMounts[0].MountPath != filepath.Dir(file) ||
		c.VolumeMounts[1].MountPath != "/srv/nri" || !c.VolumeMounts[1].ReadOnly {
		t.Errorf("%s runs %q with %v", c.Name, c.Command, c.VolumeMounts)
	}
	for _, m := range c.VolumeMounts {
		i := slices.IndexFunc(pod.Volumes, func(v core.Volume) bool { return v.Name == m.Name })
		if i < 0 || pod.Volumes[i].HostPath.Path != m.MountPath {
			t.Errorf("%s has %v, and the pod has the volumes %v", c.Name, m, pod.Volumes)
		}
	}
}

// A number or a string sets the plugin's index of two digits.
func TestIndexHasTwoDigits(t *testing.T) {
	for value, want := range map[string]string{"50": "50", "7": "07", "0": "00", "'08'": "08", "'50'": "50"} {
		args := onlyObject[*apps.DaemonSet](t, renderHelm(t, "nri: {index: "+value+"}")).Spec.Template.Spec.Containers[0].Args
		if !slices.Contains(args, "--index="+want) {
			t.Errorf("%s: the arguments are %q, want --index=%s", value, args, want)
		}
	}
}

// The copy of the last good configuration is in the state directory, where it outlives the container, or where
// jackfield-cni reads it for ports.
func TestLastGoodConfigurationIsInStateDirectory(t *testing.T) {
	for values, want := range map[string]string{"{}": "", "config: {stateDir: /srv/jackfield}": "--config-copy=/srv/jackfield/last-good-config.yaml",
		"config: {stateDir: /srv/jackfield, vswitches: [{name: a, type: ovs}]}": ""} {
		args := onlyObject[*apps.DaemonSet](t, renderHelm(t, values)).Spec.Template.Spec.Containers[0].Args
		got := ""
		for _, a := range args {
			if strings.HasPrefix(a, "--config-copy") {
				got = a
			}
		}
		if got != want {
			t.Errorf("%s: found %q, want %q", values, got, want)
		}
	}
}

// Without propagation the container has exactly three capabilities.
func TestUnprivilegedContainerHasThreeCapabilities(t *testing.T) {
	sc := onlyObject[*apps.DaemonSet](t, renderHelm(t, "staging: {propagation: false}")).Spec.Template.Spec.Containers[0].SecurityContext
	if sc.Privileged != nil || *sc.AllowPrivilegeEscalation || !*sc.ReadOnlyRootFilesystem {
		t.Errorf("the security context is %+v", sc)
	}
	if d := cmp.Diff(&core.Capabilities{Drop: []core.Capability{"ALL"}, Add: []core.Capability{"CHOWN", "DAC_OVERRIDE", "FOWNER"}}, sc.Capabilities); d != "" {
		t.Error(d)
	}
}

// The init containers that copy programs are off by default, and each mounts only its target directory.
func TestInitContainersMountOnlyTargetDirectory(t *testing.T) {
	if c := onlyObject[*apps.DaemonSet](t, renderHelm(t, "{}")).Spec.Template.Spec.InitContainers; len(c) > 0 {
		t.Errorf("there are %d init containers", len(c))
	}
	pod := onlyObject[*apps.DaemonSet](t, renderHelm(t, "hostPrograms: {cni: {enabled: true, dir: /srv/cni/bin}, hook: {enabled: true}}")).Spec.Template.Spec
	if len(pod.InitContainers) != 2 {
		t.Fatalf("there are %d init containers, want 2", len(pod.InitContainers))
	}
	for i, want := range []string{"jackfield-cni --to=/srv/cni/bin", "jackfield-hook --to=/usr/local/bin"} {
		c := pod.InitContainers[i]
		if got := strings.Join(c.Command, " "); got != "/usr/bin/jackfield copy-programs "+want {
			t.Errorf("%s runs %s", c.Name, got)
		}
		_, dir, _ := strings.Cut(want, "--to=")
		if len(c.VolumeMounts) != 1 || c.VolumeMounts[0].MountPath != dir || c.VolumeMounts[0].MountPropagation != nil {
			t.Errorf("%s has the mounts %v", c.Name, c.VolumeMounts)
		}
		sc := c.SecurityContext
		if d := cmp.Diff(&core.Capabilities{Drop: []core.Capability{"ALL"}}, sc.Capabilities); d != "" || sc.Privileged != nil || *sc.AllowPrivilegeEscalation || !*sc.ReadOnlyRootFilesystem {
			t.Errorf("%s: the security context is %+v", c.Name, sc)
		}
	}
}

// A value that the schema accepts keeps its type and text when it is rendered, even if YAML could parse
// it as a number, a boolean or a list.
func TestValuesKeepTypeAndText(t *testing.T) {
	dir := `/opt/a,b]{c}'"#d`
	for _, values := range []string{
		`fullnameOverride: "123"`, `nameOverride: "123"`, `existingConfigMap: "1e3"`, `serviceAccount: {name: "0x1f"}`, `priorityClassName: "12"`,
		`seLinuxType: "12"`, `enableNRI: {enabled: true}`, `image: {repository: "12", tag: "30"}`,
		fmt.Sprintf(`hostPrograms: {cni: {enabled: true, dir: %q}, hook: {enabled: true, dir: %q}}`, dir, dir),
		fmt.Sprintf(`nri: {socketDir: %q}`, dir), fmt.Sprintf(`devDir: %q`, dir), fmt.Sprintf(`config: {sockets: {roots: [%q]}}`, dir),
		`{podLabels: {a: "true"}, podAnnotations: {a: "x: y\n# z"}, nodeSelector: {a: "1"}}`, `config: {policy: null}`,
		`config: {audit: {file: /var/log/jackfield/audit.log}}`,
	} {
		objects, err := Helm(values)
		if err != nil {
			t.Errorf("%s: %v", values, err)
			continue
		}
		ds := onlyObject[*apps.DaemonSet](t, objects)
		for _, f := range Check(ds) {
			t.Errorf("%s: %s", values, f)
		}
		for _, c := range ds.Spec.Template.Spec.InitContainers {
			if strings.HasPrefix(c.Name, "install-") && (len(c.Command) != 4 || c.Command[3] != "--to="+c.VolumeMounts[0].MountPath) {
				t.Errorf("%s: %s runs %q", values, c.Name, c.Command)
			}
		}
	}
}

// The schema rejects an invalid value, and the error names it.
func TestSchemaRejectsInvalidValues(t *testing.T) {
	for values, want := range map[string]string{
		"imgae: {}":                                                   "imgae",
		"image: {repo: x}":                                            "repo",
		"image: {repository: 'Bad Name'}":                             "/image/repository",
		"image: {digest: 'sha256:12'}":                                "/image/digest",
		"image: {pullPolicy: Sometimes}":                              "/image/pullPolicy",
		"nri: {index: 100}":                                           "/nri/index",
		"nri: {index: '5'}":                                           "/nri/index",
		"nri: {socketDir: run/nri}":                                   "/nri/socketDir",
		"staging: {propagation: 'yes'}":                               "/staging/propagation",
		"enableNRI: {runtime: docker}":                                "/enableNRI/runtime",
		"log: {level: loud}":                                          "/log/level",
		"config: {sockets: {roots: [/var/run/../etc]}}":               "/config/sockets/roots/0",
		"config: {sockets: {directorySize: 1 MB}}":                    "/config/sockets/directorySize",
		"config: {sockets: {roots: []}}":                              "/config/sockets/roots",
		"config: {stateDir: /}":                                       "/config/stateDir",
		"config: {policy: {mode: lax}}":                               "/config/policy/mode",
		"config: {policy: {rules: [{for: {}}]}}":                      "/config/policy/rules/0",
		"resources: {limits: {memory: lots}}":                         "/resources/limits/memory",
		"updateStrategy: {type: Recreate}":                            "/updateStrategy/type",
		"hostRun: 1":                                                  "/hostRun",
		"hostPrograms: {cni: {dir: bin}}":                             "/hostPrograms/cni/dir",
		"hostPrograms: {csi: {}}":                                     "csi",
		"hostPID: 1":                                                  "/hostPID",
		"config: {hooks: {dirs: []}}":                                 "/config/hooks/dirs",
		"fullnameOverride: A_b":                                       "/fullnameOverride",
		"nameOverride: 'a: b'":                                        "/nameOverride",
		"existingConfigMap: a/b":                                      "/existingConfigMap",
		"serviceAccount: {name: A}":                                   "/serviceAccount/name",
		"priorityClassName: -a":                                       "/priorityClassName",
		"config: {audit: {file: /audit.log}}":                         "/config/audit/file",
		"config: {polciy: {}}":                                        "polciy",
		"config: {sockets: {root: [/run/x]}}":                         "root",
		"config: {policy: {rules: [{name: a, fro: {}}]}}":             "fro",
		"config: {policy: {rules: [{name: a, for: {namespace: x}}]}}": "namespace",
		"config: {policy: {rules: [{name: a, allow: {mounts: [{src: /a}]}}]}}":           "src",
		"metrics: {networkPolicy: {from: []}}":                                           "/metrics/networkPolicy/from",
		"{metrics: {networkPolicy: {from: null}}, config: {metrics: {listen: ':9480'}}}": "/metrics/networkPolicy",
		"config: {kubelet: {podResourcesSocket: /k.sock}}":                               "/config/kubelet/podResourcesSocket",
		"config: {sockets: {named: {a: {path: /a.sock}}}}":                               "/config/sockets/named/a/path",
		"config: {vswitches: [{name: a, type: ovs, endpoint: /db.sock}]}":                "/config/vswitches/0/endpoint",
		"config: {runtime: {socket: /crio.sock}}":                                        "/config/runtime/socket",
		"config: {audit: {file: /var/log/../audit.log}}":                                 "/config/audit/file",
		"extraArgs: [x]":                                                                "/extraArgs/0",
		"pools: {A: {nodeSelector: {a: b}}}":                                            "pools",
		"pools: {a: {}}":                                                                "nodeSelector",
		"pools: {a: {nodeSelector: {}}}":                                                "nodeSelector",
		"pools: {a: {nodeSelector: {a: b}, metrics: {}}}":                               "metrics",
		"pools: {a: {nodeSelector: {a: b}, config: {polciy: {}}}}":                      "polciy",
		"enableNRI: {configFile: config.toml}":                                          "/enableNRI/configFile",
		"config: {policy: {rules: [{name: a, allow: {cdi: ['acme.com nic=*']}}]}}":      "/allow/cdi/0",
		"config: {policy: {rules: [{name: a, allow: {cdi: ['acme.com/nic:nic0']}}]}}":   "/allow/cdi/0",
		"config: {policy: {rules: [{name: a, allow: {networks: ['a/**']}}]}}":           "/allow/networks/0",
		"config: {policy: {rules: [{name: a, allow: {sockets: [var/run/x]}}]}}":         "/allow/sockets/0",
		"config: {policy: {rules: [{name: a, allow: {devices: [/dev/../x]}}]}}":         "/allow/devices/0",
		"config: {policy: {rules: [{name: a, deny: {devices: ['/dev/[ab]']}}]}}":        "/deny/devices/0",
		"config: {policy: {rules: [{name: a, allow: {mounts: [{source: '/a/***'}]}}]}}": "/allow/mounts/0/source",
		"config: {policy: {rules: [{name: a, for: {namespaces: ['a b']}}]}}":            "/for/namespaces/0",
	} {
		_, err := Helm(values)
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: got %v, want an error that names %s", values, err, want)
		}
	}
}

// The schema accepts the patterns that the plugin accepts.
func TestSchemaAcceptsPatterns(t *testing.T) {
	const rule = "{name: a, for: {namespaces: ['dpdk-*', '*'], images: ['registry.example/*@sha256:*']}, " +
		"allow: {cdi: ['vendor.com/net=*', '*', 'vendor.com/net=vf0', 'v*', 'a/b=c:d'], sockets: ['/var/run/vsw/**', /run/a.sock], networks: ['telco/*', east], " +
		"devices: ['/dev/vfio/*'], hooks: [/usr/bin/h], namedSockets: ['spire-*'], mounts: [{source: '/srv/**', destination: /data}]}}"
	if _, err := Helm("config: {policy: {rules: [" + rule + "]}}"); err != nil {
		t.Error(err)
	}
	if cfg, err := config.Parse([]byte("policy: {rules: ["+rule+"]}"), "x"); err != nil {
		t.Error(err)
	} else if _, err := cfg.CompilePolicy(""); err != nil {
		t.Error(err)
	}
}

// Each mapping of the schema has exactly the keys of the configuration. internal/config lists these in its
// error about an unknown key.
func TestSchemaHasConfigurationKeys(t *testing.T) {
	data, err := os.ReadFile(filepath.Join(Chart, "values.schema.json"))
	if err != nil {
		t.Fatal(err)
	}
	var schema schemaNode
	if err := json.Unmarshal(data, &schema); err != nil {
		t.Fatal(err)
	}
	var checked int
	var check func(n schemaNode, at string, wrap func(string) string)
	check = func(n schemaNode, at string, wrap func(string) string) {
		if name, ok := strings.CutPrefix(n.Ref, "#/definitions/"); ok {
			n = schema.Definitions[name]
		}
		if n.Items != nil {
			check(*n.Items, at+"[]", func(inner string) string { return wrap("[" + inner + "]") })
			return
		}
		if len(n.Properties) == 0 {
			return // a value, or a map whose keys are the user's
		}
		checked++
		if string(n.AdditionalProperties) != "false" {
			t.Errorf("%s: the schema accepts any key", at)
		}
		_, err := config.Parse([]byte(wrap("{zzz: 1}")), "c.yaml")
		if err == nil {
			t.Fatalf("%s: the configuration accepts the key zzz", at)
		}
		_, list, ok := strings.Cut(err.Error(), "the keys here are ")
		if !ok {
			t.Fatalf("%s: %v", at, err)
		}
		list, _, _ = strings.Cut(list, "\n")
		list, _, _ = strings.Cut(list, ";")
		keys := strings.Split(list, ", ")
		slices.Sort(keys)
		if d := cmp.Diff(keys, slices.Sorted(maps.Keys(n.Properties))); d != "" {
			t.Errorf("%s: the configuration's keys (-), the schema's (+):\n%s", at, d)
		}
		for key, inner := range n.Properties {
			check(inner, at+"."+key, func(inner string) string { return wrap("{" + key + ": " + inner + "}") })
		}
	}
	check(schema.Properties["config"], "config", func(inner string) string { return inner })
	if checked < 20 {
		t.Errorf("checked only %d mappings", checked)
	}
}

type schemaNode struct {
	Ref                  string `json:"$ref"`
	Properties           map[string]schemaNode
	AdditionalProperties json.RawMessage
	Items                *schemaNode
	Definitions          map[string]schemaNode
}

// The command of the installation page extracts the configuration from Helm's output.
func TestPageExtractsConfigurationToValidate(t *testing.T) {
	page, err := os.ReadFile("../../docs/how-to/install-helm.md")
	if err != nil {
		t.Fatal(err)
	}
	script := regexp.MustCompile(`helm template .* --show-only templates/configmap\.yaml \| sed '([^']*)' \| jackfield validate --as config -\n`).FindSubmatch(page)
	if script == nil {
		t.Fatal("docs/how-to/install-helm.md does not have the command")
	}
	const values = "config: {policy: {rules: [{name: a, for: {namespaces: [x]}, allow: {sockets: [/run/x/**]}}]}}"
	files, err := renderChart(values)
	if err != nil {
		t.Fatal(err)
	}
	sed := exec.Command("sed", string(script[1]))
	sed.Stdin = strings.NewReader(files["jackfield/templates/configmap.yaml"])
	got, err := sed.Output()
	if err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(onlyObject[*core.ConfigMap](t, renderHelm(t, values)).Data["config.yaml"], strings.TrimSuffix(string(got), "\n")); d != "" {
		t.Errorf("the ConfigMap's (-), the command's (+):\n%s", d)
	}
}

// The schema accepts values.yaml, so every value can be set.
func TestValuesAreInTheSchema(t *testing.T) {
	data, err := os.ReadFile(filepath.Join(Chart, "values.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := Helm(string(data)); err != nil {
		t.Error(err)
	}
}

// Check and Decode reject invalid objects.
func TestInvalidObjectsAreRejected(t *testing.T) {
	for name, spoil := range map[string]func(*apps.DaemonSet){
		"Bidirectional": func(ds *apps.DaemonSet) { ds.Spec.Template.Spec.Containers[0].SecurityContext.Privileged = nil },
		"escalation": func(ds *apps.DaemonSet) {
			ds.Spec.Template.Spec.Containers[0].SecurityContext.AllowPrivilegeEscalation = new(bool)
		},
		"no volume": func(ds *apps.DaemonSet) { ds.Spec.Template.Spec.Volumes = nil },
		"selector":  func(ds *apps.DaemonSet) { ds.Spec.Template.Labels = nil },
		"twice": func(ds *apps.DaemonSet) {
			c := &ds.Spec.Template.Spec.Containers[0]
			c.VolumeMounts = append(c.VolumeMounts, c.VolumeMounts[0])
		},
		"DNS label": func(ds *apps.DaemonSet) { ds.Spec.Template.Spec.Volumes[0].Name = "a_b" },
	} {
		ds := onlyObject[*apps.DaemonSet](t, renderHelm(t, "{}"))
		spoil(ds)
		if found := strings.Join(Check(ds), "\n"); !strings.Contains(found, name) {
			t.Errorf("%s: found only %q", name, found)
		}
	}
	if _, err := Decode([]byte("apiVersion: v1\nkind: ConfigMap\ndate: {}\n")); err == nil {
		t.Error("an unknown field was accepted")
	}
	if _, err := Decode([]byte("apiVersion: v1\nkind: Secret\n")); err == nil {
		t.Error("a Secret was accepted")
	}
}

// Denials name the ConfigMap, which a person can edit, and not the file in the plugin's container.
func TestDenialsNameConfigMap(t *testing.T) {
	for values, want := range map[string]string{"{}": "jackfield", "existingConfigMap: mine": "mine"} {
		args := onlyObject[*apps.DaemonSet](t, renderHelm(t, values)).Spec.Template.Spec.Containers[0].Args
		if !slices.ContainsFunc(args, func(a string) bool { return strings.HasPrefix(a, "--config-name=config.yaml of ConfigMap "+want+" ") }) {
			t.Errorf("%s: the arguments are %q", values, args)
		}
	}
}

// The admission policies can be tried with warnings first, and never apply to kube-system.
func TestAdmissionWarnsOnTrial(t *testing.T) {
	for dir, want := range map[string][]admission.ValidationAction{"admission": {admission.Deny}, "admission-warn": {admission.Warn, admission.Audit}} {
		policies, bindings := 0, 0
		for _, o := range renderKustomize(t, filepath.Join(deploy, dir)) {
			binding, ok := o.(*admission.ValidatingAdmissionPolicyBinding)
			if !ok {
				policies++
				continue
			}
			bindings++
			if !slices.Equal(binding.Spec.ValidationActions, want) {
				t.Errorf("%s: %s has the actions %q, want %q", dir, binding.Name, binding.Spec.ValidationActions, want)
			}
			if binding.Spec.MatchResources == nil || binding.Spec.MatchResources.NamespaceSelector == nil {
				t.Errorf("%s: %s applies to kube-system as well", dir, binding.Name)
				continue
			}
			selector, err := meta.LabelSelectorAsSelector(binding.Spec.MatchResources.NamespaceSelector)
			if err != nil {
				t.Fatal(err)
			}
			for namespace, matches := range map[string]bool{"kube-system": false, "telco": true} {
				if selector.Matches(labels.Set{"kubernetes.io/metadata.name": namespace}) != matches {
					t.Errorf("%s: %s applies to %s: %v, want %v", dir, binding.Name, namespace, !matches, matches)
				}
			}
		}
		if policies != 2 || bindings != 2 {
			t.Errorf("%s: %d policies, %d bindings", dir, policies, bindings)
		}
	}
}
