{{- /* The prefix of all names: the name of the release, with "belfry" unless it contains that. A name with it has 52 characters at most. */}}
{{- define "belfry.fullname" -}}
{{- if contains "belfry" .Release.Name -}}
{{- .Release.Name | trunc 26 | trimSuffix "-" -}}
{{- else -}}
{{- printf "%s-belfry" .Release.Name | trunc 26 | trimSuffix "-" -}}
{{- end -}}
{{- end }}

{{- /* Labels that select the pods of a component. Arguments: the root, the component. */}}
{{- define "belfry.selector" -}}
app.kubernetes.io/name: belfry
app.kubernetes.io/instance: {{ (index . 0).Release.Name | quote }}
app.kubernetes.io/component: {{ index . 1 }}
{{- end }}

{{- define "belfry.labels" -}}
{{- $root := index . 0 -}}
{{ include "belfry.selector" . }}
app.kubernetes.io/version: {{ $root.Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ $root.Release.Service }}
helm.sh/chart: {{ printf "%s-%s" $root.Chart.Name $root.Chart.Version | replace "+" "_" }}
{{- end }}

{{- define "belfry.secret" -}}
{{- required "secret.name is not set: create a Secret with deploy/helm/make-secret.sh, and set secret.name to its name" .Values.secret.name -}}
{{- end }}

{{- define "belfry.image" -}}
{{- $i := .Values.image -}}
{{- if $i.digest -}}
{{- printf "%s@%s" $i.repository $i.digest -}}
{{- else -}}
{{- printf "%s:%s" $i.repository (default .Chart.AppVersion $i.tag) -}}
{{- end -}}
{{- end }}

{{- /* Settings of a pod that are the same for all components. Arguments: the root, the component, the user. */}}
{{- define "belfry.pod" -}}
{{- $root := index . 0 -}}
serviceAccountName: {{ include "belfry.fullname" $root }}
automountServiceAccountToken: false
enableServiceLinks: false
{{- with $root.Values.imagePullSecrets }}
imagePullSecrets: {{ toYaml . | nindent 2 }}
{{- end }}
{{- with $root.Values.nodeSelector }}
nodeSelector: {{ toYaml . | nindent 2 }}
{{- end }}
{{- with $root.Values.tolerations }}
tolerations: {{ toYaml . | nindent 2 }}
{{- end }}
{{- with $root.Values.affinity }}
affinity: {{ toYaml . | nindent 2 }}
{{- end }}
{{- with $root.Values.priorityClassName }}
priorityClassName: {{ . }}
{{- end }}
topologySpreadConstraints:
  - maxSkew: 1
    topologyKey: kubernetes.io/hostname
    whenUnsatisfiable: ScheduleAnyway
    labelSelector:
      matchLabels: {{ include "belfry.selector" . | nindent 8 }}
securityContext:
  runAsNonRoot: true
  runAsUser: {{ index . 2 }}
  runAsGroup: {{ index . 2 }}
  fsGroup: {{ index . 2 }}
  fsGroupChangePolicy: OnRootMismatch
  seccompProfile: {type: RuntimeDefault}
{{- end }}

{{- define "belfry.container" -}}
securityContext:
  allowPrivilegeEscalation: false
  readOnlyRootFilesystem: true
  capabilities: {drop: [ALL]}
{{- end }}

{{- /* The certificate authorities of the user's own servers, as volumes and mounts. */}}
{{- define "belfry.authorityVolumes" -}}
{{- range $server := list "nats" "postgres" }}
{{- with (index $.Values $server).caSecret }}
- name: {{ $server }}-ca
  secret: {secretName: {{ . }}, defaultMode: 0440, items: [{key: ca.crt, path: ca.crt}]}
{{- end }}
{{- end }}
{{- end }}

{{- define "belfry.authorityMounts" -}}
{{- range $server := list "nats" "postgres" }}
{{- if (index $.Values $server).caSecret }}
- {name: {{ $server }}-ca, mountPath: /run/secrets/{{ $server }}-ca, readOnly: true}
{{- end }}
{{- end }}
{{- end }}

{{- /* Environment variables from a map. */}}
{{- define "belfry.env" -}}
{{- range $name, $value := . }}
- {name: {{ $name }}, value: {{ $value | quote }}}
{{- end }}
{{- end }}

{{- /* The addresses of the NATS servers, without user and password. */}}
{{- define "belfry.executorURL" -}}
{{- if .Values.nats.executorURL -}}
{{- .Values.nats.executorURL -}}
{{- else if .Values.nats.enabled -}}
{{- $servers := list -}}
{{- range $i := until (int .Values.nats.replicas) -}}
{{- $servers = append $servers (printf "nats://%s-nats-%d.%s-nats.%s.svc:4222" (include "belfry.fullname" $) $i (include "belfry.fullname" $) $.Release.Namespace) -}}
{{- end -}}
{{- join "," $servers -}}
{{- end -}}
{{- end }}

{{- /* True if a component has more than one process, so that one of them may be evicted. */}}
{{- define "belfry.several" -}}
{{- if .autoscaling.enabled -}}
{{- if gt (int .autoscaling.minReplicas) 1 -}}true{{- end -}}
{{- else if gt (int .replicas) 1 -}}true{{- end -}}
{{- end }}
