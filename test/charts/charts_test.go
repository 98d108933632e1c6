// SPDX-License-Identifier: Apache-2.0

package charts

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	apps "k8s.io/api/apps/v1"
	core "k8s.io/api/core/v1"
	"sigs.k8s.io/yaml"

	"github.com/jackfield/jackfield/pkg/config"
)

func helm(t *testing.T, values string) []Object {
	t.Helper()
	objects, err := Helm(values)
	if err != nil {
		t.Fatal(err)
	}
	return objects
}

func kustomize(t *testing.T, dir string) []Object {
	t.Helper()
	objects, err := Kustomize(dir)
	if err != nil {
		t.Fatal(err)
	}
	return objects
}

// overlay writes a kustomization of the base with components, as a user would,
// and gives its directory.
func overlay(t *testing.T, components ...string) string {
	t.Helper()
	dir, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	top, err := filepath.Abs(filepath.Join(deploy, "kustomize"))
	if err != nil {
		t.Fatal(err)
	}
	if top, err = filepath.Rel(dir, top); err != nil { // kustomize takes relative paths only
		t.Fatal(err)
	}
	text := "resources: [" + top + "/base]\ncomponents:\n"
	for _, c := range components {
		text += "- " + top + "/components/" + c + "\n"
	}
	if err := os.WriteFile(filepath.Join(dir, "kustomization.yaml"), []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return dir
}

// only returns the one object of a type.
func only[T Object](t *testing.T, objects []Object) T {
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

// comparable gives objects as a map from kind and name to YAML, without what the
// two ways cannot have in common: Helm's own labels, comments in the
// configuration, the names of volumes.
func comparable(t *testing.T, objects []Object) map[string]string {
	t.Helper()
	all := map[string]string{}
	for _, o := range objects {
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
			sameVolumes(o)
		}
		text, err := yaml.Marshal(o)
		if err != nil {
			t.Fatal(err)
		}
		all[o.GetObjectKind().GroupVersionKind().Kind+" "+o.GetNamespace()+"/"+o.GetName()] = string(text)
	}
	return all
}

// sameVolumes names volumes by the host's path, and sorts them and their mounts.
func sameVolumes(ds *apps.DaemonSet) {
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

// Both ways install the same, with the same options.
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
		"both":         {"{openshift: true, staging: {propagation: false}}", []string{"openshift", "unprivileged"}},
	} {
		t.Run(name, func(t *testing.T) {
			dir := Base
			if len(tc.components) > 0 {
				dir = overlay(t, tc.components...)
			}
			if d := cmp.Diff(comparable(t, kustomize(t, dir)), comparable(t, helm(t, tc.values))); d != "" {
				t.Errorf("kustomize (-), helm (+):\n%s", d)
			}
		})
	}
}

