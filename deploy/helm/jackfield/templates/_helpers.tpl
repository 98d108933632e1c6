{{- /* The templates of a DaemonSet and what belongs to it get a context in which Values are those of a pool and
Pool is its name; both are the chart's where there are no pools. */ -}}
{{- define "jackfield.poolContext" -}}
{{- $values := .values -}}
{{- if hasKey (get .pool "config" | default dict) "metrics" -}}
{{- fail (printf "pools.%s.config.metrics: the NetworkPolicy and the PodMonitor are those of all pools; set config.metrics" .name) -}}
{{- end -}}
{{- include "jackfield.merge" (dict "into" $values "from" .pool) -}}
{{- end -}}

{{- /* Merges mappings into mappings, in place. A value that is no mapping, a list for example, is replaced. */ -}}
{{- define "jackfield.merge" -}}
{{- $into := .into -}}
{{- range $key, $value := .from -}}
{{- $old := get $into $key -}}
{{- if and (kindIs "map" $value) (kindIs "map" $old) -}}
{{- include "jackfield.merge" (dict "into" $old "from" $value) -}}
{{- else -}}
{{- $_ := set $into $key $value -}}
{{- end -}}
{{- end -}}
{{- end -}}

{{- /* The name of a DaemonSet and its ConfigMap. */ -}}
{{- define "jackfield.poolName" -}}
{{- if get . "Pool" -}}
{{- printf "%s-%s" (include "jackfield.fullname" . | trunc (int (sub 57 (len .Pool))) | trimSuffix "-") .Pool -}}
{{- else -}}
{{- include "jackfield.fullname" . -}}
{{- end -}}
{{- end -}}

{{- define "jackfield.name" -}}
{{- default .Chart.Name .Values.nameOverride | trunc 63 | trimSuffix "-" -}}
{{- end -}}

{{- define "jackfield.fullname" -}}
{{- if .Values.fullnameOverride -}}
{{- .Values.fullnameOverride | trunc 63 | trimSuffix "-" -}}
{{- else if contains (include "jackfield.name" .) .Release.Name -}}
{{- .Release.Name | trunc 63 | trimSuffix "-" -}}
{{- else -}}
{{- printf "%s-%s" .Release.Name (include "jackfield.name" .) | trunc 63 | trimSuffix "-" -}}
{{- end -}}
{{- end -}}

{{- define "jackfield.selector" -}}
app.kubernetes.io/name: {{ include "jackfield.name" . | quote }}
app.kubernetes.io/instance: {{ .Release.Name | quote }}
{{- with (get . "Pool") }}
jackfield.dev/pool: {{ . | quote }}
{{- end }}
{{- end -}}

