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
{{- end -}}

{{- define "jackfield.labels" -}}
{{ include "jackfield.selector" . }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" }}
{{- with .Values.commonLabels }}
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

{{- /* The configuration with its defaults, which are those of pkg/config. */ -}}
{{- define "jackfield.config" -}}
{{- $defaults := dict
    "cdi" (dict "specDirs" (list "/etc/cdi" "/var/run/cdi"))
    "deviceInfo" (dict "cniDir" "/var/run/k8s.cni.cncf.io/devinfo/cni" "dpDir" "/var/run/k8s.cni.cncf.io/devinfo/dp")
    "multus" (dict "cacheDir" "/var/lib/cni/multus")
    "kubelet" (dict "podResourcesSocket" "/var/lib/kubelet/pod-resources/kubelet.sock")
    "sockets" (dict "roots" (list "/var/run/jackfield/sockets") "directorySize" "")
    "hooks" (dict "dirs" list)
    "metrics" (dict "listen" "")
    "audit" (dict "file" "")
    "missed" "report"
    "runtime" (dict "socket" "")
    "stateDir" "/run/jackfield" -}}
{{- mergeOverwrite $defaults (deepCopy .Values.config) | toYaml -}}
{{- end -}}

{{- /* What is mounted from the host, a list of {path, write, propagation}. A
directory in one that is mounted already, and with hostRun everything in /run, is
left out: a mount below the state directory would reach the host. */ -}}
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
{{- /* What bounds directories for sockets is mounted there, and must reach the host. */ -}}
{{- $rootMode := "HostToContainer" -}}
{{- if and $c.sockets.directorySize $mode -}}{{- $rootMode = $mode -}}{{- end -}}
{{- range $c.sockets.roots -}}
{{- $wanted = append $wanted (dict "path" . "write" true "propagation" $rootMode) -}}
{{- end -}}
{{- with $c.audit.file -}}
{{- $wanted = append $wanted (dict "path" (dir .) "write" true "propagation" "") -}}
{{- end -}}
{{- range concat (list .Values.nri.socketDir) $c.cdi.specDirs $c.hooks.dirs (list $c.deviceInfo.cniDir $c.deviceInfo.dpDir $c.multus.cacheDir (dir $c.kubelet.podResourcesSocket)) -}}
{{- $wanted = append $wanted (dict "path" . "write" false "propagation" "") -}}
{{- end -}}
{{- if eq $c.missed "evict" -}}
{{- $wanted = append $wanted (dict "path" (dir (default "/run/containerd/containerd.sock" $c.runtime.socket)) "write" false "propagation" "") -}}
{{- end -}}
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

{{- /* A volume's name is made of the path; where that could give one name to two
paths, a hash makes the difference. */ -}}
{{- define "jackfield.volumeName" -}}
{{- $name := printf "host%s" (regexReplaceAll "[^a-z0-9]+" (lower .) "-") -}}
{{- if or (not (regexMatch "^[a-z0-9/.]*$" .)) (gt (len $name) 60) -}}
{{- $name = printf "%s-%s" ($name | trunc 50 | trimSuffix "-") (sha256sum . | trunc 8) -}}
{{- end -}}
{{- $name -}}
{{- end -}}

{{- /* The port of metrics and health on the pod network; empty where none is. */ -}}
{{- define "jackfield.port" -}}
{{- $listen := (include "jackfield.config" . | fromYaml).metrics.listen -}}
{{- if regexMatch "^(|0\\.0\\.0\\.0|\\[::\\]):[0-9]+$" $listen -}}
{{- regexFind "[0-9]+$" $listen -}}
{{- end -}}
{{- end -}}

{{- /* The address that the probes ask from within the pod; empty where none is served. */ -}}
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
