// SPDX-License-Identifier: Apache-2.0

package charts

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	apps "k8s.io/api/apps/v1"
	core "k8s.io/api/core/v1"
	"sigs.k8s.io/yaml"

	"github.com/jackfield/jackfield/internal/config"
)

// The alert rules and the dashboard in the cluster are the files of deploy/monitoring, unchanged.
func TestMonitoringObjectsHaveFiles(t *testing.T) {
	objects := renderHelm(t, "metrics: {prometheusRule: {enabled: true, labels: {release: p}}, dashboard: {enabled: true}}")
	rule := onlyObject[*PrometheusRule](t, objects)
	alerts, err := os.ReadFile(filepath.Join(deploy, "monitoring/alerts.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	want := new(PrometheusRule)
	if err := yaml.UnmarshalStrict(alerts, &want.Spec); err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(want.Spec, rule.Spec); d != "" || rule.Labels["release"] != "p" {
		t.Errorf("the labels are %v; the file's rules (-), the object's (+):\n%s", rule.Labels, d)
	}
	dashboard, err := os.ReadFile(filepath.Join(deploy, "monitoring/dashboard.json"))
	if err != nil {
		t.Fatal(err)
	}
	for _, o := range objects {
		if c, ok := o.(*core.ConfigMap); ok && c.Name == "jackfield-dashboard" {
			if got := c.Data["jackfield.json"]; strings.TrimSpace(got) != strings.TrimSpace(string(dashboard)) || c.Labels["grafana_dashboard"] != "1" {
				t.Errorf("the ConfigMap has the labels %v and\n%s", c.Labels, got)
			}
			return
		}
	}
	t.Error("there is no ConfigMap with the dashboard")
}

// The alert about pods that are not ready asks for the DaemonSets of the release, whatever their names are.
func TestAlertNamesDaemonSetsOfRelease(t *testing.T) {
	for _, values := range []string{"{}", "fullnameOverride: fast-paths", "{fullnameOverride: fast-paths, pools: {dpdk: {nodeSelector: {a: b}}}}"} {
		objects := renderHelm(t, "{metrics: {prometheusRule: {enabled: true}}, "+strings.TrimPrefix(strings.TrimSuffix(values, "}"), "{")+"}")
		text, err := yaml.Marshal(onlyObject[*PrometheusRule](t, objects).Spec)
		if err != nil {
			t.Fatal(err)
		}
		selectors := regexp.MustCompile(`daemonset=~"([^"]*)"`).FindAllStringSubmatch(string(text), -1)
		if len(selectors) != 2 {
			t.Fatalf("the rules have the selectors %q", selectors)
		}
		for name := range objectsNamed[*apps.DaemonSet](objects) {
			for _, s := range selectors {
				if !regexp.MustCompile("^(?:" + s[1] + ")$").MatchString(name) {
					t.Errorf("%s: the alert is about DaemonSets named %s, and the release's is %s", values, s[1], name)
				}
			}
		}
	}
}

// A label for every object can have another value where a narrower setting names it too.
func TestNarrowerLabelsReplaceCommonOnes(t *testing.T) {
	objects := renderHelm(t, `
commonLabels: {release: common, team: net}
podLabels: {release: pods}
config: {metrics: {listen: ':9480'}}
metrics:
  podMonitor: {enabled: true, labels: {release: prometheus}}
  prometheusRule: {enabled: true, labels: {release: prometheus}}
  dashboard: {enabled: true, labels: {release: grafana}}`)
	found := map[string]string{"pods": onlyObject[*apps.DaemonSet](t, objects).Spec.Template.Labels["release"]}
	for _, o := range objects {
		if o.GetLabels()["team"] != "net" {
			t.Errorf("%s has the labels %v", o.GetName(), o.GetLabels())
		}
		found[o.GetObjectKind().GroupVersionKind().Kind+" "+o.GetName()] = o.GetLabels()["release"]
	}
	for name, want := range map[string]string{"pods": "pods", "DaemonSet jackfield": "common", "PodMonitor jackfield": "prometheus", "PrometheusRule jackfield": "prometheus",
		"ConfigMap jackfield-dashboard": "grafana", "ConfigMap jackfield": "common"} {
		if found[name] != want {
			t.Errorf("%s: release is %q, want %q", name, found[name], want)
		}
	}
}

// objectsNamed returns the objects of a type by name.
func objectsNamed[T Object](objects []Object) map[string]T {
	found := map[string]T{}
	for _, o := range objects {
		if o, ok := o.(T); ok {
			found[o.GetName()] = o
		}
	}
	return found
}

// Each pool has a DaemonSet, a ConfigMap and a test with its values, which belong to its nodes only. Without
// a value of its own, a pool has the chart's.
func TestPoolsHaveTheirOwnValues(t *testing.T) {
	objects := renderHelm(t, `
config: {sockets: {roots: [/srv/common]}, policy: {rules: [{name: common, for: {namespaces: ["*"]}, allow: {cdi: [a.com/b=c]}}]}}
extraArgs: [--pprof]
hostPID: true
pools:
  dpdk:
    nodeSelector: {pool: dpdk}
    hostPID: false
    image: {tag: canary}
    tolerations: []
    config: {sockets: {roots: [/srv/vsw]}}
  gpu:
    nodeSelector: {pool: gpu}
    extraArgs: [--log-level=debug]
    resources: {limits: {memory: 1Gi}}`)
	sets, configs, tests := objectsNamed[*apps.DaemonSet](objects), objectsNamed[*core.ConfigMap](objects), objectsNamed[*core.Pod](objects)
	if len(sets) != 2 || len(configs) != 2 || len(tests) != 2 {
		t.Fatalf("there are %d DaemonSets, %d ConfigMaps and %d tests", len(sets), len(configs), len(tests))
	}
	for pool, want := range map[string]struct {
		root, arg   string
		hostPID     bool
		tolerations int
	}{"dpdk": {"/srv/vsw", "--pprof", false, 0}, "gpu": {"/srv/common", "--log-level=debug", true, 1}} {
		ds := sets["jackfield-"+pool]
		for _, f := range Check(ds) {
			t.Errorf("%s: %s", pool, f)
		}
		pod := ds.Spec.Template.Spec
		if pod.NodeSelector["pool"] != pool || pod.NodeSelector["kubernetes.io/os"] != "linux" || ds.Spec.Selector.MatchLabels["jackfield.dev/pool"] != pool {
			t.Errorf("%s: runs on %v and owns %v", pool, pod.NodeSelector, ds.Spec.Selector.MatchLabels)
		}
		args := pod.Containers[0].Args
		if !slices.Contains(args, want.arg) || pod.HostPID != want.hostPID || len(pod.Tolerations) != want.tolerations {
			t.Errorf("%s: the arguments are %q, hostPID %v, tolerations %v", pool, args, pod.HostPID, pod.Tolerations)
		}
		if !slices.ContainsFunc(pod.Containers[0].VolumeMounts, func(m core.VolumeMount) bool { return m.MountPath == want.root }) {
			t.Errorf("%s: %s is not mounted", pool, want.root)
		}
		c, err := config.Parse([]byte(configs["jackfield-"+pool].Data["config.yaml"]), "config.yaml")
		if err != nil {
			t.Fatal(err)
		}
		if !slices.Equal(c.Sockets.Roots, []string{want.root}) || len(c.Policy.Rules) != 1 || !c.Kubelet.Required {
			t.Errorf("%s: the configuration is %+v", pool, c)
		}
		if pod := tests["jackfield-"+pool+"-test"]; pod == nil || pod.Spec.NodeSelector["pool"] != pool {
			t.Errorf("%s: the test is %+v", pool, pod)
		}
	}
	if memory := sets["jackfield-gpu"].Spec.Template.Spec.Containers[0].Resources.Limits.Memory(); memory.String() != "1Gi" {
		t.Errorf("gpu: the limit is %s", memory)
	}
	if memory := sets["jackfield-dpdk"].Spec.Template.Spec.Containers[0].Resources.Limits.Memory(); memory.String() != "256Mi" {
		t.Errorf("dpdk: the limit is %s, another pool's", memory)
	}
	if _, err := Helm("pools: {a: {nodeSelector: {a: b}, config: {metrics: {listen: ':1'}}}}"); err == nil || !strings.Contains(err.Error(), "pools.a.config.metrics") {
		t.Errorf("a pool with another address: %v", err)
	}
	name := strings.Repeat("p", 30)
	objects = renderHelm(t, "{fullnameOverride: "+strings.Repeat("a", 63)+", pools: {"+name+": {nodeSelector: {a: b}}}}")
	for _, o := range objects {
		if len(o.GetName()) > 63 && o.GetNamespace() != "" {
			t.Errorf("%s has %d letters", o.GetName(), len(o.GetName()))
		}
	}
}

// `helm test` asks the plugin of a node, without any right beyond reading its state directory.
func TestHelmTestAsksPlugin(t *testing.T) {
	objects := renderHelm(t, "{config: {stateDir: /srv/state}, imagePullSecrets: [{name: pull}]}")
	ds, pod := onlyObject[*apps.DaemonSet](t, objects).Spec.Template.Spec, onlyObject[*core.Pod](t, objects)
	if pod.Annotations["helm.sh/hook"] != "test" || pod.Spec.RestartPolicy != core.RestartPolicyNever {
		t.Errorf("the pod is %+v", pod)
	}
	if d := cmp.Diff([]any{ds.NodeSelector, ds.Tolerations, ds.Affinity, ds.ImagePullSecrets, ds.ServiceAccountName}, []any{pod.Spec.NodeSelector, pod.Spec.Tolerations, pod.Spec.Affinity, pod.Spec.ImagePullSecrets, pod.Spec.ServiceAccountName}); d != "" {
		t.Errorf("the plugin's pod (-), the test's (+):\n%s", d)
	}
	c := pod.Spec.Containers[0]
	if strings.Join(c.Command, " ") != "/usr/bin/jackfield status --config=/etc/jackfield/config.yaml --wait=3m" || c.Image != ds.Containers[0].Image {
		t.Errorf("it runs %q of %s", c.Command, c.Image)
	}
	var places []string
	for _, m := range c.VolumeMounts {
		if !m.ReadOnly {
			t.Errorf("%s is writable", m.MountPath)
		}
		places = append(places, m.MountPath)
	}
	if !slices.Equal(places, []string{"/etc/jackfield", "/srv/state"}) || c.SecurityContext.Privileged != nil || !slices.Equal(c.SecurityContext.Capabilities.Drop, []core.Capability{"ALL"}) {
		t.Errorf("it has the mounts %q and the rights %+v", places, c.SecurityContext)
	}
	// The pods that a selector of the chart selects must not include it.
	for k, v := range onlyObject[*apps.DaemonSet](t, objects).Spec.Selector.MatchLabels {
		if pod.Labels[k] == v {
			t.Errorf("the test has the plugin's label %s", k)
		}
	}
}

// The notes name the next commands, for a DaemonSet that exists.
func TestNotesNameNextCommands(t *testing.T) {
	for values, want := range map[string]string{"{}": "daemonset/jackfield\n", "pools: {dpdk: {nodeSelector: {a: b}}}": "daemonset/jackfield-dpdk\n"} {
		files, err := renderChart(values)
		if err != nil {
			t.Fatal(err)
		}
		notes := files["jackfield/templates/NOTES.txt"]
		for _, command := range []string{"rollout status " + want, "helm -n jackfield-system test jackfield", "jackfield doctor", "pod-security.kubernetes.io/enforce=privileged"} {
			if !strings.Contains(notes, command) {
				t.Errorf("%s: the notes do not have %q:\n%s", values, command, notes)
			}
		}
	}
}

// The notes do not say that nothing is granted where rules may be in a ConfigMap of the user's.
func TestNotesKnowWhereRulesAre(t *testing.T) {
	const rules = "[{name: a, for: {namespaces: [x]}, allow: {sockets: [/run/x/**]}}]"
	for values, granted := range map[string]bool{"{}": false, "config: {policy: {rules: " + rules + "}}": true, "existingConfigMap: mine": true,
		"pools: {dpdk: {nodeSelector: {a: b}}}": false, "pools: {dpdk: {nodeSelector: {a: b}, config: {policy: {rules: " + rules + "}}}}": true} {
		files, err := renderChart(values)
		if err != nil {
			t.Fatal(err)
		}
		if notes := files["jackfield/templates/NOTES.txt"]; strings.Contains(notes, "no policy rules yet") == granted {
			t.Errorf("%s: the notes are\n%s", values, notes)
		}
	}
}