{{- /* The labels of an object; "more", if set, replaces common labels of the same name. */ -}}
{{- define "jackfield.labels" -}}
{{ include "jackfield.selector" . }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" }}
{{- with merge (dict) (get . "more" | default dict) (.Values.commonLabels | default dict) }}
{{ toYaml . }}
{{- end }}
{{- end -}}

{{- define "jackfield.serviceAccount" -}}
{{- if .Values.serviceAccount.create -}}
{{- default (include "jackfield.fullname" .) .Values.serviceAccount.name -}}
{{- else -}}
{{- default "default" .Values.serviceAccount.name -}}
{{- end -}}
{{- end -}}

{{- define "jackfield.image" -}}
{{- if .Values.image.digest -}}
{{- printf "%s@%s" .Values.image.repository .Values.image.digest -}}
{{- else -}}
{{- printf "%s:%s" .Values.image.repository (default .Chart.AppVersion .Values.image.tag) -}}
{{- end -}}
{{- end -}}

{{- /* The configuration with its defaults, which are those of internal/config. */ -}}
{{- define "jackfield.config" -}}
{{- $defaults := dict
    "cdi" (dict "specDirs" (list "/etc/cdi" "/var/run/cdi"))
    "deviceInfo" (dict "cniDir" "/var/run/k8s.cni.cncf.io/devinfo/cni" "dpDir" "/var/run/k8s.cni.cncf.io/devinfo/dp")
    "multus" (dict "cacheDir" "/var/lib/cni/multus")
    "kubelet" (dict "podResourcesSocket" "/var/lib/kubelet/pod-resources/kubelet.sock" "podsSocket" "/var/lib/kubelet/pods-api/pods-api.sock" "pluginsDir" "/var/lib/kubelet/plugins")
    "sockets" (dict "roots" (list "/var/run/jackfield/sockets") "directorySize" "" "named" dict)
    "hooks" (dict "dirs" list)
    "metrics" (dict "listen" "")
    "audit" (dict "file" "")
    "missed" "report"
    "runtime" (dict "socket" "")
    "vswitches" list
    "stateDir" "/run/jackfield" -}}
{{- mergeOverwrite $defaults (deepCopy .Values.config) | toYaml -}}
{{- end -}}

{{- /* The mounts from the host, a list of {path, write, propagation}. A directory
below another mount is left out, and with hostRun everything in /run, because a
mount below the state directory would propagate to the host. */ -}}
{{- define "jackfield.hostPaths" -}}
{{- $c := include "jackfield.config" . | fromYaml -}}
{{- $list := list -}}
{{- $mode := ternary "Bidirectional" "" .Values.staging.propagation -}}
{{- $covers := list -}}
{{- if .Values.hostRun -}}
{{- $list = append $list (dict "path" "/run" "write" true "propagation" (default "HostToContainer" $mode)) -}}
{{- $covers = append $covers "/run/" -}}
{{- end -}}
{{- $wanted := list (dict "path" $c.stateDir "write" true "propagation" $mode) -}}
{{- /* Size-limited socket directories are mounts there, which must propagate to the host. */ -}}
{{- $rootMode := "HostToContainer" -}}
{{- if and $c.sockets.directorySize $mode -}}{{- $rootMode = $mode -}}{{- end -}}
{{- range $c.sockets.roots -}}
{{- $wanted = append $wanted (dict "path" . "write" true "propagation" $rootMode) -}}
{{- end -}}
{{- range $c.sockets.named -}}
{{- $wanted = append $wanted (dict "path" (dir .path) "write" true "propagation" "HostToContainer") -}}
{{- end -}}
{{- with $c.audit.file -}}
{{- $wanted = append $wanted (dict "path" (dir .) "write" true "propagation" "") -}}
{{- end -}}
{{- /* The plugin removes device-info of removed sandboxes. */ -}}
{{- $wanted = append $wanted (dict "path" $c.deviceInfo.cniDir "write" true "propagation" "") -}}
{{- range concat (list .Values.nri.socketDir) $c.cdi.specDirs $c.hooks.dirs (list $c.deviceInfo.dpDir $c.multus.cacheDir (dir $c.kubelet.podResourcesSocket) (dir $c.kubelet.podsSocket)) -}}
{{- $wanted = append $wanted (dict "path" . "write" false "propagation" "") -}}
{{- end -}}
{{- /* CSI drivers mount volumes there: their unmounts must reach this container. */ -}}
{{- $wanted = append $wanted (dict "path" $c.kubelet.pluginsDir "write" false "propagation" "HostToContainer") -}}
{{- if eq $c.missed "evict" -}}
{{- $wanted = append $wanted (dict "path" (dir (default "/run/containerd/containerd.sock" $c.runtime.socket)) "write" false "propagation" "") -}}
{{- end -}}
{{- with $c.vswitches -}}
{{- $endpoints := dict "ovs" "/run/openvswitch/db.sock" "grout" "/run/grout.sock" "vpp" "/run/vpp/api.sock" -}}
{{- $wanted = append $wanted (dict "path" "/run/jackfield" "write" true "propagation" "") -}}
{{- range . -}}
{{- $wanted = append $wanted (dict "path" (dir (default (get $endpoints .type) (get . "endpoint"))) "write" false "propagation" "") -}}
{{- end -}}
{{- end -}}
{{- /* CRI-O mounts the user namespace of each pod there. */ -}}
{{- $wanted = append $wanted (dict "path" "/var/run/userns" "write" false "propagation" "HostToContainer") -}}
{{- $wanted = append $wanted (dict "path" "/sys" "write" false "propagation" "") -}}
{{- $wanted = append $wanted (dict "path" .Values.devDir "write" false "propagation" "HostToContainer") -}}
{{- range $wanted -}}
{{- $real := printf "%s/" (regexReplaceAll "^/var/run/" .path "/run/") -}}
{{- $covered := false -}}
{{- range $covers -}}
{{- if hasPrefix . $real -}}{{- $covered = true -}}{{- end -}}
{{- end -}}
{{- if not $covered -}}
{{- $list = append $list . -}}
{{- $covers = append $covers $real -}}
{{- end -}}
{{- end -}}
{{- dict "list" $list | toYaml -}}
{{- end -}}

{{- /* A volume is named after its path. A hash is added where two paths could get
the same name. */ -}}
{{- define "jackfield.volumeName" -}}
{{- $name := printf "host%s" (regexReplaceAll "[^a-z0-9]+" (lower .) "-") -}}
{{- if or (not (regexMatch "^[a-z0-9/]*$" .)) (gt (len $name) 60) -}}
{{- $name = printf "%s-%s" ($name | trunc 50 | trimSuffix "-") (sha256sum . | trunc 8) -}}
{{- end -}}
{{- $name -}}
{{- end -}}

{{- /* The port of metrics and health on the pod network; empty without one. */ -}}
{{- define "jackfield.port" -}}
{{- $listen := (include "jackfield.config" . | fromYaml).metrics.listen -}}
{{- if regexMatch "^(|0\\.0\\.0\\.0|\\[::\\]):[0-9]+$" $listen -}}
{{- regexFind "[0-9]+$" $listen -}}
{{- end -}}
{{- end -}}

{{- /* The address of the probes within the pod; empty without one. */ -}}
{{- define "jackfield.probed" -}}
{{- $listen := (include "jackfield.config" . | fromYaml).metrics.listen -}}
{{- if include "jackfield.port" . -}}
127.0.0.1:{{ include "jackfield.port" . }}
{{- else if and $listen (not (hasPrefix "unix:" $listen)) -}}
{{- $listen -}}
{{- end -}}
{{- end -}}

{{- /* The directory of the runtime's configuration, which is mounted at its own path. */ -}}
{{- define "jackfield.runtimeConfig" -}}
{{- with .Values.enableNRI.configFile -}}
{{- dir . -}}
{{- else -}}
{{- ternary "/etc/crio" "/etc/containerd" (eq .Values.enableNRI.runtime "cri-o") -}}
{{- end -}}
{{- end -}}