// What is rendered is what the API server takes, and what the plugin takes.
func TestRenderedObjectsAreValid(t *testing.T) {
	for name, values := range map[string]string{
		"defaults":     "{}",
		"unprivileged": "{staging: {propagation: false}, seLinuxType: spc_t}",
		"run":          "hostRun: true",
		"processes":    "hostPID: true",
		"NRI":          "enableNRI: {enabled: true, runtime: cri-o}",
		"programs":     "{hostPrograms: {cni: {enabled: true, dir: /srv/cni/bin}, hook: {enabled: true}}, enableNRI: {enabled: true}, seLinuxType: spc_t}",
		"everything": `
image: {repository: registry.example/jackfield, digest: "sha256:` + strings.Repeat("ab", 32) + `", pullPolicy: Always, pullSecrets: [{name: pull}]}
config:
  cdi: {specDirs: [/etc/cdi, /var/run/cdi, /opt/vendor_1/cdi, /opt/vendor-1/cdi]}
  sockets: {roots: [/var/run/vsw, /run/openvswitch, /var/run/jackfield/sockets, /srv/` + strings.Repeat("long/", 20) + `dir]}
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
			objects := helm(t, values)
			for _, f := range Check(only[*apps.DaemonSet](t, objects)) {
				t.Error(f)
			}
			if _, err := config.Parse([]byte(only[*core.ConfigMap](t, objects).Data["config.yaml"]), "config.yaml"); err != nil {
				t.Error(err)
			}
		})
	}
	t.Run("kustomize", func(t *testing.T) {
		for _, dir := range []string{Base, overlay(t, "unprivileged", "openshift")} {
			objects := kustomize(t, dir)
			for _, f := range Check(only[*apps.DaemonSet](t, objects)) {
				t.Error(f)
			}
			if _, err := config.Parse([]byte(only[*core.ConfigMap](t, objects).Data["config.yaml"]), "config.yaml"); err != nil {
				t.Error(err)
			}
		}
	})
}

// mounts gives the container's mounts, as "path ro|rw propagation".
func mounts(t *testing.T, objects []Object) []string {
	t.Helper()
	var list []string
	for _, m := range only[*apps.DaemonSet](t, objects).Spec.Template.Spec.Containers[0].VolumeMounts {
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

// Every directory of the configuration is there, once, and nothing is mounted
// below the state directory, from where it would reach the host.
func TestMountsFollowTheConfiguration(t *testing.T) {
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
		"kubelet":               {"config: {kubelet: {podResourcesSocket: /data/kubelet/pod-resources/k.sock}}", []string{"/data/kubelet/pod-resources ro none"}, []string{"/var/lib/kubelet"}},
		"NRI":                   {"nri: {socketDir: /srv/nri}", []string{"/srv/nri ro none"}, []string{"/var/run/nri"}},
	} {
		t.Run(name, func(t *testing.T) {
			got := mounts(t, helm(t, tc.values))
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

// The chart's defaults for directories are the plugin's.
func TestDefaultMountsAreTheConfigurationsDefaults(t *testing.T) {
	c := config.Default()
	want := append([]string{c.StateDir, c.DeviceInfo.CNIDir, c.DeviceInfo.DPDir, c.Multus.CacheDir, filepath.Dir(c.Kubelet.PodResourcesSocket),
		"/etc/jackfield", "/var/run/nri", "/sys", "/dev"}, c.CDI.SpecDirs...)
	slices.Sort(want)
	var got []string
	for _, m := range mounts(t, helm(t, "{}")) {
		got = append(got, strings.Fields(m)[0])
	}
	if d := cmp.Diff(want, got); d != "" {
		t.Errorf("the configuration's (-), the chart's (+):\n%s", d)
	}
}

// The kubelet asks the address that the configuration names, and none that it
// cannot reach.
func TestProbes(t *testing.T) {
	for listen, port := range map[string]int32{":9480": 9480, "0.0.0.0:9999": 9999, "[::]:1": 1, "": 0, "127.0.0.1:9480": 0, "unix:/run/m.sock": 0} {
		c := only[*apps.DaemonSet](t, helm(t, fmt.Sprintf("config: {metrics: {listen: %q}}", listen))).Spec.Template.Spec.Containers[0]
		if (port != 0) != (len(c.Ports) == 1) || (port != 0) != (c.ReadinessProbe != nil && c.LivenessProbe != nil) {
			t.Errorf("%q: ports %v, probes %v, %v", listen, c.Ports, c.ReadinessProbe, c.LivenessProbe)
		} else if port != 0 && c.Ports[0].ContainerPort != port {
			t.Errorf("%q: port %d", listen, c.Ports[0].ContainerPort)
		}
	}
}

// Without propagation the container has the three capabilities, and no more.
func TestUnprivileged(t *testing.T) {
	sc := only[*apps.DaemonSet](t, helm(t, "staging: {propagation: false}")).Spec.Template.Spec.Containers[0].SecurityContext
	if sc.Privileged != nil || *sc.AllowPrivilegeEscalation || !*sc.ReadOnlyRootFilesystem {
		t.Errorf("the security context is %+v", sc)
	}
	if d := cmp.Diff(&core.Capabilities{Drop: []core.Capability{"ALL"}, Add: []core.Capability{"CHOWN", "DAC_OVERRIDE", "FOWNER"}}, sc.Capabilities); d != "" {
		t.Error(d)
	}
}

// The init containers that copy programs are off, and have nothing but their
// directory.
func TestHostPrograms(t *testing.T) {
	if c := only[*apps.DaemonSet](t, helm(t, "{}")).Spec.Template.Spec.InitContainers; len(c) > 0 {
		t.Errorf("there are %d init containers", len(c))
	}
	pod := only[*apps.DaemonSet](t, helm(t, "hostPrograms: {cni: {enabled: true, dir: /srv/cni/bin}, hook: {enabled: true}}")).Spec.Template.Spec
	if len(pod.InitContainers) != 2 {
		t.Fatalf("there are %d init containers, want 2", len(pod.InitContainers))
	}
	for i, want := range []string{"jackfield-cni --to=/srv/cni/bin", "jackfield-hook --to=/usr/local/bin"} {
		c := pod.InitContainers[i]
		if got := strings.Join(c.Command, " "); got != "/usr/bin/jackfield install "+want {
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

// Whatever the schema takes is rendered as what it is, also where YAML would see a
// number, a truth or a list of its own in it.
func TestValuesAreRenderedAsTheyAre(t *testing.T) {
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
		ds := only[*apps.DaemonSet](t, objects)
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

// A value that means nothing is refused, with its name.
func TestSchemaRefuses(t *testing.T) {
	for values, want := range map[string]string{
		"imgae: {}":                                     "imgae",
		"image: {repo: x}":                              "repo",
		"image: {repository: 'Bad Name'}":               "/image/repository",
		"image: {digest: 'sha256:12'}":                  "/image/digest",
		"image: {pullPolicy: Sometimes}":                "/image/pullPolicy",
		"nri: {index: 50}":                              "/nri/index",
		"nri: {index: '5'}":                             "/nri/index",
		"nri: {socketDir: run/nri}":                     "/nri/socketDir",
		"staging: {propagation: 'yes'}":                 "/staging/propagation",
		"enableNRI: {runtime: docker}":                  "/enableNRI/runtime",
		"log: {level: loud}":                            "/log/level",
		"config: {sockets: {roots: [/var/run/../etc]}}": "/config/sockets/roots/0",
		"config: {sockets: {roots: []}}":                "/config/sockets/roots",
		"config: {stateDir: /}":                         "/config/stateDir",
		"config: {policy: {mode: lax}}":                 "/config/policy/mode",
		"config: {policy: {rules: [{for: {}}]}}":        "/config/policy/rules/0",
		"resources: {limits: {memory: lots}}":           "/resources/limits/memory",
		"updateStrategy: {type: Recreate}":              "/updateStrategy/type",
		"hostRun: 1":                                    "/hostRun",
		"hostPrograms: {cni: {dir: bin}}":               "/hostPrograms/cni/dir",
		"hostPrograms: {csi: {}}":                       "csi",
		"hostPID: 1":                                    "/hostPID",
		"config: {hooks: {dirs: []}}":                   "/config/hooks/dirs",
		"fullnameOverride: A_b":                         "/fullnameOverride",
		"nameOverride: 'a: b'":                          "/nameOverride",
		"existingConfigMap: a/b":                        "/existingConfigMap",
		"serviceAccount: {name: A}":                     "/serviceAccount/name",
		"priorityClassName: -a":                         "/priorityClassName",
		"config: {audit: {file: /audit.log}}":           "/config/audit/file",
	} {
		_, err := Helm(values)
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: got %v, want an error that names %s", values, err, want)
		}
	}
}

// Every value has its place in the schema, or it could not be set.
func TestValuesAreInTheSchema(t *testing.T) {
	data, err := os.ReadFile(filepath.Join(Chart, "values.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := Helm(string(data)); err != nil {
		t.Error(err)
	}
}

// The rules above find what they are for.
func TestCheckFinds(t *testing.T) {
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
		ds := only[*apps.DaemonSet](t, helm(t, "{}"))
		spoil(ds)
		if found := strings.Join(Check(ds), "\n"); !strings.Contains(found, name) {
			t.Errorf("%s: found only %q", name, found)
		}
	}
	if _, err := Decode([]byte("apiVersion: v1\nkind: ConfigMap\ndate: {}\n")); err == nil {
		t.Error("an unknown field was taken")
	}
	if _, err := Decode([]byte("apiVersion: v1\nkind: Secret\n")); err == nil {
		t.Error("a Secret was taken")
	}
}
